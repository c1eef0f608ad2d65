// Package registration applies the output of fastadmit manifests to a real API server, and checks
// that it works: by URL, by service and from files.
package registration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// enabled is what most of the tests register: a plugin that mutates, and one
// that denies.
const enabled = "--enable-admission-plugins=AlwaysPullImages,DenyServiceExternalIPs"

func TestRegistration(t *testing.T) {
	s := startStand(t, nil, cluster.NewAuthority(t))
	t.Run("refused", s.refused)
	t.Run("accepted", s.accepted)
	t.Run("by-url", s.byURL)
	t.Run("by-service", s.byService)
	t.Run("policies", s.policies)
	t.Run("selectors", s.selectors)
	t.Run("options", s.options)
	t.Run("dry-run", s.dryRun)
}

// stand is an API server, and the authority of fastadmit's certificates.
type stand struct {
	*cluster.APIServer
	authority *cluster.Authority
}

// services is the range of the cluster's Services: addresses of this machine, so that an API server
// needs no cluster network.
const services = "127.10.0.0/16"

// startStand starts an API server with flags, and creates the namespaces of the tests: the one in
// which fastadmit runs, and one that a selector selects.
func startStand(t *testing.T, flags map[string]string, authority *cluster.Authority) *stand {
	t.Helper()
	all := map[string]string{"service-cluster-ip-range": services}
	maps.Copy(all, flags)
	s := &stand{cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{Flags: all}), authority}
	for _, namespace := range []*corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "fastadmit"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Labels: map[string]string{"tenant": "yes"}}},
	} {
		if _, err := s.Client.CoreV1().Namespaces().Create(context.Background(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cluster.Await(t, "namespaces", func() error {
		for _, name := range []string{"default", "kube-system"} {
			if _, err := s.Client.CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	return s
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// pod tries to create a Pod and returns its pull policy.
func (s *stand) pod(namespace string) (corev1.PullPolicy, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1",
			ImagePullPolicy: corev1.PullIfNotPresent}}},
	}
	pod, err := s.Client.CoreV1().Pods(namespace).Create(context.Background(), pod, dryRun)
	if err != nil {
		return "", err
	}
	return pod.Spec.Containers[0].ImagePullPolicy, nil
}

// service tries to create a Service with an external IP.
func (s *stand) service(namespace string) error {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"},
		Spec:       corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	_, err := s.Client.CoreV1().Services(namespace).Create(context.Background(), service, dryRun)
	return err
}

// awaitWorking waits until both webhooks of enabled work in the namespace default, and checks that
// they leave the excluded namespaces alone.
func (s *stand) awaitWorking(t *testing.T, leftOut ...string) {
	t.Helper()
	cluster.Await(t, "AlwaysPullImages", func() error {
		policy, err := s.pod("default")
		if err == nil && policy != corev1.PullAlways {
			err = fmt.Errorf("got imagePullPolicy %s, want Always", policy)
		}
		return err
	})
	const denied = `admission webhook "validate-fail.fastadmit.io" denied the request: DenyServiceExternalIPs: `
	cluster.Await(t, "DenyServiceExternalIPs", func() error { return cluster.WantError(s.service("default"), denied) })
	for _, namespace := range leftOut {
		if policy, err := s.pod(namespace); err != nil || policy != corev1.PullIfNotPresent {
			t.Errorf("namespace %s: got imagePullPolicy %s, %v, want IfNotPresent", namespace, policy, err)
		}
		if err := s.service(namespace); err != nil {
			t.Errorf("namespace %s: %v", namespace, err)
		}
	}
}

// apply applies manifests until the test ends. The stored objects must equal the printed ones,
// without defaults, because tools that compare them would show a difference.
func (s *stand) apply(t *testing.T, manifests string) {
	t.Helper()
	s.MustKubectl(t, manifests, "apply", "--dry-run=server", "-f", "-")
	s.MustKubectl(t, manifests, "apply", "-f", "-")
	t.Cleanup(func() {
		s.MustKubectl(t, manifests, "delete", "-f", "-")
		// The configurations are deleted first, because nobody answers their calls.
		cluster.Await(t, "the webhooks to go", func() error {
			_, err := s.pod("tenant")
			return errors.Join(err, s.service("default"), s.service("tenant"))
		})
	})
	if got := s.MustKubectl(t, manifests, "apply", "-f", "-"); strings.Count(got, " unchanged\n") != strings.Count(got, "\n") {
		t.Errorf("applied again, got %s, want unchanged", got)
	}
	type configuration struct {
		Kind     string
		Webhooks []any
	}
	var want []configuration
	for document := range strings.SplitSeq(manifests, "---\n") {
		want = append(want, configuration{})
		if err := yaml.Unmarshal([]byte(document), &want[len(want)-1]); err != nil {
			t.Fatal(err)
		}
	}
	stored := s.MustKubectl(t, manifests, "get", "-o", "yaml", "-f", "-")
	var got struct{ Items []configuration }
	if err := yaml.Unmarshal([]byte(stored), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Items, want) {
		t.Errorf("got stored\n%s\nwant\n%s", stored, manifests)
	}
}

// accepted applies the output for each plugin, and for all of them, as a dry run.
func (s *stand) accepted(t *testing.T) {
	limits := cluster.WriteFile(t, "limits.yaml", []byte(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Server, qps: 1, burst: 1}]
- name: PersistentVolumeLabel
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: PersistentVolumeLabelConfiguration, volumes: [{provider: gce, id: d, `+
		`labels: {a: b}}]}
- name: InitialResources
  configuration: {apiVersion: fastadmit.io/v1alpha1, kind: InitialResourcesConfiguration, source: {url: "http://127.0.0.1:1"}}
- name: ImagePolicyWebhook
  configuration: {imagePolicy: {kubeConfigFile: `+s.Kubeconfig(t)+`}}
`))
	ca := cluster.WriteFile(t, "ca.crt", s.authority.PEM)
	var names []string
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		names = append(names, plugin.Name)
	}
	for _, selection := range append(names, strings.Join(names, ",")) {
		for _, how := range [][]string{
			{"--namespace=other", "--service-name=webhook", "--service-port=65535", "--timeout-seconds=1"},
			{"--url=https://127.0.0.1:1/fastadmit/", "--ca-bundle-file=" + ca, "--timeout-seconds=30", "--name=admission.example.com"},
		} {
			printed := cluster.Manifests(t, append(how, "--enable-admission-plugins="+selection, "--admission-control-config-file="+
				limits)...)
			got := s.MustKubectl(t, printed, "apply", "--dry-run=server", "-f", "-")
			if want := strings.Count(printed, "\nkind: "); strings.Count(got, "created (server dry run)\n") != want {
				t.Errorf("%s %s: got %s, want %d created", selection, how, got, want)
			}
		}
	}
}

func (s *stand) byURL(t *testing.T) {
	f := cluster.StartFastadmit(t, cluster.Binary, s.authority, enabled)
	ca := cluster.WriteFile(t, "ca.crt", s.authority.PEM)
	s.apply(t, cluster.Manifests(t, enabled, "--url", f.URL, "--ca-bundle-file", ca, "--namespace=fastadmit"))
	s.awaitWorking(t, "fastadmit", "kube-system", "kube-node-lease")

	f.Kill()
	_, err := s.pod("default")
	if wrong := errors.Join(cluster.WantError(err, `failed calling webhook "mutate-fail.fastadmit.io"`),
		cluster.WantError(s.service("default"), `failed calling webhook "validate-fail.fastadmit.io"`)); wrong != nil {
		t.Error(wrong)
	}
	for _, namespace := range []string{"fastadmit", "kube-system", "kube-node-lease"} {
		if _, err := s.pod(namespace); err != nil {
			t.Errorf("nobody answers, and namespace %s has to wait for it: %v", namespace, err)
		}
	}
	// Rules are no wider than the plugins.
	if _, err := s.Client.CoreV1().ConfigMaps("default").Create(context.Background(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, dryRun); err != nil {
		t.Error(err)
	}
}

// byService registers by a service that has an address of this machine.
func (s *stand) byService(t *testing.T) {
	const address = "127.10.1.2"
	// The certificate is self-signed, and is also the CA bundle.
	certificate, encodedKey := cluster.SelfSigned(t, cluster.Serving(time.Now().Add(24*time.Hour), "fastadmit.fastadmit.svc"))
	cert, key := cluster.WriteFile(t, "tls.crt", certificate), cluster.WriteFile(t, "tls.key", encodedKey)
	f := cluster.StartFastadmit(t, cluster.Binary, s.authority, enabled,
		"--bind-address", address, "--tls-cert-file", cert, "--tls-private-key-file", key)
	at, err := url.Parse(f.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.MustKubectl(t, fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: fastadmit, namespace: fastadmit},
spec: {clusterIP: %s, ports: [{port: %s}]}}`, address, at.Port()), "apply", "-f", "-")
	s.apply(t, cluster.Manifests(t, enabled, "--service-port", at.Port(), "--ca-bundle-file", cert))
	s.awaitWorking(t, "fastadmit", "kube-system", "kube-node-lease")
}

