package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/codec"
)

// A requester identifies a review.
type requester struct{ user, namespace string }

func (r *requester) Requester() (user, namespace string) { return r.user, r.namespace }

// by returns the context of a review of a request by the user in the namespace.
func by(ctx context.Context, user, namespace string) context.Context {
	return context.WithValue(ctx, CallerKey{}, &requester{user, namespace})
}

// TestFairOrder checks the order in which waiting requests are made.
func TestFairOrder(t *testing.T) {
	f := func(want string, waiting ...string) {
		t.Helper()
		var l line
		names := make(map[*turn]string)
		for _, w := range waiting {
			parts := strings.Split(w, "/")
			next := &turn{caller: caller{parts[0], parts[1], parts[2]}}
			names[next] = w
			l.add(next, next.caller[:])
		}
		var got []string
		for !l.isEmpty() {
			next := l.next()
			l.remove(next, next.caller[:])
			got = append(got, names[next])
		}
		if strings.Join(got, " ") != want || len(l.lines) > 0 {
			t.Errorf("got  %s, and %d lines left\nwant %s", got, len(l.lines), want)
		}
	}
	f("")
	f("p/a/x p/a/x p/a/x", "p/a/x", "p/a/x", "p/a/x")
	f("p/a/x p/b/x p/a/x p/a/x", "p/a/x", "p/a/x", "p/a/x", "p/b/x")                               // users take turns
	f("p/a/x q/a/x p/a/x p/a/x", "p/a/x", "p/a/x", "p/a/x", "q/a/x")                               // plugins do
	f("p/a/x p/a/y p/a/x p/a/x", "p/a/x", "p/a/x", "p/a/x", "p/a/y")                               // namespaces do
	f("p/a/x q/c/x p/b/x p/a/x p/b/x", "p/a/x", "p/a/x", "p/b/x", "p/b/x", "q/c/x")                // two users have one plugin's share
	f("p/a/x p/b/z p/a/y p/b/z p/a/x p/a/y", "p/a/x", "p/a/x", "p/a/y", "p/a/y", "p/b/z", "p/b/z") // two namespaces have one user's
}

// TestFairLimiter has requests that give up, that wait, and that need not wait.
func TestFairLimiter(t *testing.T) {
	set := metrics.NewSet()
	l := newFairLimiter(1, 2, set)
	shows := func(waiting, givenUp int) {
		t.Helper()
		eventually(t, "the metrics show it", func() bool {
			var page strings.Builder
			set.WritePrometheus(&page)
			return strings.Contains(page.String(), fmt.Sprintf("fastadmit_cluster_requests_waiting %d\n", waiting)) &&
				strings.Contains(page.String(), fmt.Sprintf("fastadmit_cluster_requests_given_up_total %d\n", givenUp))
		})
	}
	l.dispatching = true // so that the test dispatches
	for range 2 {
		if err := l.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if l.TryAccept() {
		t.Error("a third request of two may be made")
	}
	wait := func(ctx context.Context, user string) chan error {
		before, done := l.count(), make(chan error, 1)
		go func() { done <- l.Wait(asCaller(by(ctx, user, "x"), "p", "")) }()
		eventually(t, "a request waits", func() bool { return l.count() == before+1 })
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	givesUp, first, second := wait(ctx, "a"), wait(t.Context(), "a"), wait(t.Context(), "b")
	shows(3, 0)
	cancel()
	if err := <-givesUp; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context ended", err)
	}
	shows(2, 1)
	if err := l.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context ended", err)
	}
	if l.TryAccept() {
		t.Error("a request overtakes those that wait")
	}
	if !l.grant() {
		t.Error("one waits still")
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	for range 2 {
		if l.grant() {
			t.Error("nobody waits any more")
		}
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	shows(0, 1)
	if len(l.waiting.lines) != 0 || l.QPS() != 1 {
		t.Errorf("%d lines are left, at %v requests a second", len(l.waiting.lines), l.QPS())
	}
	l.tokens = rate.NewLimiter(1000, 1)
	for range 5 {
		l.Accept()
	}
	l.Stop()
}

// TestFairRate checks that requests that waited do not delay later ones.
func TestFairRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := newFairLimiter(1, 1, metrics.NewSet()), time.Now()
		var group sync.WaitGroup
		for range 4 { // one at once, and then one per second
			group.Go(l.Accept)
		}
		group.Wait()
		time.Sleep(500 * time.Millisecond)
		l.Accept()
		if got := time.Since(start).Round(100 * time.Millisecond); got != 4*time.Second {
			t.Errorf("got the fifth request after %s of the test's clock, want 4s", got)
		}
	})
}

