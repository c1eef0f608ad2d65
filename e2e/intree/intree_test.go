// Package intree measures what a ValidatingAdmissionPolicy costs kube-apiserver: in
// itself, and when it calls fastadmit, which has the same policy. With FASTADMIT_COST
// set to how many Pods are created in each round; otherwise it is skipped.
package intree

import (
	"context"
	"fmt"
	"os"
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
)

// A stand is an API server, and what may be switched on in it.
type stand struct {
	*cluster.APIServer
	policy  *admissionregistrationv1.ValidatingAdmissionPolicy
	binding *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	webhook *admissionregistrationv1.ValidatingWebhookConfiguration
	pod     *corev1.Pod // for which the policy holds
	bad     *corev1.Pod
}

func TestCost(t *testing.T) {
	pods, _ := strconv.Atoi(os.Getenv("FASTADMIT_COST"))
	if pods == 0 {
		t.Skip("make compare-in-tree measures")
	}
	s := start(t)
	settings := []struct {
		name        string
		bind, calls bool
	}{{name: "no policy"}, {name: "in-tree", bind: true}, {name: "fastadmit", calls: true}}
	took := make(map[string][]time.Duration)
	for range rounds {
		for _, setting := range settings {
			s.set(t, setting.bind, setting.calls)
			took[setting.name] = append(took[setting.name], s.measure(t, pods))
		}
	}
	for _, setting := range settings {
		slices.Sort(took[setting.name])
		t.Logf("%s: kube-apiserver takes %s of processor time for a Pod, of %v", setting.name, took[setting.name][rounds/2], took[setting.name])
	}
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
	s.webhook = startWebhook(t, string(text))
	cluster.Await(t, "the namespace", func() error {
		_, err := s.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	if _, err := s.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), s.policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// startWebhook starts fastadmit with the policy and returns how it is called.
func startWebhook(t *testing.T, manifest string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	t.Helper()
	dir := filepath.Dir(cluster.WriteFile(t, "policy.yaml", []byte(manifest)))
	config := cluster.WriteFile(t, "admission.yaml", fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: %q}
`, dir))
	state := filepath.Dir(cluster.WriteFile(t, "cluster.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n")))
	authority := cluster.NewAuthority(t)
	f := cluster.StartFastadmit(t, cluster.Binary, authority, "--enable-admission-plugins=ValidatingAdmissionPolicy",
		"--admission-control-config-file="+config, "--cluster-state-dir="+state)
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "fastadmit"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "pods.fastadmit.example.com", Rules: cluster.Rules("CREATE", "", "v1", "pods"),
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new(f.URL + "/validate"), CABundle: authority.PEM},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

// set has the API server evaluate the policy, or call fastadmit, or do neither, and
// waits until it does.
func (s *stand) set(t *testing.T, bind, calls bool) {
	t.Helper()
	ctx, api := t.Context(), s.Client.AdmissionregistrationV1()
	_ = api.ValidatingAdmissionPolicyBindings().Delete(ctx, s.binding.Name, metav1.DeleteOptions{}) // which may not be there
	_ = api.ValidatingWebhookConfigurations().Delete(ctx, s.webhook.Name, metav1.DeleteOptions{})
	s.awaitDenial(t, "")
	var err error
	denial := ""
	switch {
	case bind:
		_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, s.binding, metav1.CreateOptions{})
		denial = "ValidatingAdmissionPolicy 'pods.example.com'"
	case calls:
		_, err = api.ValidatingWebhookConfigurations().Create(ctx, s.webhook, metav1.CreateOptions{})
		denial = `admission webhook "pods.fastadmit.example.com" denied the request`
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
		err := s.create(t.Context(), s.bad)
		if text == "" {
			return err
		}
		return cluster.WantError(err, text)
	})
}

func (s *stand) create(ctx context.Context, pod *corev1.Pod) error {
	_, err := s.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// measure creates so many Pods, and returns the processor time of kube-apiserver for
// one.
func (s *stand) measure(t *testing.T, pods int) time.Duration {
	t.Helper()
	before := s.processorTime(t)
	work := make(chan struct{})
	var group sync.WaitGroup
	for range inFlight {
		group.Go(func() {
			for range work {
				if err := s.create(t.Context(), s.pod); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range pods {
		work <- struct{}{}
	}
	close(work)
	group.Wait()
	return (s.processorTime(t) - before) / time.Duration(pods)
}

// processorTime reads what Linux counts, in hundredths of a second.
func (s *stand) processorTime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	if err != nil {
		t.Fatal(err)
	}
	_, behind, _ := strings.Cut(string(text), ") ")
	var sum int64
	for _, field := range strings.Fields(behind)[11:13] { // utime and stime, proc_pid_stat(5)
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return time.Duration(sum) * 10 * time.Millisecond
}
