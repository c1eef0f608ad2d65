// Package loss sends a steady stream of requests while something happens to fastadmit, and counts
// their results. A real API server calls two replicas through a Service. Each replica has an
// address of its own, in a network namespace. The test does the work of the kubelet and the
// endpoint slice controller.
package loss

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/stream"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

const (
	// testserver has the plugin Steady, which gives the replicas a known capacity.
	testserver = "../.cache/testserver"

	// enabled is a plugin that mutates Pods, and one that denies some.
	enabled = "DefaultTolerationSeconds,LimitPodHardAntiAffinityTopology"

	// before and after are how long the stream runs before and after the event.
	before = 2 * time.Second
	after  = 2 * time.Second

	// idleMax is how many idle connections an API server keeps for each webhook (k8s.io/client-go
	// transport/cache.go). webhooks is how many webhooks it calls here.
	idleMax  = 25
	webhooks = 2
	// webhookTimeout is how long an API server waits for an answer: the value that fastadmit
	// manifests prints, which is Kubernetes' default.
	webhookTimeout = 10 * time.Second
)

// A stand is an API server and fastadmit's pods.
type stand struct {
	*pods
	stream *stream.Stream
}

// An event is what happens during a stream.
type event struct {
	name string
	// happen makes it happen. It returns how many requests may be lost because Kubernetes makes
	// that unavoidable.
	happen func(s *stand, t *testing.T) (lostMax int)
	every  time.Duration // between bursts, stream.BurstEvery if 0
	binary string        // of the pods, cluster.Binary if empty
	flags  []string      // of the pods
	isLong bool          // only the full run makes it happen
}

const (
	// capacity is how many requests a second two replicas can answer that admit so many at once, if
	// each takes 200 ms in the plugin Steady.
	capacity    = 2 * inFlightMax * 5
	inFlightMax = 4

	// overload is three times the capacity, in requests a second.
	overload = 3 * capacity
	// A short overload can be answered before API servers give up, a long one cannot.
	shortOverload, longOverload = before, 10 * time.Second
)

var events = []event{
	{name: "nothing", happen: (*stand).nothing},
	{name: "rolling restart", happen: (*stand).rollingRestart},
	{name: "certificates rotated", happen: (*stand).certificatesRotated},
	{name: "configuration changed", happen: (*stand).configurationChanged},
	{name: "connections of one second", happen: (*stand).connectionsEnd, flags: []string{"--max-connection-age=1s"}},
	overloaded(shortOverload),
	overloaded(longOverload),
	{name: "API server restarted", happen: (*stand).apiServerRestarted},
	{name: "replica killed", happen: (*stand).replicaKilled},
	{name: "replica frozen", happen: (*stand).replicaFrozen},
}

func TestLoss(t *testing.T) {
	if err := lockNetwork(t); err != nil {
		row := tally.Loss{Event: "none was tried", Skipped: err.Error()}
		if err := row.Write(0); err != nil {
			t.Fatal(err)
		}
		t.Skipf("no request was sent: %v", err)
	}
	s := &stand{pods: &pods{authority: cluster.NewAuthority(t), files: t.TempDir()}}
	s.api = cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{
		Flags: map[string]string{"enable-aggregator-routing": "true"},
	})
	s.prepare(t)
	s.configure(t, enabled)
	s.write(t, s.certificate(t))
	s.register(t, s.authority.PEM)
	for i, e := range events {
		if e.isLong && os.Getenv(tally.Full) == "" {
			continue
		}
		t.Run(strings.ReplaceAll(e.name, " ", "-"), func(t *testing.T) { s.try(t, i, &e) })
	}
}

// configure writes the configuration of the pods.
func (s *stand) configure(t *testing.T, plugins string) {
	t.Helper()
	s.write(t, map[string][]byte{"config.yaml": fmt.Appendf(nil,
		"apiVersion: fastadmit.io/v1alpha1\nkind: Configuration\nenableAdmissionPlugins: [%s]\n", plugins)})
}

// register registers the pods by their Service, with the bundle for their certificates.
func (s *stand) register(t *testing.T, bundle []byte) {
	t.Helper()
	s.api.MustKubectl(t, cluster.Manifests(t, "--enable-admission-plugins="+enabled, "--service-port", fmt.Sprint(servicePort),
		"--ca-bundle-file", cluster.WriteFile(t, "ca.crt", bundle)), "apply", "-f", "-")
}