// count returns how many requests wait.
func (l *fairLimiter) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.count()
}

func (l *line) count() (n int) {
	for e := l.queue.Front(); e != nil; e = e.Next() {
		if inside, ok := e.Value.(*line); ok {
			n += inside.count()
		} else {
			n++
		}
	}
	return n
}

// TestNobodyStarves has one caller with many requests that wait. Requests of others wait for one of them, not for all.
func TestNobodyStarves(t *testing.T) {
	a := newAPIServer(t)
	s := a.newState(Options{})
	if err := s.Follow(t.Context(), Namespaces.Called("get")); err != nil {
		t.Fatal(err)
	}
	view := s.View(Namespaces.Called("get"))
	greedyPlugin, otherPlugin := Namespaces.In(view.For("greedy")), Namespaces.In(view.For("other"))
	l := s.find(Namespaces.Kind).client.(*rest.RESTClient).GetRateLimiter().(*fairLimiter)
	l.mu.Lock()
	l.tokens.SetBurst(0)
	l.dispatching = true // so that the test dispatches
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const greedy = 20
	for i := range greedy {
		go greedyPlugin.GetLive(by(ctx, "system:serviceaccount:greedy:"+fmt.Sprint(i), "greedy"), "", fmt.Sprint("greedy", i))
	}
	eventually(t, "all requests wait", func() bool { return l.count() == greedy })
	f := func(n *Objects[*corev1.Namespace], user, namespace, name string) {
		t.Helper()
		before := l.count()
		var answered atomic.Bool
		go func() {
			if _, err := n.GetLive(by(ctx, user, namespace), "", name); err == nil {
				t.Error("found what is not there")
			}
			answered.Store(true)
		}()
		eventually(t, "the request waits", func() bool { return l.count() == before+1 })
		l.grant()
		l.grant()
		eventually(t, fmt.Sprintf("%s of %s gets one of two turns", user, namespace), answered.Load)
	}
	f(greedyPlugin, "jane", "greedy", "one")
	f(greedyPlugin, "system:serviceaccount:greedy:0", "other", "two")
	f(otherPlugin, "system:serviceaccount:greedy:0", "greedy", "three")
	f(otherPlugin, "", "", "four")
}

// TestCallersOwnTheirNames ends a review while its caller is still queued.
func TestCallersOwnTheirNames(t *testing.T) {
	review, end := reviewIn(t, "victim", "attack")
	ctx := asCaller(by(t.Context(), review.Namespace(), review.Namespace()), "plugin", review.Namespace())
	other := asCaller(t.Context(), "plugin", review.Namespace())
	end()
	if got := callerOf(ctx); got != (caller{"plugin", "victim", "victim"}) {
		t.Errorf("got %q", got)
	}
	if got := callerOf(other); got != (caller{"plugin", "", "victim"}) {
		t.Errorf("got %q", got)
	}
}

