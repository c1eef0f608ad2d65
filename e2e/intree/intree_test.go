// Package intree measures what it costs kube-apiserver and webhooks when Pods are
// created: with a policy evaluated in-tree, in fastadmit, in a webhook of
// controller-runtime and in Gatekeeper, and with webhooks registered in several ways. The environment
// variable FASTADMIT_COST is the number of Pods in each round; without it the tests are
// skipped. FASTADMIT_COST_WRITE has the results written: the table into bench/README.md, what grows with the number
// of policies into bench/compare/growth.json.
package intree

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	rounds   = 5
	inFlight = 4
	// roundMax is when a round ends, if its Pods take longer.
	roundMax = 5 * time.Second
)

// A stand is an API server, and the settings that can be enabled in it.
type stand struct {
	*cluster.APIServer
	policy     *admissionregistrationv1.ValidatingAdmissionPolicy
	validating *admissionregistrationv1.ValidatingAdmissionPolicyBinding
	mutating   *admissionregistrationv1.MutatingAdmissionPolicyBinding
	pod        *corev1.Pod // that is measured
	bad        *corev1.Pod // for which the policy that validates does not hold
	probe      *corev1.Pod // which all settings that mutate change
}

func TestCost(t *testing.T) {
	pods, _ := strconv.Atoi(os.Getenv("FASTADMIT_COST"))
	if pods == 0 {
		t.Skip("make compare-cluster measures")
	}
	s := start(t)
	settings := s.allSettings(t)
	all := make([]row, len(settings))
	for _, dryRun := range []bool{true, false} {
		for range rounds {
			for i := range settings {
				s.set(t, &settings[i])
				s.measure(t, &settings[i], all[i].costs(dryRun), pods, dryRun)
			}
		}
	}
	for i := range settings {
		all[i].setting = &settings[i]
	}
	text := table(all, pods)
	t.Log("\n" + text)
	if os.Getenv("FASTADMIT_COST_WRITE") != "" {
		if err := write(text); err != nil {
			t.Fatal(err)
		}
	}
}

// In-tree policies: the validating one is that of make compare, the mutating one does what
// AlwaysPullImages does.
const (
	manifest = "../../bench/compare/policies/policy.yaml"
	pull     = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: pull.example.com}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: |
        Object{spec: Object.spec{
          initContainers: object.spec.initContainers.map(c, Object.spec.initContainers{name: c.name, imagePullPolicy: "Always"}),
          containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: pull.example.com}
spec: {policyName: pull.example.com}
`
)

// open starts an API server and reads the recorded Pod.
func open(t *testing.T, etcd *cluster.Etcd, o cluster.APIServerOptions) *stand {
	t.Helper()
	var review struct{ Request struct{ Object *corev1.Pod } }
	if err := yaml.Unmarshal(corpus.MustRead("pods-create-v1-1.json"), &review); err != nil {
		t.Fatal(err)
	}
	s := &stand{APIServer: etcd.StartAPIServer(t, o), pod: review.Request.Object}
	s.pod.Namespace, s.pod.ManagedFields = "default", nil
	cluster.Await(t, "the namespace", func() error {
		_, err := s.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return s
}

func start(t *testing.T) *stand {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, cluster.StartEtcd(t), cluster.APIServerOptions{On: []string{"ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"}})
	s.policy = new(admissionregistrationv1.ValidatingAdmissionPolicy)
	s.validating = new(admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	s.mutating = new(admissionregistrationv1.MutatingAdmissionPolicyBinding)
	var mutating admissionregistrationv1.MutatingAdmissionPolicy
	one, itsBinding, _ := strings.Cut(strings.ReplaceAll(string(text), ".static.k8s.io", ".example.com"), "\n---\n")
	other, othersBinding, _ := strings.Cut(pull, "\n---\n")
	for text, into := range map[string]any{one: s.policy, itsBinding: s.validating, other: &mutating, othersBinding: s.mutating} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	s.bad, s.probe = s.pod.DeepCopy(), s.pod.DeepCopy()
	delete(s.bad.Labels, "app")
	s.probe.Labels[probeLabel] = "true"
	api := s.Client.AdmissionregistrationV1()
	if _, err := api.ValidatingAdmissionPolicies().Create(t.Context(), s.policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.MutatingAdmissionPolicies().Create(t.Context(), &mutating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// set enables a setting and waits until it is in use.
func (s *stand) set(t *testing.T, to *setting) {
	t.Helper()
	ctx, api := t.Context(), s.Client.AdmissionregistrationV1()
	// They may not exist.
	_ = api.ValidatingAdmissionPolicyBindings().Delete(ctx, s.validating.Name, metav1.DeleteOptions{})
	_ = api.MutatingAdmissionPolicyBindings().Delete(ctx, s.mutating.Name, metav1.DeleteOptions{})
	_ = api.ValidatingWebhookConfigurations().Delete(ctx, hookName, metav1.DeleteOptions{})
	_ = api.MutatingWebhookConfigurations().Delete(ctx, hookName, metav1.DeleteOptions{})
	s.await(t, "", false)
	var err error
	switch {
	case to.hooks != nil && to.mutates:
		_, err = api.MutatingWebhookConfigurations().Create(ctx, to.mutatingHooks(), metav1.CreateOptions{})
	case to.hooks != nil:
		_, err = api.ValidatingWebhookConfigurations().Create(ctx, to.validatingHooks(), metav1.CreateOptions{})
	case to.mutates:
		_, err = api.MutatingAdmissionPolicyBindings().Create(ctx, s.mutating, metav1.CreateOptions{})
	case to.denial != "":
		_, err = api.ValidatingAdmissionPolicyBindings().Create(ctx, s.validating, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.await(t, to.denial, to.mutates)
}

// await waits until the Pod for which the policy does not hold is denied with a text,
// or, if that is empty, is not, and until the probe is changed or not.
func (s *stand) await(t *testing.T, denial string, mutates bool) {
	t.Helper()
	cluster.Await(t, "the setting", func() error {
		_, err := s.create(t.Context(), s.bad, true)
		if denial != "" {
			err = cluster.WantError(err, denial)
		}
		if err != nil {
			return err
		}
		got, err := s.create(t.Context(), s.probe, true)
		if err == nil && (got.Spec.Containers[0].ImagePullPolicy == corev1.PullAlways) != mutates {
			err = fmt.Errorf("the probe has the policy %s", got.Spec.Containers[0].ImagePullPolicy)
		}
		return err
	})
}

func (s *stand) create(ctx context.Context, pod *corev1.Pod, dryRun bool) (*corev1.Pod, error) {
	var options metav1.CreateOptions
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return s.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, options)
}

// measure creates so many Pods, or as many as roundMax allows, and adds what that took.
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
				if _, err := s.create(t.Context(), s.pod, dryRun); err != nil {
					t.Error(err)
				}
				latencies[i] = time.Since(begin)
			}
		})
	}
	sent := 0
	for begin := time.Now(); sent < pods && (sent < inFlight || time.Since(begin) < roundMax); sent++ {
		work <- sent
	}
	close(work)
	group.Wait()
	pods = sent
	took.latencies = append(took.latencies, latencies[:pods]...)
	took.api = append(took.api, (processorTime(t, s.PID())-api)/time.Duration(pods))
	if to.webhook != nil {
		webhook = processorTime(t, to.webhook.PID()) - webhook
	}
	took.webhook = append(took.webhook, webhook/time.Duration(pods))
	if !dryRun {
		err := s.Client.CoreV1().Pods(s.pod.Namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
			metav1.ListOptions{})
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
