package taintnodesbycondition

import (
	"bytes"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const (
	nodes     = "v1/nodes"
	notReady  = `{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}`
	recording = "nodes-create-v1-1.json"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.Mutates(t, Plugin(), "", withoutTaints, "/spec/taints", "/spec/taints/*")
}

func TestTaints(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(object, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, nodes, object, want)
	}
	added := func(taints string) {
		t.Helper()
		f(`{"spec":{"taints":[`+taints+`]}}`, `{"spec":{"taints":[`+taints+`,`+notReady+`]}}`)
	}
	unchanged := func(taints string) {
		t.Helper()
		f(`{"spec":{"taints":[`+taints+`]}}`, `{"spec":{"taints":[`+taints+`]}}`)
	}

	unchanged(notReady)
	unchanged(`{"key":"a","effect":"NoSchedule"},` + notReady)
	unchanged(notReady + `,{"key":"a","effect":"NoSchedule"}`)

	// Value and time are ignored.
	unchanged(`{"key":"node.kubernetes.io/not-ready","value":"v","effect":"NoSchedule","timeAdded":"2026-01-01T00:00:00Z"}`)
	unchanged(`{"key":"node.kubernetes.io\/not-ready","effect":"No\u0053chedule"}`)

	// Key and effect count.
	added(`{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"}`)
	added(`{"key":"node.kubernetes.io/not-ready"}`)
	added(`{"key":"node.kubernetes.io/unreachable","effect":"NoSchedule"}`)
	added(`{"key":"node.kubernetes.io/not-ready ","effect":"NoSchedule"}`)
	added(`{"effect":"NoSchedule"}`)
	added(`null`)
	added(`{}`)

	// Missing, null and empty parents.
	f(`{"spec":{"taints":[]}}`, `{"spec":{"taints":[`+notReady+`]}}`)
	f(`{"spec":{"taints":null}}`, `{"spec":{"taints":[`+notReady+`]}}`)
	f(`{"spec":null}`, `{"spec":{"taints":[`+notReady+`]}}`)
	f(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
		`{"spec":{"taints":[`+notReady+`]},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
}

// TestAdmitFailure has values that cannot be changed: the plugin fails, without panic or
// patch.
func TestAdmitFailure(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(object string) {
		t.Helper()
		body := admissiontest.Body(codec.Create, nodes, object)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, body)
	}
	f(`{"spec":"node"}`)
	f(`{"spec":[]}`)
	f(`{"spec":{"taints":"all"}}`)
	f(`{"spec":{"taints":{}}}`)
	f(`null`)
}

func TestHandles(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(operation codec.Operation, resource string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(operation, resource, `{"spec":{}}`))
	}
	f(codec.Create, nodes, admission.OutcomePatched)
	f(codec.Update, nodes, admission.OutcomeAllowed)
	f(codec.Delete, nodes, admission.OutcomeAllowed)
	f(codec.Connect, nodes, admission.OutcomeAllowed)
	f(codec.Create, "v1/pods", admission.OutcomeAllowed)
	f(codec.Create, "metrics.k8s.io/v1/nodes", admission.OutcomeAllowed)
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	body := corpus.MustRead(recording)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, withoutTaints(body))
}

func BenchmarkAdmit(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "")
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Mutate, want, body) })
	}
	body := corpus.MustRead(recording)
	f("allowed", admission.OutcomeAllowed, body)
	f("patched", admission.OutcomePatched, withoutTaints(body))
}

// withoutTaints removes the taint that the in-tree plugin added to a recorded review.
func withoutTaints(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`"taints":[`+notReady+`]`), nil)
}
