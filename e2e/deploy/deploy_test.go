// Package deploy installs the chart on a real API server, upgrades it, watches it with a real
// Prometheus, and removes it.
package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

const (
	chart     = "../../deploy/chart"
	kustomize = "../../deploy/kustomize/base"
)

// TestDeploy follows installations: which objects the chart has, who registers the webhooks, and
// whose certificates they have.
func TestDeploy(t *testing.T) {
	t.Parallel()
	s := startShop(t, 20)
	t.Run("accepted", s.accepted)
	t.Run("managed", s.managed)
	t.Run("not-registered", s.notRegistered)
	t.Run("own-certificate", s.ownCertificate)
	t.Run("registered-by-others", s.registeredByOthers)
}

// TestDeployPlugins installs what the chart can enable. It has a cluster of its own, because most
// of its time passes in waiting.
func TestDeployPlugins(t *testing.T) {
	t.Parallel()
	s := startShop(t, 22)
	t.Run("extra-plugins", s.extraPlugins)
	t.Run("policies", s.policies)
	t.Run("webhooks", s.webhooks)
	t.Run("pod-kinds", s.podKinds)
}

// startShop starts a stand with a namespace of a tenant.
func startShop(t *testing.T, network int) *stand {
	t.Helper()
	s := startStand(t, network)
	s.MustKubectl(t, "", "create", "namespace", "shop")
	s.MustKubectl(t, "", "label", "namespace", "default", "team=a")
	return s
}

// ofOthers are other projects' CRDs for objects in the chart, by the modules in tools/deploy/go.mod.
var ofOthers = map[string]string{
	"github.com/cert-manager/cert-manager":               "deploy/crds",
	"github.com/prometheus-operator/prometheus-operator": "example/prometheus-operator-crd",
}

// define installs other projects' CRDs.
func (s *stand) define(t *testing.T) {
	t.Helper()
	for module, folder := range ofOthers {
		var downloaded struct{ Dir string }
		printed := walkthrough.Run(t, nil, "go", "-C", "../../tools/deploy", "mod", "download", "-json", module)
		if err := json.Unmarshal([]byte(printed), &downloaded); err != nil {
			t.Fatal(err)
		}
		s.MustKubectl(t, "", "create", "-f", filepath.Join(downloaded.Dir, folder))
	}
	s.AwaitCRDs(t)
}

