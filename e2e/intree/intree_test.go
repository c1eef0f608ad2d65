// Package intree measures what a ValidatingAdmissionPolicy costs when kube-apiserver
// creates Pods: in-tree, in fastadmit, and in a webhook of controller-runtime. The
// environment variable FASTADMIT_COST is the number of Pods in each round; without it
// the test is skipped.
package intree

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	manifest = "../../bench/compare/policies/policy.yaml"
	rounds   = 5
	inFlight = 4

	webhookName = "pods.fastadmit.example.com"
)

// A stand is an API server, and what may be switched on in it.
type stand struct {
	*cluster.APIServer
	policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	pod     *corev1.Pod // for which the policy holds
	bad     *corev1.Pod
}

// A setting is who evaluates the policy.
type setting struct {
	name    string
	bind    bool               // kube-apiserver
	webhook *cluster.Fastadmit // or this program, which may be another's; nil for none
	hook    *admissionregistrationv1.ValidatingWebhookConfiguration
}

func TestCost(t *testing.T) {
	pods, _ := strconv.Atoi(os.Getenv("FASTADMIT_COST"))
	if pods == 0 {
		t.Skip("make compare-in-tree measures")
	}
	s := start(t)
	settings := append([]setting{{name: "no policy"}, {name: "in-tree", bind: true}}, startWebhooks(t)...)
	for _, dryRun := range []bool{true, false} {
		took := make([]costs, len(settings))
		for range rounds {
			for i := range settings {
				s.set(t, &settings[i])
				s.measure(t, &settings[i], &took[i], pods, dryRun)
			}
		}
		for i := range settings {
			t.Logf("dry run %t, %s: %s", dryRun, settings[i].name, &took[i])
		}
	}
}

// costs are what several rounds took.
type costs struct {
	api, webhook []time.Duration // processor time per Pod, in each round
	latencies    []time.Duration // of all Pods
}

// String returns medians.
func (c *costs) String() string {
	for _, of := range [][]time.Duration{c.api, c.webhook, c.latencies} {
		slices.Sort(of)
	}
	n := len(c.latencies)
	return fmt.Sprintf("p50 %s, p99 %s of %d Pods; processor time per Pod: kube-apiserver %s of %v, webhook %s of %v",
		c.latencies[n/2], c.latencies[n*99/100], n, c.api[rounds/2], c.api, c.webhook[rounds/2], c.webhook)
}

