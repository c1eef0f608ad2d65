// Package node installs fastadmit on a real cluster of one machine, with kubelet, containerd,
// kube-proxy and CoreDNS, by docs/operations.md. It sends a steady stream of requests during events
// such as upgrades and reboots, and counts their results.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/stream"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

const (
	// inNamespace is set by node/enter.
	inNamespace = "FASTADMIT_E2E_NODE"

	// every is the time between two bursts. It makes 50 requests a second, because a whole cluster
	// shares two processors.
	every = 200 * time.Millisecond

	// around is how long the stream runs before and after the event.
	around = 3 * time.Second

	// patience is how long kubectl waits for something.
	patience = "--timeout=3m"

	// noticed bounds the time until no call goes to a container that has ended: the kubelet looks
	// once a second, and controllers and kube-proxy need another second.
	noticed = 3 * time.Second
)

// enabled are the plugins that a stream needs.
const enabled = "plugins: {DefaultTolerationSeconds: {}, LimitPodHardAntiAffinityTopology: {}}\n"

// A test is an administrator of fastadmit on a real node.
type test struct {
	*realNode
	*walkthrough.Admin
	stream *stream.Stream
}

// An event is what happens during a stream.
type event struct {
	name string
	// happen makes it happen. It returns how many requests may be lost because Kubernetes makes
	// that unavoidable.
	happen func(s *test, t *testing.T) (lostMax int)
}

var events = []event{
	{"nothing", (*test).nothing},
	{"plugins changed", (*test).pluginsChanged},
	{"pods and workloads restarted", (*test).allRestarted},
	{"policy tried and promoted", (*test).promoted},
	{"helm upgrade of the pods", (*test).upgraded},
	{"rolling restart", (*test).restarted},
	{"certificate lost and healed", (*test).certificateLost},
	{"scaled by load", (*test).scaledByLoad},
	{"node drained", (*test).drained},
	{"cluster DNS down", (*test).dnsDown},
	{"API server killed", (*test).apiServerKilled},
	{"replica killed", (*test).replicaKilled},
	{"scaled to zero and back", (*test).scaledToZero},
	{"node rebooted", (*test).rebooted},
}

func TestNode(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		t.Skip("make e2e-node runs this, in a network namespace")
	}
	n := startNode(t)
	s := &test{realNode: n, Admin: walkthrough.New(t, n.kubeconfig)}
	s.verifyRelease(t)
	n.MustKubectl(t, "", "create", "namespace", stream.Tenant)
	t.Run("kustomization", s.kustomization)
	s.defineMonitoring(t)
	s.Document = strings.ReplaceAll(s.Document, " deploy/chart ", " "+chartOf(before)+" ")
	s.Values(t, preset(t, "monitoring.yaml")+"shutdownDelaySeconds: 2\n"+enabled)
	s.Does(t, "--create-namespace -f values.yaml")
	if err := s.works(); err != nil {
		t.Fatalf("when helm says that it is installed: %v", err)
	}
	var rows []tally.Loss
	during := func(e event) {
		t.Run(strings.ReplaceAll(e.name, " ", "-"), func(t *testing.T) { rows = append(rows, s.try(t, &e)) })
	}
	during(event{"upgraded from another release", (*test).upgradedFromBefore})
	during(event{"rolled back, upgraded again", (*test).rolledBack})
	t.Run("monitored", s.monitored)
	t.Run("workload", s.workload)
	t.Run("migrated", s.migrated)
	for _, e := range events {
		during(e)
	}
	t.Run("removed", s.removed)
	t.Logf("what is lost:\n%s", tally.LossTable(rows))
}

