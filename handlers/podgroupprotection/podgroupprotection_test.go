package podgroupprotection

import (
	"bytes"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const groups = "scheduling.k8s.io/v1alpha2/podgroups"

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestAdmit(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	f := func(object, want string) {
		t.Helper()
		handlertest.CheckAdmit(t, chain, groups, object, want)
	}
	// Kubernetes' own cases: without and with the finalizer.
	const protected = `{"kind":"PodGroup","metadata":{"name":"g","finalizers":["scheduling.k8s.io/podgroup-protection"]}}`
	f(`{"kind":"PodGroup","metadata":{"name":"g"}}`, protected)
	f(protected, protected)

	f(`{"metadata":{"finalizers":["example.com/hold"]}}`, `{"metadata":{"finalizers":["example.com/hold","scheduling.k8s.io/podgroup-protection"]}}`)
	f(`{"metadata":{"finalizers":["scheduling.k8s.io/podgroup-protection","example.com/hold"]}}`,
		`{"metadata":{"finalizers":["scheduling.k8s.io/podgroup-protection","example.com/hold"]}}`)
	f(`{"metadata":{"finalizers":["Scheduling.k8s.io/podgroup-protection"]}}`,
		`{"metadata":{"finalizers":["Scheduling.k8s.io/podgroup-protection","scheduling.k8s.io/podgroup-protection"]}}`)
	f(`{"metadata":{"finalizers":null}}`, `{"metadata":{"finalizers":["scheduling.k8s.io/podgroup-protection"]}}`)
	f(`{"metadata":{"finalizers":[]}}`, `{"metadata":{"finalizers":["scheduling.k8s.io/podgroup-protection"]}}`)
	f(`{"metadata":null}`, `{"metadata":{"finalizers":["scheduling.k8s.io/podgroup-protection"]}}`)
	f(`{}`, `{"metadata":{"finalizers":["scheduling.k8s.io/podgroup-protection"]}}`)
}

func TestHandles(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	f := func(want handlers.Outcome, body []byte) {
		t.Helper()
		handlertest.CheckOutcome(t, chain, handlers.Mutate, want, body)
	}
	f(handlers.OutcomePatched, handlertest.Body(codec.Create, groups, `{}`))
	f(handlers.OutcomeAllowed, handlertest.Body(codec.Create, groups, `null`))
	f(handlers.OutcomeErrored, handlertest.Body(codec.Create, groups, `{"metadata":"data"}`))
	f(handlers.OutcomeAllowed, handlertest.UpdateBody(groups, `{}`, `{}`))
	f(handlers.OutcomeAllowed, handlertest.Body(codec.Delete, groups, `{}`))
	f(handlers.OutcomeAllowed, handlertest.Body(codec.Create, "scheduling.k8s.io/v1alpha2/workloads", `{}`))
	f(handlers.OutcomeAllowed, handlertest.Body(codec.Create, "example.com/v1alpha2/podgroups", `{}`))
	f(handlers.OutcomeAllowed, bytes.Replace(handlertest.Body(codec.Create, groups, `{}`), []byte(`"operation"`), []byte(`"subResource":"status","operation"`), 1))
}

func TestNoAllocations(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomePatched, handlertest.Body(codec.Create, groups, `{"metadata":{"name":"g"}}`))
}

func BenchmarkAdmit(b *testing.B) {
	chain := handlertest.MustChain(b, Plugin(), "")
	handlertest.Benchmark(b, chain, handlers.Mutate, handlers.OutcomePatched, handlertest.Body(codec.Create, groups, `{"metadata":{"name":"g"}}`))
}