// policies checks failure policies: requests pass or fail as each one says.
func (s *stand) policies(t *testing.T) {
	config := cluster.WriteFile(t, "fastadmit.yaml", []byte(`apiVersion: fastadmit.io/v1alpha1
kind: Configuration
enableAdmissionPlugins: [AlwaysPullImages, DenyServiceExternalIPs]
plugins: [{name: AlwaysPullImages, failurePolicy: Ignore}]
`))
	f := cluster.StartFastadmit(t, cluster.Binary, s.authority, "--config", config)
	s.apply(t, cluster.Manifests(t, "--config", config, "--url", f.URL, "--ca-bundle-file",
		cluster.WriteFile(t, "ca.crt", s.authority.PEM)))
	s.awaitWorking(t)

	f.Kill()
	if policy, err := s.pod("default"); err != nil || policy != corev1.PullIfNotPresent {
		t.Errorf("got imagePullPolicy %s, %v, want IfNotPresent", policy, err)
	}
	if err := cluster.WantError(s.service("default"), `failed calling webhook "validate-fail.fastadmit.io"`); err != nil {
		t.Error(err)
	}
}

// selectors checks that no webhook is called where the common selector of all plugins does not
// match.
func (s *stand) selectors(t *testing.T) {
	config := cluster.WriteFile(t, "fastadmit.yaml", []byte(`apiVersion: fastadmit.io/v1alpha1
kind: Configuration
enableAdmissionPlugins: [AlwaysPullImages]
plugins: [{name: AlwaysPullImages, namespaceSelector: {matchLabels: {tenant: 'yes'}}}]
`))
	s.apply(t, cluster.Manifests(t, "--config", config, "--url", "https://"+testserver.FreeAddress(t)))
	cluster.Await(t, "the webhook", func() error {
		_, err := s.pod("tenant")
		return cluster.WantError(err, `failed calling webhook "mutate-fail.fastadmit.io"`)
	})
	if _, err := s.pod("default"); err != nil {
		t.Error(err)
	}
}

