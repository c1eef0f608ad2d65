package namespaceautoprovision

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func shop() *corev1.Namespace { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}} }

func body() []byte { return corpus.MustRead("pods-create-v1-1.json") }

func dryRun() []byte {
	return []byte(strings.Replace(string(body()), `"dryRun":false`, `"dryRun":true`, 1))
}

// TestCreates checks which namespaces exist after requests.
func TestCreates(t *testing.T) {
	f := func(want int, body []byte) {
		t.Helper()
		other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
		state, err := cluster.New(cluster.Options{Objects: []runtime.Object{other}})
		if err != nil {
			t.Fatal(err)
		}
		if err := state.Follow(t.Context(), Plugin().Needs...); err != nil {
			t.Fatal(err)
		}
		chain, err := admission.NewChain([]admission.Plugin{Plugin()},
			map[string]admission.Enabled{"NamespaceAutoProvision": {}}, state, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
		}
		there, err := cluster.Namespaces.In(state.View(cluster.Namespaces.Watched())).List("")
		if len(there) != want || err != nil {
			t.Errorf("got %d namespaces, want %d: %v, %v", len(there), want, there, err)
		}
		if want == 2 && there[1].Name != "shop" {
			t.Errorf("got namespace %q", there[1].Name)
		}
	}
	f(2, body())
	f(1, dryRun())
	f(1, corpus.MustRead("pods-update-v1-1.json"))
}

// TestRefused has an API server that does not create the namespace.
func TestRefused(t *testing.T) {
	f := func(want admission.Outcome, message string, live any) {
		t.Helper()
		chain := admissiontest.LiveChain(t, Plugin(), func(r *http.Request) any {
			if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces" {
				t.Errorf("got a %s of %s", r.Method, r.URL)
			}
			return live
		})
		response, got := admissiontest.Respond(t, chain, admission.Mutate, body(), nil)
		if got != want || want == admission.OutcomeDenied &&
			!strings.Contains(string(response), `"message":"NamespaceAutoProvision: `+message+`"`) {
			t.Errorf("got %s and %s, want %s and %s", got, response, want, message)
		}
	}
	status := func(code int32, reason metav1.StatusReason) *metav1.Status {
		return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "no"}
	}
	f(admission.OutcomeAllowed, "", shop())
	f(admission.OutcomeAllowed, "", status(409, metav1.StatusReasonAlreadyExists))
	const forbidden = `pods \"web-8d7c59b89-\" is forbidden: no`
	f(admission.OutcomeDenied, forbidden, status(422, metav1.StatusReasonInvalid))
	f(admission.OutcomeDenied, forbidden, status(400, "")) // a webhook denied it
	f(admission.OutcomeDenied, forbidden, status(409, metav1.StatusReasonConflict))
	f(admission.OutcomeDenied, "no", status(403, metav1.StatusReasonForbidden)) // the same answer
	f(admission.OutcomeErrored, "", status(401, metav1.StatusReasonUnauthorized))
	f(admission.OutcomeErrored, "", status(429, metav1.StatusReasonTooManyRequests))
	f(admission.OutcomeErrored, "", status(500, metav1.StatusReasonInternalError))
	f(admission.OutcomeErrored, "", nil)
}

// TestFinalCodes has answers whose code differs from the HTTP status.
func TestFinalCodes(t *testing.T) {
	for code, want := range map[int32]bool{0: false, 399: false, 400: true, 401: false, 403: true, 429: false, 499: true, 500: false} {
		reason := map[int32]metav1.StatusReason{401: metav1.StatusReasonUnauthorized, 429: metav1.StatusReasonTooManyRequests}[code]
		if got := isFinal(&apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason}}); got != want {
			t.Errorf("%d: got %v, want %v", code, got, want)
		}
	}
}

// TestOnce has many concurrent creations of objects in a namespace, one of which gives up.
func TestOnce(t *testing.T) {
	var asked atomic.Int32
	answer := make(chan struct{})
	chain := admissiontest.LiveChain(t, Plugin(), func(*http.Request) any {
		asked.Add(1)
		<-answer
		return shop()
	})
	review := func(ctx context.Context) (admission.Outcome, error) {
		r := codec.Acquire()
		defer r.Release()
		if err := r.Decode(body()); err != nil {
			t.Error(err)
		}
		return chain.Review(ctx, r, admission.Mutate)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var impatient, patient sync.WaitGroup
	impatient.Go(func() {
		if outcome, err := review(ctx); outcome != admission.OutcomeErrored || !strings.Contains(err.Error(), "not created in time") {
			t.Errorf("got %s, %v", outcome, err)
		}
	})
	for asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	var began atomic.Int32
	for range 10 {
		patient.Go(func() {
			began.Add(1)
			if outcome, err := review(t.Context()); outcome != admission.OutcomeAllowed {
				t.Errorf("got %s, %v", outcome, err)
			}
		})
	}
	cancel()
	impatient.Wait()
	for began.Load() < 10 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // later callers send another request, which is answered at once
	close(answer)
	patient.Wait()
	if got := asked.Load(); got >= 10 {
		t.Errorf("got %d requests of eleven, want them shared", got)
	}
}

// TestCreationOutlivesItsCaller has the first caller give up. Others find the creation by
// its name.
func TestCreationOutlivesItsCaller(t *testing.T) {
	var p *plugin
	own := Plugin()
	own.New = func(setup admission.Setup) (admission.Handler, error) {
		p = &plugin{namespaces: cluster.Namespaces.In(setup.Cluster)}
		return admission.Handler{Admit: p.admit}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan struct{})
	chain := admissiontest.LiveChain(t, own, func(*http.Request) any {
		cancel()
		<-answer
		return shop()
	})
	admissiontest.CheckOwned(t, bytes.Clone(body()), func(review *codec.Review) any {
		if outcome, err := chain.Review(ctx, review, admission.Mutate); outcome != admission.OutcomeErrored {
			t.Errorf("got %s, %v, want that the namespace was not created in time", outcome, err)
		}
		return &p.flights // the name is its key
	})
	other := p.flights.DoChan(shop().Name, nil)
	close(answer)
	if got := <-other; got.Err != nil || !got.Shared {
		t.Errorf("another caller: got %v, shared: %t, want the namespace that the first one asked for", got.Err, got.Shared)
	}
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", shop())
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, body())
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, dryRun())
}

func BenchmarkMutate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", shop())
	admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomeAllowed, body())
}
