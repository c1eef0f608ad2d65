package podgroupprotection

import (
	"bytes"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const groups = "scheduling.k8s.io/v1alpha2/podgroups"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestAdmit(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(object, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, groups, object, want)
	}
	// Kubernetes' own cases: without and with the finalizer.
	const protected = `{"kind":"PodGroup","metadata":{"name":"g","finalizers":["scheduling.k8s.io/podgroup-protection"]}}`
	f(`{"kind":"PodGroup","metadata":{"name":"g"}}`, protected)
	f(protected, protected)

	f(`{"metadata":{"finalizers":["example.com/hold"]}}`,
		`{"metadata":{"finalizers":["example.com/hold","scheduling.k8s.io/podgroup-protection"]}}`)
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
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(want admission.Outcome, body []byte) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, body)
	}
	f(admission.OutcomePatched, admissiontest.Body(codec.Create, groups, `{}`))
	f(admission.OutcomeAllowed, admissiontest.Body(codec.Create, groups, `null`))
	f(admission.OutcomeErrored, admissiontest.Body(codec.Create, groups, `{"metadata":"data"}`))
	f(admission.OutcomeAllowed, admissiontest.UpdateBody(groups, `{}`, `{}`))
	f(admission.OutcomeAllowed, admissiontest.Body(codec.Delete, groups, `{}`))
	f(admission.OutcomeAllowed, admissiontest.Body(codec.Create, "scheduling.k8s.io/v1alpha2/workloads", `{}`))
	f(admission.OutcomeAllowed, admissiontest.Body(codec.Create, "example.com/v1alpha2/podgroups", `{}`))
	f(admission.OutcomeAllowed,
		bytes.Replace(admissiontest.Body(codec.Create, groups, `{}`), []byte(`"operation"`),
			[]byte(`"subResource":"status","operation"`), 1))
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched,
		admissiontest.Body(codec.Create, groups, `{"metadata":{"name":"g"}}`))
}

func BenchmarkAdmit(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "")
	admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomePatched,
		admissiontest.Body(codec.Create, groups, `{"metadata":{"name":"g"}}`))
}