// accepted applies the chart with each preset, and the kustomization, as a dry run.
func (s *stand) accepted(t *testing.T) {
	s.define(t)
	presets, err := filepath.Glob(chart + "/presets/*.yaml")
	if err != nil || len(presets) == 0 {
		t.Fatalf("got presets %q, %v", presets, err)
	}
	s.MustKubectl(t, "", "create", "namespace", "fastadmit")
	defer s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
	certificate, _ := walkthrough.NewCertificate(t)
	authority := cluster.WriteFile(t, "ca.crt", certificate)
	f := func(name, manifests string) {
		t.Run(name, func(t *testing.T) {
			want := 0
			for document := range strings.SplitSeq("\n"+manifests, "\n---") {
				if strings.Contains(document, "\nkind: ") {
					want++
				}
			}
			accepted := s.MustKubectl(t, manifests, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
			if got := strings.Count(accepted, "(server dry run)"); got != want {
				t.Errorf("got %d objects accepted, want %d:\n%s", got, want, accepted)
			}
		})
	}
	for _, preset := range append(presets, chart+"/values.yaml") {
		arguments := []string{"template", "fastadmit", chart, "--values", preset,
			"--set", "plugins.AlwaysPullImages.failurePolicy=Fail", "--set", "plugins.DenyServiceExternalIPs.failurePolicy=Ignore"}
		if filepath.Base(preset) == "own-certificate.yaml" {
			arguments = append(arguments, "--set-file", "certificates.caBundle="+authority)
		}
		f(filepath.Base(preset), s.helm(t, arguments...))
	}
	f("kustomize", walkthrough.Run(t, nil, walkthrough.Tool(t, "kustomize"), "build", kustomize))
}

// managed follows the life of an installation that keeps its certificates and registers itself,
// with the commands of docs/operations.md.
func (s *stand) managed(t *testing.T) {
	s.awaitNoNamespace(t)
	admin := walkthrough.New(t, s.kubeconfig)
	s.startNode(t, cluster.Binary)
	admin.Does(t, "--rendered=-")
	admin.Does(t, "--create-namespace -f values.yaml")
	if said, err := s.warning(t, admin); err != nil {
		t.Errorf("when helm says that it is installed: %v: %s", err, said)
	}
	admin.Does(t, "helm test")

	before := s.names(t)
	admin.Values(t, "plugins: {AlwaysPullImages: {}}")
	admin.Does(t, "--reset-then-reuse-values")
	if err := s.pulls(); err != nil {
		t.Errorf("when helm says that another plugin is installed: %v", err)
	}
	page := admin.On(t, "managed-clusters.md")
	if got, want := page.Does(t, "kubectl run probe"), page.Documented(t, "text", "Always"); got != want {
		t.Errorf("got %q of a Pod's dry run, want %q", got, want)
	}
	admin.Does(t, "/data/path-tokens")
	if after := s.names(t); after != before {
		t.Errorf("got pods %s after a change of plugins, want those there were, %s", after, before)
	}
	admin.Values(t, "podAnnotations: {rolled: 'yes'}")
	s.withoutFailures(t, func() { admin.Does(t, "--reset-then-reuse-values") })
	if after := s.names(t); after == before {
		t.Errorf("got pods %s after a change of pods, want others", after)
	}
	s.watched(t, "fastadmit_serving_certificate_expiry_timestamp_seconds", "fastadmit_cluster_access_refusals_total", "fastadmit_policy_",
		"fastadmit_webhook_configurations_invalid")
	admin.Does(t, "kubectl scale")
	s.recovers(t, admin)
	admin.Does(t, "helm uninstall")
	s.removed(t)
	said, err := admin.Tries(t, "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations fastadmit.io")
	if err == nil || strings.Count(said, "(NotFound)") != 2 {
		t.Errorf("got %v %s, want that both are not found", err, said)
	}
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
}

// ownCertificate is managed with the administrator's own certificate, which the release registers.
func (s *stand) ownCertificate(t *testing.T) {
	s.awaitNoNamespace(t)
	admin := walkthrough.New(t, s.kubeconfig)
	s.startNode(t, cluster.Binary)
	admin.Does(t, "create secret tls")
	if err := s.service("shop"); err != nil {
		t.Fatalf("before it is registered: %v", err)
	}
	admin.Does(t, "helm upgrade", "own-certificate.yaml")
	s.awaitWarning(t, admin, "fastadmit.io")
	admin.Does(t, "openssl rand")
	token := s.MustKubectl(t, "", "get", "secret", "fastadmit-callers", "-n", "fastadmit", "-o",
		"go-template={{.data.tokens | base64decode}}")
	if path := s.MustKubectl(t, "", "get", "validatingwebhookconfigurations", "fastadmit.io", "-o",
		"jsonpath={.webhooks[0].clientConfig.service.path}"); len(token) < 32 ||
		!strings.HasPrefix(path, "/"+strings.TrimSpace(token)+"/") {
		t.Errorf("got the path %s, want one with the path token %q", path, token)
	}
	s.awaitWarning(t, admin, "fastadmit.io")

	admin.Values(t, admin.Documented(t, "yaml", "action: deny"))
	admin.Does(t, "--reset-then-reuse-values")
	cluster.Await(t, "a denial", func() error {
		return cluster.WantError(s.service("default"), `"validate-fail.fastadmit.io" denied the request: DenyServiceExternalIPs: `)
	})
	for _, namespace := range []string{"shop", "fastadmit", "kube-system"} {
		if err := s.service(namespace); err != nil {
			t.Errorf("namespace %s: %v", namespace, err)
		}
	}
	before := s.names(t)
	admin.Values(t, "plugins: {AlwaysPullImages: {}}")
	admin.Does(t, "--reset-then-reuse-values")
	cluster.Await(t, "another plugin", s.pulls)
	if after := s.names(t); after != before {
		t.Errorf("got pods %s after a change of plugins, want those there were, %s", after, before)
	}

	s.watched(t, "fastadmit_certificate_expiry_timestamp_seconds", "fastadmit_certificate_failures_total", "fastadmit_registered",
		"fastadmit_cluster_access_refusals_total", "fastadmit_policy_",
		"fastadmit_webhook_configurations_invalid") // of plugins that ask about users
	s.recovers(t, admin)
	admin.Does(t, "helm uninstall")
	s.removed(t)

	// Deleting only the namespace leaves no webhook either.
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
	admin.Values(t, admin.Installed(t))
	admin.Does(t, "create secret tls")
	admin.Does(t, "helm upgrade", "own-certificate.yaml")
	s.awaitWarning(t, admin, "fastadmit.io")
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
	s.removed(t)
}

// registeredByOthers follows an installation whose webhook configurations the administrator
// applies, from the output of fastadmit manifests.
func (s *stand) registeredByOthers(t *testing.T) {
	s.awaitNoNamespace(t)
	admin := walkthrough.New(t, s.kubeconfig)
	admin.Document = strings.ReplaceAll(admin.Document, "webhookconfigurations fastadmit.io",
		"webhookconfigurations fastadmit.example.com")
	s.startNode(t, cluster.Binary)
	admin.Values(t, admin.Installed(t)+admin.Documented(t, "yaml", "webhookConfigurations: "))
	admin.Does(t, "--create-namespace -f values.yaml")
	configuration := s.MustKubectl(t, "", "get", "configmap", "fastadmit", "-n", "fastadmit", "-o", `jsonpath={.data.configuration\.yaml}`)
	printed := walkthrough.Run(t, nil, cluster.Binary, "manifests", "--config="+cluster.WriteFile(t, "configuration.yaml",
		[]byte(configuration)))
	theirs := strings.ReplaceAll(printed, "name: fastadmit.io", "name: fastadmit.example.com")
	s.MustKubectl(t, theirs, "apply", "--server-side", "--field-manager=theirs", "-f", "-")
	cluster.Await(t, "the caBundle", func() error { return s.service("shop") })
	s.awaitWarning(t, admin, "fastadmit.example.com")
	s.MustKubectl(t, theirs, "apply", "--server-side", "--field-manager=theirs", "-f", "-")
	if err := s.service("shop"); err != nil {
		t.Errorf("applied again: %v", err)
	}
	if got := s.MustKubectl(t, "", "get", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-o", "name"); got !=
		"validatingwebhookconfiguration.admissionregistration.k8s.io/fastadmit.example.com\n" {
		t.Errorf("got %s, want only the administrator's", got)
	}
	s.MustKubectl(t, theirs, "delete", "-f", "-")
	admin.Does(t, "helm uninstall")
	s.removed(t)
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
}

// recovers deletes the webhooks, and registers them again.
func (s *stand) recovers(t *testing.T, admin *walkthrough.Admin) {
	t.Helper()
	admin.Does(t, "kubectl delete mutatingwebhookconfigurations")
	cluster.Await(t, "writes to be let through", func() error { return cluster.WantError(s.pulls(), "got imagePullPolicy IfNotPresent") })
	admin.Does(t, "--reset-then-reuse-values")
	cluster.Await(t, "the webhooks to be back", s.pulls)
}

// awaitNoNamespace waits until the installation before is gone. It removes what a test that fails
// leaves behind, because its webhooks would make the tests after it fail too.
func (s *stand) awaitNoNamespace(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			_, _, _ = s.Kubectl(t, "", "delete", "--ignore-not-found",
				"mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
			_, _, _ = s.Kubectl(t, "", "delete", "--ignore-not-found", "--wait=false", "namespace", "fastadmit")
		}
	})
	cluster.Await(t, "the namespace to go", func() error {
		_, err := s.Client.CoreV1().Namespaces().Get(context.Background(), "fastadmit", metav1.GetOptions{})
		return cluster.WantError(err, "not found")
	})
}

