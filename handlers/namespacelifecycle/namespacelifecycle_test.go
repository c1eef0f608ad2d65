package namespacelifecycle

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// shop returns the namespace of the recordings.
func shop(phase corev1.NamespacePhase) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Status: corev1.NamespaceStatus{Phase: phase}}
}

var create, update = corpus.MustRead("pods-create-v1-1.json"), corpus.MustRead("pods-update-v1-1.json")

// deletion returns a review of the deletion of a namespace.
func deletion(name string, dryRun bool) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":%q,"request":{"uid":"1","operation":"DELETE","name":%q,`+
		`"namespace":%[2]q,`+
		`"resource":{"group":"","version":"v1","resource":"namespaces"},"dryRun":%v}}`, codec.APIVersionV1, name, dryRun)
}

// TestLive has a cache that is outdated.
func TestLive(t *testing.T) {
	type step struct {
		body     []byte
		want     admission.Outcome
		requests int32
	}
	version := "1.36"
	f := func(live any, cached []corev1.Namespace, steps ...step) {
		t.Helper()
		var asked atomic.Int32
		chain := admissiontest.LiveChain(t, admissiontest.Emulating(t, Plugin(), version), func(r *http.Request) any {
			if r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/shop" {
				t.Errorf("got a %s of %s", r.Method, r.URL)
			}
			asked.Add(1)
			return live
		}, cached...)
		for i, s := range steps {
			asked.Store(0)
			admissiontest.CheckOutcome(t, chain, admission.Mutate, s.want, s.body)
			if got := asked.Load(); got != s.requests {
				t.Errorf("step %d: got %d requests, want %d", i, got, s.requests)
			}
		}
	}
	status := func(code int32, reason metav1.StatusReason) *metav1.Status {
		return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}
	}
	active, terminating := []corev1.Namespace{*shop(corev1.NamespaceActive)}, []corev1.Namespace{*shop(corev1.NamespaceTerminating)}
	const allowed, denied, errored = admission.OutcomeAllowed, admission.OutcomeDenied, admission.OutcomeErrored

	f(shop(corev1.NamespaceActive), nil, step{create, allowed, 1}, step{update, allowed, 1})
	f(shop(corev1.NamespaceTerminating), nil, step{create, denied, 1}, step{update, allowed, 1})
	f(status(404, metav1.StatusReasonNotFound), nil, step{create, denied, 1}, step{update, denied, 1})
	f(status(403, metav1.StatusReasonForbidden), nil, step{create, errored, 1}, step{update, errored, 1})
	f(status(500, metav1.StatusReasonInternalError), nil, step{create, errored, 1})
	f(nil, nil, step{create, errored, 1})

	// The API server is asked for a deleted namespace, unless the cache knows that it is
	// terminating.
	deleted, dry := step{deletion("shop", false), allowed, 0}, step{deletion("shop", true), allowed, 0}
	other := step{deletion("other", false), allowed, 0}
	f(shop(corev1.NamespaceTerminating), active, step{create, allowed, 0}, deleted, step{create, denied, 1}, step{update, allowed, 1})
	f(shop(corev1.NamespaceActive), active, deleted, step{create, allowed, 1})
	f(status(404, metav1.StatusReasonNotFound), active, deleted, step{create, denied, 1}, step{update, denied, 1})
	f(status(500, metav1.StatusReasonInternalError), active, deleted, step{create, errored, 1})
	f(nil, terminating, deleted, step{create, denied, 0}, step{update, allowed, 0})
	f(nil, active, dry, other, step{create, allowed, 0})

	version = "1.37" // allows all updates
	f(status(404, metav1.StatusReasonNotFound), nil, step{create, denied, 1}, step{update, allowed, 0})
	f(status(404, metav1.StatusReasonNotFound), active, deleted, step{create, denied, 1}, step{update, allowed, 0})
}

