package namespaceexists

import (
	"net/http"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func shop() *corev1.Namespace { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}} }

// TestLive has a namespace that is not in the cache.
func TestLive(t *testing.T) {
	f := func(want admission.Outcome, requests int32, live any, cached ...corev1.Namespace) {
		t.Helper()
		var asked atomic.Int32
		chain := admissiontest.LiveChain(t, Plugin(), func(r *http.Request) any {
			if r.Method != http.MethodGet || r.URL.Path != "/api/v1/namespaces/shop" {
				t.Errorf("got a %s of %s", r.Method, r.URL)
			}
			asked.Add(1)
			return live
		}, cached...)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, corpus.MustRead("pods-create-v1-1.json"))
		if got := asked.Load(); got != requests {
			t.Errorf("got %d requests, want %d", got, requests)
		}
	}
	status := func(code int32, reason metav1.StatusReason) *metav1.Status {
		return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}
	}
	f(admission.OutcomeAllowed, 0, nil, *shop())
	f(admission.OutcomeAllowed, 1, shop())
	f(admission.OutcomeDenied, 1, status(404, metav1.StatusReasonNotFound))
	f(admission.OutcomeErrored, 1, status(403, metav1.StatusReasonForbidden)) // fastadmit may not read namespaces
	f(admission.OutcomeErrored, 1, status(500, metav1.StatusReasonInternalError))
	f(admission.OutcomeErrored, 1, nil)
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", shop())
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}

func BenchmarkValidate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", shop())
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}
