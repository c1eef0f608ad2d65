package resourcequota

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// create creates a Pod that requests half a CPU.
func create(t testing.TB, chain *admission.Chain) (admission.Outcome, string) {
	response, outcome := admissiontest.Respond(t, chain, admission.Validate, admissiontest.Body(codec.Create, "v1/pods", podBody), nil)
	return outcome, string(response)
}

// createMany creates this many Pods with each of the chains, all at once. It returns how
// many are allowed; the others must be denied because of the quota.
func createMany(t *testing.T, pods int, chains ...*admission.Chain) int64 {
	t.Helper()
	var allowed atomic.Int64
	var all sync.WaitGroup
	for _, chain := range chains {
		for range pods {
			all.Go(func() {
				switch outcome, response := create(t, chain); {
				case outcome == admission.OutcomeAllowed:
					allowed.Add(1)
				case !strings.Contains(response, "exceeded quota: "):
					t.Errorf("got %s, %s", outcome, response)
				}
			})
		}
	}
	all.Wait()
	return allowed.Load()
}

// TestReplicasInFiles has replicas that read quotas from files, where writes are serialized,
// and another writer of the same quotas.
func TestReplicasInFiles(t *testing.T) {
	objects := []runtime.Object{
		quota(home, "cpu", resources("requests.cpu", "30"), resources("requests.cpu", "0")),
		quota(home, "pods", resources("pods", "100"), resources("pods", "0")),
	}
	state, err := cluster.New(cluster.Options{Objects: objects})
	if err != nil {
		t.Fatal(err)
	}
	chains := []*admission.Chain{chainIn(t, state), chainIn(t, state), chainIn(t, state)}
	quotas := cluster.ResourceQuotas.In(state.View(cluster.ResourceQuotas.Watched(), cluster.ResourceQuotas.CalledStatus("update")))
	ctx, cancel := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() { // corrects the usage, as kube-controller-manager does
		for ctx.Err() == nil {
			all, err := quotas.List(home)
			if err != nil {
				t.Error(err)
			}
			for _, q := range all {
				if _, err := quotas.UpdateStatus(ctx, q); err != nil && !apierrors.IsConflict(err) {
					t.Error(err)
				}
			}
			_, _ = create(t, chains[0]) // takes as long as a call
		}
	})
	allowed := createMany(t, 100, chains...)
	cancel()
	other.Wait()
	used := func(name string, resource corev1.ResourceName) int64 {
		q, _ := quotas.Cached(home, name)
		quantity := q.Status.Used[resource]
		return quantity.MilliValue()
	}
	if got := used("cpu", "requests.cpu"); got != 30_000 || allowed > 60 {
		t.Errorf("got %d Pods and %d m used, want at most 60 and all of the 30", allowed, got)
	}
	// A Pod that fits into the first quota but not into the second stays charged to the
	// first. The controller corrects this.
	if got := used("pods", "pods"); got < 60_000 || got > 100_000 {
		t.Errorf("got %d m Pods, want 60 or some more", got)
	}
}

// TestReplicas has replicas that notice each other's writes only by conflicts.
func TestReplicas(t *testing.T) {
	a := newAPIServer(t, quota(home, "q", resources("pods", "100", "requests.cpu", "1k"), resources("pods", "0", "requests.cpu", "0")))
	const replicas, pods = 3, 80
	var chains []*admission.Chain
	for range replicas {
		chains = append(chains, a.replica())
	}
	if allowed := createMany(t, pods, chains...); allowed != 100 {
		t.Errorf("got %d Pods, want 100", allowed)
	}
	if got, cpu := a.used("q", "pods"), a.used("q", "requests.cpu"); got != 100 || cpu != 50 || a.over != nil {
		t.Errorf("got %d Pods and %d processors used, want 100 and 50; too many were %v", got, cpu, a.over)
	}
	if a.puts > replicas*pods/2 {
		t.Errorf("got %d writes for %d Pods, want them written together", a.puts, replicas*pods)
	}
}