// awaitWarning waits until the document's check of an installation succeeds.
func (s *stand) awaitWarning(t *testing.T, admin *walkthrough.Admin, configuration string) {
	t.Helper()
	cluster.Await(t, "the registration", func() error {
		_, _, err := s.Kubectl(t, "", "get", "validatingwebhookconfigurations", configuration)
		return err
	})
	cluster.Await(t, "a warning", func() error { _, err := s.warning(t, admin); return err })
}

// warning runs the document's check of an installation.
func (s *stand) warning(t *testing.T, admin *walkthrough.Admin) (said string, err error) {
	t.Helper()
	if said = admin.Does(t, "kubectl patch --local"); !strings.Contains(said, "Warning: DenyServiceExternalIPs: services \"probe\" "+
		"is forbidden: ") {
		err = errors.New("there is no warning")
	}
	return said, err
}

// removed checks that nothing calls fastadmit any more.
func (s *stand) removed(t *testing.T) {
	t.Helper()
	cluster.Await(t, "the webhooks to go", func() error {
		const kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings"
		stdout, stderr, err := s.Kubectl(t, "", "get", kinds, "-l", "app.kubernetes.io/name=fastadmit", "-o", "name")
		if stdout != "" {
			err = fmt.Errorf("got %s%s", stdout, stderr)
		}
		return errors.Join(err, s.service("shop"))
	})
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// service tries to create a Service with an external IP.
func (s *stand) service(namespace string) error {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"},
		Spec:       corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	_, err := s.Client.CoreV1().Services(namespace).Create(context.Background(), service, dryRun)
	return err
}

// pulls tries to create a Pod, and says whether AlwaysPullImages changed it.
func (s *stand) pulls() error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "nginx:1", ImagePullPolicy: corev1.PullIfNotPresent}},
		},
	}
	pod, err := s.Client.CoreV1().Pods("shop").Create(context.Background(), pod, dryRun)
	if err != nil {
		return err
	}
	if policy := pod.Spec.Containers[0].ImagePullPolicy; policy != corev1.PullAlways {
		return fmt.Errorf("got imagePullPolicy %s, want Always", policy)
	}
	return nil
}

// names returns the names of fastadmit's pods, except those that are terminating.
func (s *stand) names(t *testing.T) string {
	t.Helper()
	pods, err := s.Client.CoreV1().Pods("fastadmit").List(context.Background(),
		metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=fastadmit"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			names = append(names, pods.Items[i].Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// withoutFailures creates Pods while something happens, and checks that each was changed.
func (s *stand) withoutFailures(t *testing.T, happens func()) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		made := 0
		defer func() { done <- made }()
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if err := s.pulls(); err != nil {
				t.Errorf("during an upgrade: %v", err)
			}
			made++
		}
	}()
	happens()
	close(stop)
	if made := <-done; made < 10 {
		t.Errorf("got %d Pods made during an upgrade, want some", made)
	} else {
		t.Logf("%d Pods were made during an upgrade", made)
	}
}

// content returns the content of a file.
func content(t *testing.T, name string) []byte {
	t.Helper()
	all, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return all
}