// works returns why the API server does not call the pods yet.
func (s *stand) works() error {
	create := func(unwanted bool) error {
		pod, err := s.api.Client.CoreV1().Pods(stream.Tenant).Create(context.Background(), stream.NewPod("p", unwanted),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && len(pod.Spec.Tolerations) == 0 {
			err = errors.New("got no tolerations")
		}
		return err
	}
	return errors.Join(create(false), cluster.WantError(create(true), "denied the request: LimitPodHardAntiAffinityTopology: "))
}

// try makes an event happen to two new replicas, and counts.
func (s *stand) try(t *testing.T, place int, e *event) {
	defer s.clear(t)
	for range 2 {
		s.start(t, cmp.Or(e.binary, cluster.Binary), e.flags...)
	}
	cluster.Await(t, "the webhooks to be called", s.works)
	s.stream = stream.Start(s.api, cmp.Or(e.every, stream.BurstEvery))
	defer s.stream.Stop()
	time.Sleep(before)
	for _, n := range s.all {
		// An API server opens a connection to either replica, so at first all may go to one.
		cluster.Await(t, "a call of pod "+n.address, func() error {
			if n.Metric(t, `fastadmit_request_duration_seconds_count{webhook="mutate/fail"}`) == 0 {
				return errors.New("there was none")
			}
			return nil
		})
	}
	lostMax := e.happen(s, t)
	s.stream.Stop()
	row := s.stream.Result(t, e.name)
	row.LostMax = lostMax
	if err := row.Write(place); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", row)
	if row.Lost > lostMax || row.MutationsMissed > 0 || row.ValidationsMissed > 0 {
		t.Errorf("got %+v", row)
	}
}

// clear removes all pods, so that the next row begins with new connections.
func (s *stand) clear(t *testing.T) {
	for _, n := range s.all {
		n.Kill()
	}
	s.all = nil
	s.publish(t)
}

func (s *stand) nothing(*testing.T) int {
	time.Sleep(after)
	return 0
}

// overloaded sends more requests than the replicas can answer. Refused requests are repeated, and
// get an answer if there is capacity in time.
func overloaded(length time.Duration) event {
	return event{
		name:   fmt.Sprintf("three times the capacity, %s", length),
		isLong: length == longOverload,
		every:  time.Second * stream.PerBurst / overload, binary: testserver,
		flags: []string{"--enable-admission-plugins=" + enabled + ",Steady", fmt.Sprintf("--max-requests-inflight=%d", inFlightMax)},
		happen: func(s *stand, t *testing.T) int {
			time.Sleep(length - before)
			s.stream.Stop()
			refused := 0
			for _, n := range s.all {
				refused += n.Metric(t, `fastadmit_refused_requests_total{code="429"}`)
			}
			if t.Logf("%d calls were refused", refused); refused < s.stream.Count() {
				t.Errorf("got %d calls refused, want more than there were requests, %d", refused, s.stream.Count())
			}
			// At least half of the capacity must be used: API servers repeat a request only once a
			// second, and refusals cost time too.
			answered := int((length + webhookTimeout).Seconds()) * capacity / 2
			if length == shortOverload {
				answered = s.stream.Count()
			}
			return s.stream.Count() - answered
		},
	}
}

// rollingRestart replaces one replica after the other, each by one that is
// ready before, as a Deployment with maxUnavailable 0 does.
func (s *stand) rollingRestart(t *testing.T) int {
	for _, n := range slices.Clone(s.all) {
		s.start(t, cluster.Binary)
		s.delete(t, n)
	}
	return 0
}

// certificatesRotated replaces the authority: first API servers get the new one, then servers get
// new certificates, then the old one is removed.
func (s *stand) certificatesRotated(t *testing.T) int {
	old := s.authority
	s.authority = cluster.NewAuthority(t)
	s.register(t, append(bytes.Clone(old.PEM), s.authority.PEM...))
	time.Sleep(3 * time.Second) // until API servers use it
	s.reloaded(t, func() { s.write(t, s.certificate(t)) })
	s.register(t, s.authority.PEM)
	time.Sleep(after)
	return 0
}

// configurationChanged switches a plugin on and off.
func (s *stand) configurationChanged(t *testing.T) int {
	for range 5 {
		s.reloaded(t, func() { s.configure(t, enabled+",AlwaysAdmit") })
		s.reloaded(t, func() { s.configure(t, enabled) })
	}
	return 0
}

// reloaded changes files, and waits until all replicas have read them.
func (s *stand) reloaded(t *testing.T, change func()) {
	t.Helper()
	const reloads = "fastadmit_config_reload_successes_total"
	counts := make([]int, len(s.all))
	for i, n := range s.all {
		counts[i] = n.Metric(t, reloads)
	}
	change()
	for i, n := range s.all {
		cluster.Await(t, "files to be read", func() error {
			if n.Metric(t, reloads) == counts[i] {
				return errors.New("they are not")
			}
			return nil
		})
	}
}

// connectionsEnd waits until all connections have been replaced some times.
func (s *stand) connectionsEnd(t *testing.T) int {
	const times = 4
	for _, n := range s.all {
		count := func() int { return connections(t, n.PID()) }
		begin := count()
		cluster.Await(t, "new connections", func() error {
			if got, want := count()-begin, times*webhooks; got < want {
				return fmt.Errorf("got %d, want %d", got, want)
			}
			return nil
		})
	}
	time.Sleep(after)
	return 0
}

func (s *stand) apiServerRestarted(*testing.T) int {
	s.stream.SetDown(true)
	s.api.Restart()
	s.stream.SetDown(false)
	time.Sleep(after)
	return 0
}

// replicaKilled kills a replica, and its container is restarted. Requests in flight are lost, and
// those that an API server sends there before it notices.
func (s *stand) replicaKilled(t *testing.T) int {
	n, sent := s.all[0], s.stream.Count()
	n.Kill()
	time.Sleep(noticeDelay)
	n.ready = false
	s.publish(t)
	time.Sleep(endpointLag)
	sent = s.stream.Count() - sent
	s.run(t, n)
	time.Sleep(after)
	return sent + stream.PerBurst
}

// replicaFrozen stops a replica without ending it, so the system still accepts its connections.
// Requests sent there are lost until its readiness probe has failed often enough, and then one
// request for each remaining connection.
func (s *stand) replicaFrozen(t *testing.T) int {
	n, sent := s.all[0], s.stream.Count()
	n.Signal(t, syscall.SIGSTOP)
	for failures := 0; failures < probeFailures; {
		next := time.Now().Add(probePeriod)
		if err := n.probe(); err != nil {
			failures++
		}
		time.Sleep(time.Until(next))
	}
	n.ready = false
	s.publish(t)
	time.Sleep(endpointLag)
	sent = s.stream.Count() - sent
	// Requests that were sent there get no answer in time, though they might get one later.
	time.Sleep(webhookTimeout)
	n.Signal(t, syscall.SIGCONT)
	cluster.Await(t, "readiness", n.probe)
	n.ready = true
	s.publish(t)
	return sent + stream.PerBurst + webhooks*idleMax
}