func start(t *testing.T) *stand {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{
		APIServer: cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{On: []string{"ValidatingAdmissionPolicy"}}),
		policy:    new(admissionregistrationv1.ValidatingAdmissionPolicy), binding: new(admissionregistrationv1.ValidatingAdmissionPolicyBinding),
	}
	policy, binding, _ := strings.Cut(strings.ReplaceAll(string(text), ".static.k8s.io", ".example.com"), "\n---\n")
	var review struct{ Request struct{ Object *corev1.Pod } }
	for text, into := range map[string]any{policy: s.policy, binding: s.binding, string(corpus.MustRead("pods-create-v1-1.json")): &review} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	s.pod = review.Request.Object
	s.pod.Namespace, s.pod.ManagedFields = "default", nil
	s.bad = s.pod.DeepCopy()
	delete(s.bad.Labels, "app")
	cluster.Await(t, "the namespace", func() error {
		_, err := s.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	if _, err := s.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), s.policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// startWebhooks builds and starts the programs that have the policy, as make compare
// does.
func startWebhooks(t *testing.T) []setting {
	t.Helper()
	const module = "../../bench/compare"
	dir, err := filepath.Abs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-C", module, "-o", dir+"/", "./contenders/fastadmit", "./contenders/controllerruntime")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("cannot build the webhooks: %v\n%s", err, out)
	}
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	manifests := filepath.Dir(cluster.WriteFile(t, "policy.yaml", text))
	config := cluster.WriteFile(t, "admission.yaml", fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: %q}
`, manifests))
	state := filepath.Dir(cluster.WriteFile(t, "cluster.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n")))
	authority := cluster.NewAuthority(t)
	cert, key := authority.Sign(t, cluster.Serving(time.Now().Add(24*time.Hour), "127.0.0.1"))
	files := []string{"--tls-cert-file=" + cluster.WriteFile(t, "tls.crt", cert), "--tls-private-key-file=" + cluster.WriteFile(t, "tls.key", key)}
	start := func(name, path string, arguments ...string) setting {
		f := cluster.RunFastadmit(t, slices.Concat([]string{filepath.Join(dir, name)}, arguments, files)...)
		return setting{name: name, webhook: f, hook: register(f.URL+path, authority)}
	}
	return []setting{
		start("fastadmit", "/validate", "serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0",
			"--enable-admission-plugins=ValidatingAdmissionPolicy", "--admission-control-config-file="+config, "--cluster-state-dir="+state),
		start("controllerruntime", "", "--work=policy"),
	}
}

// register returns the configuration of a webhook for new Pods.
func register(url string, authority *cluster.Authority) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: webhookName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: webhookName, Rules: cluster.Rules("CREATE", "", "v1", "pods"),
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: authority.PEM},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// set has the policy evaluated as the setting says, and waits until it is.
func (s *stand) set(t *testing.T, to *setting) {
	t.Helper()
	ctx, api := t.Context(), s.Client.AdmissionregistrationV1()
	_ = api.ValidatingAdmissionPolicyBindings().Delete(ctx, s.binding.Name, metav1.DeleteOptions{}) // which may not be there
	_ = api.ValidatingWebhookConfigurations().Delete(ctx, webhookName, metav1.DeleteOptions{})
	s.awaitDenial(t, "")
	var err error
	denial := ""
	switch {
	case to.bind:
		_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, s.binding, metav1.CreateOptions{})
		denial = "ValidatingAdmissionPolicy 'pods.example.com'"
	case to.webhook != nil:
		_, err = api.ValidatingWebhookConfigurations().Create(ctx, to.hook, metav1.CreateOptions{})
		denial = `admission webhook "` + webhookName + `" denied the request`
	}
	if err != nil {
		t.Fatal(err)
	}
	s.awaitDenial(t, denial)
}

// awaitDenial waits until the Pod for which the policy does not hold is denied with a
// text, or, if that is empty, is not.
func (s *stand) awaitDenial(t *testing.T, text string) {
	t.Helper()
	cluster.Await(t, "denial", func() error {
		err := s.create(t.Context(), s.bad, true)
		if text == "" {
			return err
		}
		return cluster.WantError(err, text)
	})
}

func (s *stand) create(ctx context.Context, pod *corev1.Pod, dryRun bool) error {
	var options metav1.CreateOptions
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err := s.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, options)
	return err
}

// measure creates so many Pods, and adds what that took.
func (s *stand) measure(t *testing.T, to *setting, took *costs, pods int, dryRun bool) {
	t.Helper()
	api, webhook := processorTime(t, s.PID()), time.Duration(0)
	if to.webhook != nil {
		webhook = processorTime(t, to.webhook.PID())
	}
	latencies := make([]time.Duration, pods)
	work := make(chan int)
	var group sync.WaitGroup
	for range inFlight {
		group.Go(func() {
			for i := range work {
				begin := time.Now()
				if err := s.create(t.Context(), s.pod, dryRun); err != nil {
					t.Error(err)
				}
				latencies[i] = time.Since(begin)
			}
		})
	}
	for i := range pods {
		work <- i
	}
	close(work)
	group.Wait()
	took.latencies = append(took.latencies, latencies...)
	took.api = append(took.api, (processorTime(t, s.PID())-api)/time.Duration(pods))
	if to.webhook != nil {
		webhook = processorTime(t, to.webhook.PID()) - webhook
	}
	took.webhook = append(took.webhook, webhook/time.Duration(pods))
	if !dryRun {
		err := s.Client.CoreV1().Pods(s.pod.Namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// processorTime returns the time that the threads of a process have had a processor
// for, in nanoseconds (Linux Documentation/scheduler/sched-stats.rst). Go's threads
// do not end.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	var sum time.Duration
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n)
	}
	return sum
}
