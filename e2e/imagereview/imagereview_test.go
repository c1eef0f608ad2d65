// Package imagereview compares two API servers. One has the plugin ImagePolicyWebhook and calls
// fastadmit's /imagereview. The other calls fastadmit's plugin as a webhook, which calls the same
// /imagereview.
package imagereview

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const rules = `apiVersion: fastadmit.io/v1alpha1
kind: Configuration
enableAdmissionPlugins: [AlwaysDeny]
imageReview:
  rules:
  - name: registries
    excludedNamespaces: ["kube-*"]
    allowedRepositories: [docker.io/library, registry.example.com]
  - name: pinned
    namespaces: [default]
    refusedTags: [latest]
    message: Name a version.
`

// files writes the files with which an API server or a fastadmit calls a URL, with a client
// certificate of the authority or without one.
func files(t *testing.T, url string, server, client *cluster.Authority) (admission string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	user := "{}"
	if client != nil {
		certificate, key := client.Sign(t, cluster.Calling("kube-apiserver"))
		user = fmt.Sprintf("{client-certificate: %q, client-key: %q}", write("tls.crt", string(certificate)),
			write("tls.key", string(key)))
	}
	kubeconfig := write("kubeconfig", fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q, "+
		"certificate-authority: %q}}]\n"+
		"users: [{name: u, user: %s}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n",
		url, write("ca.crt", string(server.PEM)), user))
	return write("admission.yaml", fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		"- name: ImagePolicyWebhook\n  configuration: {imagePolicy: {kubeConfigFile: %q, retryBackoff: 1}}\n", kubeconfig))
}

// create creates a Pod and returns the API server's error.
func create(t *testing.T, s *cluster.APIServer, namespace, image string) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
	if _, err := s.Client.CoreV1().Pods(namespace).Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		return err.Error()
	}
	return ""
}

func TestImageReview(t *testing.T) {
	serving, calling := cluster.NewAuthority(t), cluster.NewAuthority(t)
	reviewer := cluster.StartFastadmit(t, cluster.Binary, serving, "--config", cluster.WriteFile(t, "config.yaml", []byte(rules)),
		"--client-ca-file", cluster.WriteFile(t, "calling.crt", calling.PEM))
	url := reviewer.URL + "/imagereview"
	etcd := cluster.StartEtcd(t)
	admission := files(t, url, serving, calling)
	start := func(prefix, admission string) *cluster.APIServer {
		return etcd.StartAPIServer(t, cluster.APIServerOptions{
			Name: prefix, Prefix: prefix, On: []string{"ImagePolicyWebhook"},
			Flags: map[string]string{"admission-control-config-file": admission},
		})
	}
	direct := start("direct", admission)
	behind := etcd.StartAPIServer(t, cluster.APIServerOptions{Name: "behind", Prefix: "behind"})
	caller := cluster.StartFastadmit(t, cluster.Binary, serving, "--enable-admission-plugins", "AlwaysDeny,ImagePolicyWebhook",
		"--admission-control-config-file", admission)
	behind.Validating(t, cluster.Webhook{URL: caller.URL, CA: serving.PEM}, cluster.Webhook{
		URL: caller.URL + "/validate/ImagePolicyWebhook", CA: serving.PEM,
		Rules: cluster.Rules("*", "", "v1", "pods", "pods/ephemeralcontainers"),
	})
	f := func(namespace, image, want string) {
		t.Helper()
		for name, s := range map[string]*cluster.APIServer{"plugin": direct, "webhook": behind} {
			got := create(t, s, namespace, image)
			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s, %s: got %q, want %q", name, image, got, want)
			}
		}
	}
	const denied = "is forbidden: image policy webhook backend denied one or more images: image "
	f("default", "nginx:1.29", "")
	f("default", "registry.example.com/a/b:v1", "")
	f("default", "nginx", denied+"nginx may not run: the tag latest is refused (rule pinned): Name a version.")
	f("default", "quay.io/a:1", denied+"quay.io/a:1 may not run: quay.io/a is not one of the allowed repositories (rule registries)")
	f("default", "Nginx", denied+"Nginx may not run: invalid reference format")
	f("kube-system", "quay.io/a", "")
	f("kube-public", "quay.io/a", "")

	// The API server's audit log has what /imagereview says for it.
	const key = "imagepolicywebhook.image-policy.k8s.io/refused-by-rule"
	events, err := direct.Audit(func(e *auditv1.Event) bool { return e.Annotations[key] != "" })
	if err != nil || !slices.ContainsFunc(events, func(e auditv1.Event) bool { return e.Annotations[key] == "pinned" }) {
		t.Errorf("got %v and %v, want an audit event with the annotation %s: pinned", events, err, key)
	}

	// Without a client certificate there is no answer, so pods are denied.
	stranger := start("stranger", files(t, url, serving, nil))
	if got := create(t, stranger, "default", "nginx:1.29"); !strings.Contains(got, "client certificate: got none, want one") {
		t.Errorf("got %q from an API server without a client certificate, want it sent away", got)
	}
	reviewer.Stop(t)
	f("kube-system", "quay.io/b", "connect: connection refused")
	f("default", "nginx:1.29", "") // a cached answer
}