// handlerIn returns a handler in a cluster that has the objects.
func handlerIn(t *testing.T, objects ...runtime.Object) admission.Handler {
	t.Helper()
	state, err := cluster.New(cluster.Options{Objects: append([]runtime.Object{}, objects...)})
	if err != nil {
		t.Fatal(err)
	}
	plugin := Plugin()
	handler, err := plugin.New(admission.Setup{Cluster: state.View(plugin.Needs...)})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func admit(t *testing.T, ctx context.Context, handler admission.Handler, body []byte) admission.Result {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	return handler.Admit(ctx, review)
}

// TestWait checks how long the plugin waits for a missing namespace.
func TestWait(t *testing.T) {
	f := func(want, budget time.Duration, body []byte, objects ...runtime.Object) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if budget > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, budget)
				defer cancel()
			}
			handler, began := handlerIn(t, objects...), time.Now()
			result := admit(t, ctx, handler, body)
			if got := time.Since(began); got != want || (result.Denial == nil) != (len(objects) > 0) {
				t.Errorf("got %+v after %s, want an answer after %s", result, got, want)
			}
		})
	}
	f(0, 0, create, shop(corev1.NamespaceActive))
	f(missingWait, 0, create)
	f(missingWait, time.Second, create)
	f(missingWait, 2*missingWait, create)
	f(5*time.Millisecond, 10*time.Millisecond, create)
}

// TestRecent checks how many deleted namespaces are remembered, and for how long.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecent()
		f := func(name string, want bool) {
			t.Helper()
			if got := r.has(name); got != want {
				t.Errorf("%s: got %v", name, got)
			}
		}
		f("a", false)
		r.add("a")
		time.Sleep(recentTime - time.Second)
		r.add("b")
		f("a", true)
		time.Sleep(time.Second)
		f("a", true)
		time.Sleep(time.Nanosecond)
		f("a", false)
		f("b", true)
		r.add("b")
		if len(r.until) != 1 {
			t.Errorf("got %d names, want one", len(r.until))
		}
		for i := len(r.until); i < recentMax; i++ {
			time.Sleep(time.Nanosecond)
			r.add(fmt.Sprint(i))
		}
		f("b", true)
		r.add("b") // again: replaces no other, and is now the newest
		r.add("b")
		f("1", true)
		time.Sleep(time.Nanosecond)
		r.add("one more")
		f("1", false)
		f("b", true)
		f("2", true)
		f("one more", true)
		if len(r.until) != recentMax {
			t.Errorf("got %d names, want %d", len(r.until), recentMax)
		}
		for length, want := range map[int]bool{62: true, 63: true, 64: false, 1 << 20: false} { // the maximum for namespaces
			name := strings.Repeat("n", length)
			r.add(name)
			if got := r.has(name); got != want {
				t.Errorf("a name of %d bytes: got %v", length, got)
			}
		}
	})
}

// TestOddReviews has reviews that no API server sends.
func TestOddReviews(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", shop(corev1.NamespaceTerminating))
	f := func(want admission.Outcome, body string) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, []byte(body))
	}
	for _, object := range []string{`null`, `{}`, `{"metadata":null}`, `{"metadata":{"name":1,"generateName":[]}}`} {
		body := string(admissiontest.Body(codec.Create, "v1/pods", object))
		f(admission.OutcomeDenied, strings.Replace(body, `"namespace":"namespace"`, `"namespace":"shop"`, 1))
		f(admission.OutcomeDenied, body)
		f(admission.OutcomeAllowed, strings.Replace(body, `"namespace":"namespace"`, `"namespace":null`, 1))
	}
	f(admission.OutcomeAllowed, strings.Replace(string(deletion("x", false)), `"name":"x"`, `"name":null`, 1))
	for resource, want := range map[string]admission.Outcome{
		"authorization.k8s.io/v1/localsubjectaccessreviews": admission.OutcomeAllowed,
		"authorization.k8s.io/v1/others":                    admission.OutcomeDenied,
		"example.com/v1/localsubjectaccessreviews":          admission.OutcomeDenied,
	} {
		f(want, string(admissiontest.Body(codec.Create, resource, `{}`)))
	}
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", shop(corev1.NamespaceActive))
	admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, deletion("other", false))
	for _, body := range [][]byte{create, update} {
		admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
	}
}

func BenchmarkMutate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", shop(corev1.NamespaceActive))
	admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomeAllowed, create)
}
