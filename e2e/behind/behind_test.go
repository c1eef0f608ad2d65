// Package behind lets fastadmit call other projects' webhooks, with its plugins
// MutatingAdmissionWebhook and ValidatingAdmissionWebhook, and compares that with an API server
// that calls them itself. Both get the same requests. What they store and what they answer must be
// equal.
package behind

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// sides are two clusters. The API server of the first one calls the webhooks itself; that of the
// second one calls fastadmit, which calls them.
type sides [2]*cluster.APIServer

// configurations are the webhooks' configurations, the same for both sides.
type configurations struct {
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
}

// start returns the sides with fastadmit registered for the second one.
func start(t *testing.T, etcd *cluster.Etcd, authority *cluster.Authority, first *cluster.APIServer, c configurations) sides {
	t.Helper()
	second := etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "behind", Prefix: "behind"})
	fastadmit := cluster.StartFastadmit(t, cluster.Binary, authority, "--kubeconfig", second.Kubeconfig(t),
		"--enable-admission-plugins", "AlwaysDeny,"+strings.Join(cluster.WebhookPlugins, ","),
		"--admission-control-config-file",
		admission(t, map[string]any{"MutatingAdmissionWebhook": c.mutating, "ValidatingAdmissionWebhook": c.validating}))
	marker := cluster.Webhook{URL: fastadmit.URL, CA: authority.PEM}
	// fastadmit's rules are those of the webhooks, as its README says.
	var mutating, validating []admissionregistrationv1.RuleWithOperations
	for i := range c.mutating.Webhooks {
		mutating = append(mutating, c.mutating.Webhooks[i].Rules...)
	}
	for i := range c.validating.Webhooks {
		validating = append(validating, c.validating.Webhooks[i].Rules...)
	}
	second.Validating(t, marker, cluster.Webhook{
		URL: fastadmit.URL + "/validate/ValidatingAdmissionWebhook", CA: authority.PEM, Rules: validating, Equivalent: true, Timeout: 30,
	})
	second.Mutating(t, marker, cluster.Webhook{
		URL: fastadmit.URL + "/mutate/MutatingAdmissionWebhook", CA: authority.PEM, Rules: mutating, Equivalent: true, Timeout: 30,
	})
	registration := first.Client.AdmissionregistrationV1()
	if _, err := registration.MutatingWebhookConfigurations().Create(t.Context(), c.mutating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := registration.ValidatingWebhookConfigurations().Create(t.Context(), c.validating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return sides{first, second}
}

// admission writes the AdmissionConfiguration, and a folder for each plugin with the
// configuration of its webhooks.
func admission(t *testing.T, of map[string]any) string {
	t.Helper()
	var all []any
	for name, webhooks := range of {
		folder := t.TempDir()
		write(t, filepath.Join(folder, "webhooks.json"), webhooks)
		all = append(all, map[string]any{"name": name, "configuration": map[string]any{
			"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", "staticManifestsDir": folder,
		}})
	}
	path := filepath.Join(t.TempDir(), "admission.json")
	write(t, path, map[string]any{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": all})
	return path
}

func write(t *testing.T, path string, v any) {
	t.Helper()
	content, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// certificate writes tls.crt and tls.key for this machine to a folder.
func certificate(t *testing.T, authority *cluster.Authority, names ...string) string {
	t.Helper()
	folder := t.TempDir()
	cert, key := authority.Sign(t, cluster.Serving(time.Now().Add(time.Hour), append(names, "127.0.0.1")...))
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": authority.PEM} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