// options checks that no webhook is called where the options do not match.
func (s *stand) options(t *testing.T) {
	config := cluster.WriteFile(t, "fastadmit.yaml", fmt.Appendf(nil, `apiVersion: fastadmit.io/v1alpha1
kind: Configuration
enableAdmissionPlugins: [AlwaysPullImages, DenyServiceExternalIPs]
registration:
  name: admission.example.com
  labels: {app: fastadmit}
  annotations: {example.com/about: anything}
  clientConfig: {url: 'https://%s/base'}
  timeoutSeconds: 2
  matchPolicy: Exact
  namespaceSelector: {matchLabels: {tenant: 'yes'}}
  objectSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}
  matchConditions: [{name: no-pods, expression: 'request.resource.resource != "pods"'}]
  admissionReviewVersions: [v1beta1, v1]
`, testserver.FreeAddress(t)))
	s.apply(t, cluster.Manifests(t, "--config", config))
	cluster.Await(t, "the webhook", func() error {
		return cluster.WantError(s.service("tenant"), `failed calling webhook "validate-fail.admission.example.com"`)
	})
	_, err := s.pod("tenant")
	if err := errors.Join(err, s.service("default")); err != nil {
		t.Error(err)
	}
}

// dryRun checks that EventRateLimit does not count dry runs, which an API server sends because the
// webhook's sideEffects allow it.
func (s *stand) dryRun(t *testing.T) {
	flags := []string{"--enable-admission-plugins=EventRateLimit", "--admission-control-config-file", cluster.WriteFile(t, "limits.yaml",
		[]byte(`apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Namespace, qps: 1, burst: 1}]
`))}
	f := cluster.StartFastadmit(t, cluster.Binary, s.authority, flags...)
	printed := cluster.Manifests(t, append(flags, "--url", f.URL, "--ca-bundle-file", cluster.WriteFile(t, "ca.crt", s.authority.PEM))...)
	if !strings.Contains(printed, "sideEffects: NoneOnDryRun\n") {
		t.Fatalf("got\n%s\nwant sideEffects NoneOnDryRun", printed)
	}
	s.apply(t, printed)
	event := func(namespace string, options metav1.CreateOptions) error {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "e-", Namespace: namespace}}
		e.InvolvedObject.Namespace = namespace
		_, err := s.Client.CoreV1().Events(namespace).Create(context.Background(), e, options)
		return err
	}
	// More than one a second in a namespace is too many.
	cluster.Await(t, "EventRateLimit", func() error {
		return cluster.WantError(errors.Join(event("default", metav1.CreateOptions{}), event("default", metav1.CreateOptions{})),
			"limit reached")
	})
	for range 5 {
		if err := event("tenant", dryRun); err != nil {
			t.Fatal(err)
		}
	}
	if err := event("tenant", metav1.CreateOptions{}); err != nil {
		t.Errorf("after dry runs, which take nothing: %v", err)
	}
}

