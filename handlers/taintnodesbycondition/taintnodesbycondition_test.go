package taintnodesbycondition

import (
	"bytes"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const (
	nodes     = "v1/nodes"
	notReady  = `{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}`
	recording = "nodes-create-v1-1.json"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	handlertest.Mutates(t, Plugin(), "", withoutTaints, "/spec/taints", "/spec/taints/*")
}

func TestTaints(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	f := func(object, want string) {
		t.Helper()
		handlertest.CheckAdmit(t, chain, nodes, object, want)
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

	// Value and time do not count.
	unchanged(`{"key":"node.kubernetes.io/not-ready","value":"v","effect":"NoSchedule","timeAdded":"2026-01-01T00:00:00Z"}`)
	unchanged(`{"key":"node.kubernetes.io\/not-ready","effect":"No\u0053chedule"}`)

	// Key and effect do.
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

// What cannot be changed is the plugin's failure: no panic, no patch.
func TestAdmitFailure(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	f := func(object string) {
		t.Helper()
		body := handlertest.Body(codec.Create, nodes, object)
		handlertest.CheckOutcome(t, chain, handlers.Mutate, handlers.OutcomeErrored, body)
	}
	f(`{"spec":"node"}`)
	f(`{"spec":[]}`)
	f(`{"spec":{"taints":"all"}}`)
	f(`{"spec":{"taints":{}}}`)
	f(`null`)
}

func TestHandles(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	f := func(operation codec.Operation, resource string, want handlers.Outcome) {
		t.Helper()
		handlertest.CheckOutcome(t, chain, handlers.Mutate, want, handlertest.Body(operation, resource, `{"spec":{}}`))
	}
	f(codec.Create, nodes, handlers.OutcomePatched)
	f(codec.Update, nodes, handlers.OutcomeAllowed)
	f(codec.Delete, nodes, handlers.OutcomeAllowed)
	f(codec.Connect, nodes, handlers.OutcomeAllowed)
	f(codec.Create, "v1/pods", handlers.OutcomeAllowed)
	f(codec.Create, "metrics.k8s.io/v1/nodes", handlers.OutcomeAllowed)
}

func TestNoAllocations(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	body := corpus.MustRead(recording)
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomeAllowed, body)
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomePatched, withoutTaints(body))
}

func BenchmarkAdmit(b *testing.B) {
	chain := handlertest.MustChain(b, Plugin(), "")
	f := func(name string, want handlers.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { handlertest.Benchmark(b, chain, handlers.Mutate, want, body) })
	}
	body := corpus.MustRead(recording)
	f("allowed", handlers.OutcomeAllowed, body)
	f("patched", handlers.OutcomePatched, withoutTaints(body))
}

// withoutTaints takes the taint away that in-tree gave what was recorded.
func withoutTaints(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`"taints":[`+notReady+`]`), nil)
}