// TestTogether has 50 Pods that wait while the first one is written. They are written
// together, and those that do not fit are denied after that.
func TestTogether(t *testing.T) {
	a := newAPIServer(t, quota(home, "q", resources("pods", "40"), resources("pods", "0")))
	chain := a.replica()
	first, others := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a.before = func(*corev1.ResourceQuota) *apierrors.StatusError {
		once.Do(func() { close(first); <-others })
		return nil
	}
	var all sync.WaitGroup
	all.Go(func() { create(t, chain) })
	<-first
	var ready sync.WaitGroup
	var allowed atomic.Int64
	for range 50 {
		ready.Add(1)
		all.Go(func() {
			ready.Done()
			if outcome, _ := create(t, chain); outcome == admission.OutcomeAllowed {
				allowed.Add(1)
			}
		})
	}
	ready.Wait()
	close(others)
	all.Wait()
	if a.puts > 4 || allowed.Load() != 39 || a.used("q", "pods") != 40 {
		t.Errorf("got %d writes, %d Pods and %d used, want few writes, 39 and 40", a.puts, allowed.Load(), a.used("q", "pods"))
	}
}

// TestDryRun checks that a dry run charges nothing and does not wait.
func TestDryRun(t *testing.T) {
	a := newAPIServer(t, quota(home, "q", resources("pods", "1"), resources("pods", "0")))
	chain := a.replica()
	body := []byte(strings.Replace(string(admissiontest.Body(codec.Create, "v1/pods", podBody)), `"uid"`, `"dryRun":true,"uid"`, 1))
	for range 3 {
		admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, body)
	}
	if a.puts != 0 {
		t.Errorf("got %d writes", a.puts)
	}
	if outcome, _ := create(t, chain); outcome != admission.OutcomeAllowed {
		t.Error(outcome)
	}
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeDenied, body)
}

// TestFailures has failing writes of one or two quotas.
func TestFailures(t *testing.T) {
	resource := schema.GroupResource{Resource: "resourcequotas"}
	type faults map[string]func(n int) *apierrors.StatusError // by quota; n counts its writes
	f := func(name string, broken faults, want admission.Outcome, message string, usedA, usedB int64) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, quota(home, "a", resources("pods", "9"), resources("pods", "0")),
				quota(home, "b", resources("pods", "9"), resources("pods", "0")))
			chain := a.replica()
			times := make(map[string]int)
			a.before = func(q *corev1.ResourceQuota) *apierrors.StatusError {
				times[q.Name]++
				if broken[q.Name] == nil {
					return nil
				}
				return broken[q.Name](times[q.Name])
			}
			if outcome, response := create(t, chain); outcome != want || !strings.Contains(response, message) {
				t.Errorf("got %s, %s, want %s with %q", outcome, response, want, message)
			}
			if gotA, gotB := a.used("a", "pods"), a.used("b", "pods"); gotA != usedA || gotB != usedB {
				t.Errorf("got %d and %d used, want %d and %d", gotA, gotB, usedA, usedB)
			}
		})
	}
	conflict := apierrors.NewConflict(resource, "b", errors.New("the object has been modified"))
	upTo := func(most int, fault *apierrors.StatusError) func(int) *apierrors.StatusError {
		return func(n int) *apierrors.StatusError {
			if n > most {
				return nil
			}
			return fault
		}
	}
	f("conflicts", faults{"b": upTo(5, conflict)}, admission.OutcomeAllowed, "", 1, 1)
	f("conflicts of both", faults{"a": upTo(2, conflict), "b": upTo(4, conflict)}, admission.OutcomeAllowed, "", 1, 1)
	f("nothing but conflicts", faults{"b": upTo(1000, conflict)}, admission.OutcomeDenied, `"code":409`, 1, 0)
	f("failures", faults{"b": upTo(failuresMax, apierrors.NewInternalError(errors.New("no leader")))}, admission.OutcomeAllowed, "", 1, 1)
	f("nothing but failures", faults{"b": upTo(1000, apierrors.NewInternalError(errors.New("no leader")))},
		admission.OutcomeErrored, "", 1, 0)
	f("no RBAC", faults{"a": upTo(1000, apierrors.NewForbidden(resource, "a", errors.New("no RBAC")))}, admission.OutcomeErrored, "", 0, 1)
}