// works returns why fastadmit does not do yet what a stream expects.
func (s *test) works() error {
	create := func(unwanted bool) error {
		pod, err := s.Client.CoreV1().Pods(stream.Tenant).Create(context.Background(), stream.NewPod("p", unwanted),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(pod.Spec.Tolerations) == 0 {
			err = errors.New("got no tolerations")
		}
		return err
	}
	return errors.Join(create(false), cluster.WantError(create(true), "denied the request: LimitPodHardAntiAffinityTopology: "))
}

// try makes an event happen during a stream, and counts.
func (s *test) try(t *testing.T, e *event) tally.Loss {
	cluster.Await(t, "the webhooks to be called", s.works)
	s.await(t, 2)
	s.stream = stream.Start(s.APIServer, every)
	defer s.stream.Stop()
	defer s.forget(t)
	time.Sleep(around)
	lostMax := e.happen(s, t)
	time.Sleep(around)
	s.stream.Stop()
	row := s.stream.Result(t, e.name)
	row.LostMax = lostMax
	if row.Lost > lostMax || row.MutationsMissed > 0 || row.ValidationsMissed > 0 {
		t.Errorf("got %+v", row)
	}
	return row
}

// forget removes the objects of a stream that a failure ended.
func (s *test) forget(t *testing.T) {
	err := s.Client.CoreV1().Pods(stream.Tenant).DeleteCollection(context.Background(),
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{})
	if err != nil {
		t.Error(err)
	}
}

// await waits until the Deployment has so many pods and all are ready.
func (s *test) await(t *testing.T, replicas int32) {
	t.Helper()
	cluster.Await(t, "the pods", func() error {
		d, err := s.Client.AppsV1().Deployments("fastadmit").Get(context.Background(), "fastadmit", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := d.Status; got.Replicas != replicas || got.ReadyReplicas != replicas || got.ObservedGeneration != d.Generation {
			return fmt.Errorf("got %d pods, %d of them ready, want %d", got.Replicas, got.ReadyReplicas, replicas)
		}
		return nil
	})
}

// pods returns the pods with these labels, except those that are terminating.
func (s *test) pods(t *testing.T, namespace, labels string) (pods []corev1.Pod) {
	t.Helper()
	list, err := s.Client.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

const ours = "app.kubernetes.io/name=fastadmit"

// names returns the names of fastadmit's pods.
func (s *test) names(t *testing.T) string {
	t.Helper()
	var names []string
	for _, p := range s.pods(t, "fastadmit", ours) {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (s *test) nothing(*testing.T) int { return 0 }

// pluginsChanged enables a plugin that needs no restart of the pods, and whose rules are covered by
// the others'. It only mutates: pods read the change at different times, and one could deny what
// another did not mutate yet.
func (s *test) pluginsChanged(t *testing.T) int {
	before := s.names(t)
	with := func(configured string) string {
		return strings.Replace(enabled, "{DefaultToleration", "{ExtendedResourceToleration: "+configured+", DefaultToleration", 1)
	}
	s.Values(t, with("{}"))
	s.Does(t, "--reset-then-reuse-values")
	pod := stream.NewPod("p", false)
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	pod, err := s.Client.CoreV1().Pods(stream.Tenant).Create(context.Background(), pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil || !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "example.com/gpu" }) {
		t.Errorf("when helm says that a plugin was added: got %v, %v, want its toleration", pod.Spec.Tolerations, err)
	}
	s.Values(t, with("null"))
	s.Does(t, "--reset-then-reuse-values")
	if after := s.names(t); after != before {
		t.Errorf("got pods %s, want those there were, %s", after, before)
	}
	return 0
}

// upgraded changes the pods.
func (s *test) upgraded(t *testing.T) int {
	before := s.names(t)
	s.Values(t, "podAnnotations: {rolled: 'yes'}")
	s.Does(t, "--reset-then-reuse-values")
	if after := s.names(t); after == before {
		t.Errorf("got pods %s, want others", after)
	}
	return 0
}

func (s *test) restarted(t *testing.T) int {
	s.MustKubectl(t, "", "rollout", "restart", "deployment/fastadmit", "-n", "fastadmit")
	s.MustKubectl(t, "", "rollout", "status", "deployment/fastadmit", "-n", "fastadmit", patience)
	return 0
}

// certificateLost deletes the Secret of the certificate and its authority. helm upgrade makes an empty one, and the pods write
// into it what they have in memory.
func (s *test) certificateLost(t *testing.T) int {
	s.MustKubectl(t, "", "delete", "secret", "fastadmit-certificate", "-n", "fastadmit")
	s.Does(t, "--reset-then-reuse-values")
	cluster.Await(t, "the certificate to be in the Secret", func() error {
		secret, err := s.Client.CoreV1().Secrets("fastadmit").Get(context.Background(), "fastadmit-certificate", metav1.GetOptions{})
		if err == nil && len(secret.Data) == 0 {
			err = errors.New("it has no data")
		}
		return err
	})
	return 0
}

// drained drains the only node. The first pod is evicted and cannot start elsewhere; the
// PodDisruptionBudget keeps the second.
func (s *test) drained(t *testing.T) int {
	stdout, stderr, err := s.Kubectl(t, "", "drain", nodeName, "--ignore-daemonsets", "--delete-emptydir-data",
		"--pod-selector", ours, "--timeout=15s")
	if err == nil || !strings.Contains(stderr, "disruption budget") {
		t.Errorf("got %v: %s%s, want the PodDisruptionBudget to hold the last pod", err, stdout, stderr)
	}
	s.MustKubectl(t, "", "uncordon", nodeName)
	s.await(t, 2)
	return 0
}

// dnsDown restarts fastadmit while names cannot be looked up.
func (s *test) dnsDown(t *testing.T) int {
	s.MustKubectl(t, "", "scale", "deployment/coredns", "-n", "kube-system", "--replicas=0")
	s.MustKubectl(t, "", "wait", "pod", "-l", "app=coredns", "-n", "kube-system", "--for=delete", patience)
	s.restarted(t)
	s.MustKubectl(t, "", "scale", "deployment/coredns", "-n", "kube-system", "--replicas=1")
	s.MustKubectl(t, "", "rollout", "status", "deployment/coredns", "-n", "kube-system", patience)
	return 0
}

// apiServerKilled kills the API server. Ending it with SIGTERM would take a minute, because of the
// stream and the node's watches.
func (s *test) apiServerKilled(*testing.T) int {
	s.stream.SetDown(true)
	s.Kill()
	s.StartAgain()
	s.stream.SetDown(false)
	return 0
}

// replicaKilled kills a container, which the kubelet restarts. Requests in flight are lost, and
// those that arrive before kube-proxy notices.
func (s *test) replicaKilled(t *testing.T) int {
	pid := 0
	for line := range strings.Lines(s.ctr(t, "tasks", "ls")) {
		var id, state string
		var found int
		if _, err := fmt.Sscan(line, &id, &found, &state); err != nil {
			continue // the line with the headings
		}
		if command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", found)); strings.HasPrefix(string(command), "/fastadmit\x00serve") {
			pid = found
		}
	}
	if pid == 0 {
		t.Fatal("got no container of fastadmit")
	}
	sent := s.stream.Count()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(noticed)
	sent = s.stream.Count() - sent
	s.await(t, 2)
	return sent + stream.PerBurst
}

// scaledToZero removes all pods. With failurePolicy Fail nothing is stored without a review.
// Afterwards everything works as before.
func (s *test) scaledToZero(t *testing.T) int {
	sent := s.stream.Count()
	s.Does(t, "kubectl scale")
	s.await(t, 0)
	time.Sleep(around)
	s.MustKubectl(t, "", "scale", "deployment/fastadmit", "-n", "fastadmit", "--replicas=2")
	cluster.Await(t, "the webhooks to be called again", s.works)
	s.await(t, 2)
	return s.stream.Count() - sent
}

// rebooted cuts the power of the machine, and starts it again.
func (s *test) rebooted(t *testing.T) int {
	s.stream.SetDown(true)
	s.Kill()
	s.stopMachine(t)
	sent := s.stream.Count()
	s.StartAgain()
	s.startMachine()
	cluster.Await(t, "the webhooks to be called again", s.works)
	s.stream.SetDown(false)
	s.await(t, 2)
	return s.stream.Count() - sent
}

// workload runs pods that fastadmit changed.
func (s *test) workload(t *testing.T) {
	s.MustKubectl(t, `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"}, "spec": {
  "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
    "containers": [{"name": "web", "image": "localhost/pause:e2e"}]}}}}`, "apply", "-f", "-")
	s.MustKubectl(t, "", "rollout", "status", "deployment/web", patience)
	for _, p := range s.pods(t, "default", "app=web") {
		if len(p.Spec.Tolerations) == 0 {
			t.Errorf("pod %s: got no tolerations", p.Name)
		}
	}
}

// kustomization installs and removes the kustomization, for users without Helm.
func (s *test) kustomization(t *testing.T) {
	const example = "../../deploy/kustomize/example" // it names the image that docs/operations.md builds
	s.MustKubectl(t, "", "apply", "-k", example)
	s.MustKubectl(t, "", "wait", "--for=create", "validatingwebhookconfiguration/fastadmit.io", patience)
	s.await(t, 2)
	s.MustKubectl(t, "", "delete", "--ignore-not-found", "--wait", "-k", example)
	s.removedAll(t)
}

// removed uninstalls the release, and checks that nothing is left.
func (s *test) removed(t *testing.T) {
	s.Does(t, "helm uninstall")
	s.MustKubectl(t, "", "delete", "namespace", "fastadmit")
	s.removedAll(t)
}

// removedAll waits until there is nothing of fastadmit any more.
func (s *test) removedAll(t *testing.T) {
	t.Helper()
	cluster.Await(t, "everything to go", func() error {
		const kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings,namespaces"
		stdout, stderr, err := s.Kubectl(t, "", "get", kinds, "-l", ours, "-o", "name")
		if stdout != "" {
			err = fmt.Errorf("got %s%s", stdout, stderr)
		}
		return err
	})
}