// TestStatic lets an API server read the configurations from files.
func TestStatic(t *testing.T) {
	authority := cluster.NewAuthority(t)
	f := cluster.StartFastadmit(t, cluster.Binary, authority, enabled)
	flags := []string{enabled, "--static", "--url", f.URL, "--namespace=fastadmit", "--ca-bundle-file",
		cluster.WriteFile(t, "ca.crt", authority.PEM)}
	folder := func(kind string) string {
		return filepath.Dir(cluster.WriteFile(t, "fastadmit.yaml", []byte(cluster.Manifests(t, append(flags, "--kind", kind)...))))
	}
	admission := cluster.WriteFile(t, "admission.yaml", fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, staticManifestsDir: %q}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, staticManifestsDir: %q}
`, folder("MutatingWebhookConfiguration"), folder("ValidatingWebhookConfiguration")))
	s := startStand(t, map[string]string{
		"feature-gates": "ManifestBasedAdmissionControlConfig=true", "admission-control-config-file": admission,
	}, authority)
	s.awaitWorking(t, "fastadmit", "kube-system", "kube-node-lease")

	// The API refuses configurations with that suffix.
	_, stderr, err := s.Kubectl(t, cluster.Manifests(t, flags...), "apply", "-f", "-")
	if err == nil || strings.Count(stderr, "are reserved for static manifest-based configurations") != 2 {
		t.Errorf("got %v, %s, want both refused", err, stderr)
	}
	none, err := s.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(none.Items) > 0 {
		t.Errorf("got %v, %v, want none", none, err)
	}
}