// TestLostAnswer has writes that succeed, but whose answers are lost. They look like failed
// writes, so the plugin charges again, as in-tree: the usage may be too high, but never too
// low, and the quota is not exceeded.
func TestLostAnswer(t *testing.T) {
	f := func(name string, lost, limit, creations, wantAllowed, wantErrored, wantUsed int64) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, quota(home, "q", resources("pods", strconv.FormatInt(limit, 10)), resources("pods", "0")))
			writes := int64(0)
			a.lost = func() bool { writes++; return writes <= lost }
			chain := a.replica()
			var allowed, errored int64
			for range creations {
				switch outcome, response := create(t, chain); outcome {
				case admission.OutcomeAllowed:
					allowed++
				case admission.OutcomeErrored:
					errored++
				case admission.OutcomeDenied:
					if !strings.Contains(response, "exceeded quota: q") {
						t.Errorf("got %s, want nothing denied but for the quota", response)
					}
				default:
					t.Errorf("got %s, %s", outcome, response)
				}
			}
			used := a.used("q", "pods")
			if allowed != wantAllowed || errored != wantErrored || used != wantUsed || used < allowed || len(a.over) > 0 {
				t.Errorf("got %d allowed, %d errored and %d used, over the quota: %v, want %d, %d and %d", allowed, errored,
					used, a.over, wantAllowed, wantErrored, wantUsed)
			}
			// The controller corrects the usage.
			a.mu.Lock()
			a.put(quota(home, "q", resources("pods", strconv.FormatInt(limit, 10)), resources("pods", strconv.FormatInt(allowed, 10))))
			a.mu.Unlock()
			a.lost = nil
			want := min(creations, limit-allowed)
			if more := createMany(t, int(creations), a.replica()); more != want || a.used("q", "pods") != allowed+want {
				t.Errorf("after a count: got %d more and %d used, want %d and %d", more, a.used("q", "pods"), want, allowed+want)
			}
		})
	}
	f("none", 0, 3, 5, 3, 0, 3)
	f("one", 1, 9, 2, 2, 0, 3)
	f("one of those that fit", 1, 3, 5, 2, 0, 3)
	f("the last that fits", 1, 1, 2, 0, 0, 1)
	f("of all tries but the last", failuresMax, 9, 1, 1, 0, failuresMax+1)
	f("of all tries", failuresMax+1, 9, 1, 0, 1, failuresMax+1)
}

// TestNobodyAsked has Pods in a namespace without a quota: the API server gets no requests.
func TestNobodyAsked(t *testing.T) {
	a := newAPIServer(t, quota("elsewhere", "q", resources("pods", "1"), resources("pods", "1")))
	if allowed := createMany(t, 50, a.replica()); allowed != 50 || a.asked != 0 {
		t.Errorf("got %d Pods and %d requests, want all of the 50 and none", allowed, a.asked)
	}
}

// TestGone has a quota that is deleted without an event of the watch.
func TestGone(t *testing.T) {
	a := newAPIServer(t, quota(home, "a", resources("pods", "9"), resources("pods", "0")),
		quota(home, "b", resources("pods", "1"), resources("pods", "0")))
	chain := a.replica()
	a.mu.Lock()
	delete(a.quotas, "b")
	a.mu.Unlock()
	for range 3 {
		if outcome, response := create(t, chain); outcome != admission.OutcomeAllowed {
			t.Errorf("got %s, %s", outcome, response)
		}
	}
	if got := a.used("a", "pods"); got != 3 {
		t.Errorf("got %d used, want 3", got)
	}
}

// TestDeniedByOthers has another writer use up the second quota while the first one is being
// charged.
func TestDeniedByOthers(t *testing.T) {
	a := newAPIServer(t, quota(home, "a", resources("pods", "9"), resources("pods", "0")),
		quota(home, "b", resources("pods", "1"), resources("pods", "0")))
	chain := a.replica()
	a.before = func(q *corev1.ResourceQuota) *apierrors.StatusError {
		if q.Name == "b" && a.used("b", "pods") == 0 {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.put(quota(home, "b", resources("pods", "1"), resources("pods", "1")))
		}
		return nil
	}
	outcome, response := create(t, chain)
	if outcome != admission.OutcomeDenied ||
		!strings.Contains(response, "exceeded quota: b, requested: pods=1, used: pods=1, limited: pods=1") {
		t.Errorf("got %s, %s", outcome, response)
	}
	if a.over != nil {
		t.Errorf("too many: %v", a.over)
	}
}