func TestCallers(t *testing.T) {
	f := func(ctx context.Context, namespace string, want ...string) {
		t.Helper()
		if got := callerOf(asCaller(ctx, "p", namespace)); !slices.Equal(got[:], want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(t.Context(), "", "p", "", "")
	f(t.Context(), "n", "p", "", "n")
	f(by(t.Context(), "jane", "m"), "n", "p", "jane", "m")
	f(by(t.Context(), "jane", ""), "n", "p", "jane", "n")
	f(by(t.Context(), "system:serviceaccount:n:a", "m"), "", "p", "system:serviceaccount:n", "m")
	f(by(t.Context(), "system:serviceaccount:n", "m"), "", "p", "system:serviceaccount:n", "m")
	for _, n := range []int{callerNameMax - 1, callerNameMax, callerNameMax + 1} {
		long, cut := strings.Repeat("x", n), strings.Repeat("x", min(n, callerNameMax))
		f(by(t.Context(), long, long), "", "p", cut, cut)
	}
	if got := callerOf(Detach(by(t.Context(), "jane", "m"))); got != (caller{"", "jane", "m"}) {
		t.Errorf("got %q of a detached context", got)
	}
	f(Detach(by(t.Context(), "jane", "m")), "n", "p", "jane", "m")
	ctx, cancel := context.WithTimeout(by(t.Context(), "jane", "m"), time.Hour)
	detached := Detach(ctx)
	cancel()
	if _, ok := detached.Deadline(); ok || detached.Err() != nil {
		t.Error("a detached context ends with the other one")
	}
	// The limiter has copies.
	body := []byte(`"jane"`)
	var o codec.Object
	o.Reset(body)
	name := o.Root().String()
	c := callerOf(asCaller(by(t.Context(), name, name), "p", ""))
	copy(body, `"XXXX"`)
	if c != (caller{"p", "jane", "jane"}) {
		t.Errorf("got %q: views of the review are kept", c)
	}
}

// TestTryAccept takes available tokens, but not before waiting requests.
func TestTryAccept(t *testing.T) {
	l := newFairLimiter(0.001, 2, metrics.NewSet())
	if got := l.TryAccept(); !got {
		t.Error("got nothing of two")
	}
	l.waiting.add(new(turn), []string{"a"})
	if got := l.TryAccept(); got {
		t.Error("got one before somebody who waits")
	}
	l.waiting = line{}
	if got := []bool{l.TryAccept(), l.TryAccept()}; !got[0] || got[1] {
		t.Errorf("got %v, want one more", got)
	}
}

// TestEachCallHasItsLine has each kind of request wait in the queue of its plugin, user and
// namespace.
func TestEachCallHasItsLine(t *testing.T) {
	a := newAPIServer(t)
	s := a.newState(Options{})
	needs := []Need{configMap.Called("get", "list", "create", "delete"), ResourceQuotas.CalledStatus("update"),
		SubjectAccessReviews.Called("create"), Discovered(), DiscoveredSchemas()}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	l := s.find(configMap.Kind).client.(*rest.RESTClient).GetRateLimiter().(*fairLimiter)
	if l.QPS() != 50 || l.tokens.Burst() != 100 { // as in kube-scheduler
		t.Errorf("got %v requests a second and %d at once", l.QPS(), l.tokens.Burst())
	}
	l.tokens = rate.NewLimiter(0, 0)
	f := func(name string, call func(ctx context.Context) error) {
		t.Helper()
		l.dispatching = true // so that the test dispatches
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = call(by(t.Context(), "jane", "shop")) // does not exist
		}()
		eventually(t, name+" waits", func() bool { return l.count() == 1 })
		l.mu.Lock()
		got := l.waiting.next().caller
		l.mu.Unlock()
		if got != (caller{"p", "jane", "shop"}) {
			t.Errorf("%s waits in the line of %q", name, got)
		}
		l.grant()
		<-done
	}
	view := s.View(needs...).For("p")
	maps, quotas, access, discovery := configMap.In(view), ResourceQuotas.In(view), AccessIn(view), DiscoveryIn(view)
	f("get", func(ctx context.Context) error { _, err := maps.GetLive(ctx, "one", "m"); return err })
	f("list", func(ctx context.Context) error { _, err := maps.ListLive(ctx, "one"); return err })
	f("create", func(ctx context.Context) error {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "m"}})
		return err
	})
	f("delete", func(ctx context.Context) error { return maps.Delete(ctx, "one", "m") })
	f("an update of a status", func(ctx context.Context) error { _, err := quotas.UpdateStatus(ctx, quota("q")); return err })
	spec := &authorizationv1.SubjectAccessReviewSpec{User: "joe"}
	f("a question about rights", func(ctx context.Context) error { _, err := access.Review(ctx, spec); return err })
	f("one that is not kept", func(ctx context.Context) error { _, err := access.ReviewUncached(ctx, spec); return err })
	f("discovery", func(ctx context.Context) error {
		_, err := discovery.Resources(ctx, schema.GroupVersion{Group: "apps", Version: "v1"})
		return err
	})
	f("paths of schemas", func(ctx context.Context) error { _, err := discovery.SchemaPaths(ctx); return err })
}

// TestNobodyOvertakes has a request arrive while another one waits: it waits, too, although
// there is a token.
func TestNobodyOvertakes(t *testing.T) {
	l := newFairLimiter(0.001, 1, metrics.NewSet())
	l.dispatching = true // so that the test dispatches
	l.waiting.add(new(turn), []string{"a"})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.Wait(ctx) }()
	eventually(t, "the second one waits", func() bool { return l.count() == 2 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context ended", err)
	}
}