// TestReprieve has two charges that wait for a third. The second does not fit after the
// first. Then the first cannot be written because of a conflict: both are checked again.
func TestReprieve(t *testing.T) {
	f := func(name string, usedThen string, wantAllowed, wantDenied int, wantUsed int64) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t, quota(home, "q", resources("pods", "2"), resources("pods", "0")))
			state, needs := a.state(), Plugin().Needs
			l := newLedger(cluster.ResourceQuotas.In(state.View(needs...)))
			first, others := make(chan struct{}), make(chan struct{})
			n := 0
			a.before = func(*corev1.ResourceQuota) *apierrors.StatusError {
				switch n++; n {
				case 1:
					close(first)
					<-others
				case 2:
					a.mu.Lock()
					defer a.mu.Unlock()
					a.put(quota(home, "q", resources("pods", "2"), resources("pods", usedThen)))
				}
				return nil
			}
			answers := make(chan error, 3)
			ask := func() {
				answers <- l.charge(t.Context(), home, &demand{evaluator: pods{}, object: unscoped{}, used: resources("pods", "1")})
			}
			go ask()
			<-first
			go ask()
			go ask()
			for waiting := 0; waiting < 2; time.Sleep(time.Millisecond) {
				l.mu.Lock()
				waiting = len(l.waiting[home])
				l.mu.Unlock()
			}
			close(others)
			allowed, denied := 0, 0
			for range 3 {
				switch err := <-answers; {
				case err == nil:
					allowed++
				case strings.HasPrefix(err.Error(), "exceeded quota: q"):
					denied++
				default:
					t.Error(err)
				}
			}
			if got := a.used("q", "pods"); allowed != wantAllowed || denied != wantDenied || got != wantUsed {
				t.Errorf("got %d allowed, %d denied and %d used, want %d, %d and %d", allowed, denied, got, wantAllowed,
					wantDenied, wantUsed)
			}
		})
	}
	f("as before", "1", 2, 1, 2)
	f("for nothing", "2", 1, 2, 2)
	f("for both", "0", 3, 0, 2)
}

// TestTooLate has calls that end while a charge is written: those that wait are not charged.
func TestTooLate(t *testing.T) {
	a := newAPIServer(t, quota(home, "q", resources("pods", "9"), resources("pods", "0")))
	chain := a.replica()
	first, others := make(chan struct{}), make(chan struct{})
	var once sync.Once
	a.before = func(*corev1.ResourceQuota) *apierrors.StatusError {
		once.Do(func() { close(first); <-others })
		return nil
	}
	var all sync.WaitGroup
	all.Go(func() { create(t, chain) })
	<-first
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods", podBody)); err != nil {
		t.Fatal(err)
	}
	outcome, err := chain.Review(ctx, review, admission.Validate)
	if outcome != admission.OutcomeErrored || !errors.Is(err, context.Canceled) {
		t.Errorf("got %s, %v", outcome, err)
	}
	close(others)
	all.Wait()
	if outcome, _ := create(t, chain); outcome != admission.OutcomeAllowed || a.used("q", "pods") != 2 {
		t.Errorf("got %s and %d used, want 2", outcome, a.used("q", "pods"))
	}
}

// panics is an evaluator whose items panic when they are checked.
type panics struct{ pods }

func (panics) tracked([]corev1.ResourceName) []corev1.ResourceName { panic("as it is meant to") }

// TestPanic has a charge panic outside the goroutine of the call.
func TestPanic(t *testing.T) {
	state, err := cluster.New(cluster.Options{Objects: []runtime.Object{quota(home, "q", resources("pods", "9"), resources("pods", "0"))}})
	if err != nil {
		t.Fatal(err)
	}
	needs := Plugin().Needs
	if err := state.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	l := newLedger(cluster.ResourceQuotas.In(state.View(needs...)))
	for range 2 {
		err := l.charge(t.Context(), home, &demand{evaluator: panics{}, object: new(pod)})
		if panicked, ok := errors.AsType[*admission.PanicError](err); !ok || panicked.Value != "as it is meant to" {
			t.Errorf("got %v", err)
		}
	}
	for deadline := time.Now().Add(5 * time.Minute); !l.isIdle(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("work did not end within a minute, although no charge waits")
		}
	}
}
