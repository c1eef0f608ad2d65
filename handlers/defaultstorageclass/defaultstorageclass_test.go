package defaultstorageclass

import (
	"bytes"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const claims = "v1/persistentvolumeclaims"

// class returns a class with this second of creation, which these annotations make a
// default.
func class(name string, second int64, defaults ...string) runtime.Object {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.Unix(second, 0), Annotations: map[string]string{"example.com/tier": "true"},
	}}
	for _, annotation := range defaults {
		c.Annotations[annotation] = "true"
	}
	return c
}

func chain(t testing.TB, classes ...runtime.Object) *admission.Chain {
	t.Helper()
	return admissiontest.MustChain(t, Plugin(), "", classes...)
}

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.MutatesChain(t, chain(t, class("fast", 1, annotationDefault)), withoutClass, "/spec/storageClassName")
}

// TestDefault checks which class a claim without one gets.
func TestDefault(t *testing.T) {
	f := func(want string, classes ...runtime.Object) {
		t.Helper()
		object := `{"spec":{}}`
		if want != "" {
			want = `"storageClassName":"` + want + `"`
		}
		admissiontest.CheckAdmit(t, chain(t, classes...), claims, object, `{"spec":{`+want+`}}`)
	}
	f("")
	f("", class("a", 1), class("b", 2))
	f("b", class("a", 1), class("b", 1, annotationDefault))
	f("b", class("a", 1), class("b", 1, annotationDefaultBeta))
	f("a", class("a", 1, annotationDefault, annotationDefaultBeta))
	f("a", class("b", 1, annotationDefault), class("a", 1, annotationDefaultBeta))
	f("b", class("b", 2, annotationDefault), class("a", 1, annotationDefault), class("c", 3))
	f(`q\"\\`, class(`q"\`, 1, annotationDefault))

	// Only the value "true" makes a class the default.
	for _, value := range [...]string{"", "false", "True", " true", "1"} {
		c := class("a", 1).(*storagev1.StorageClass)
		c.Annotations[annotationDefault], c.Annotations[annotationDefaultBeta] = value, value
		f("", c)
	}
}

// TestClaims checks which claims get a class.
func TestClaims(t *testing.T) {
	chain := chain(t, class("fast", 1, annotationDefault))
	f := func(object, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, claims, object, want)
	}
	unchanged := func(object string) {
		t.Helper()
		f(object, object)
	}
	f(`{"spec":{"storageClassName":null}}`, `{"spec":{"storageClassName":"fast"}}`)
	f(`{"spec":null}`, `{"spec":{"storageClassName":"fast"}}`)
	f(`{}`, `{"spec":{"storageClassName":"fast"}}`)
	f(`{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-classes":"x"}}}`,
		`{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-classes":"x"}},"spec":{"storageClassName":"fast"}}`)
	f(`{"metadata":{"annotations":null},"spec":{"volumeName":"v"}}`,
		`{"metadata":{"annotations":null},"spec":{"volumeName":"v","storageClassName":"fast"}}`)

	unchanged(`{"spec":{"storageClassName":"slow"}}`)
	unchanged(`{"spec":{"storageClassName":""}}`)
	unchanged(`{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"slow"}}}`)
	unchanged(`{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":""}}}`)
	unchanged(`{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":null}}}`) // an API server reads null as ""
	unchanged(`null`)
}

// TestAdmitFailure has values that cannot be changed: the plugin fails, without panic or
// patch.
func TestAdmitFailure(t *testing.T) {
	chain := chain(t, class("fast", 1, annotationDefault))
	f := func(object string) {
		t.Helper()
		body := admissiontest.Body(codec.Create, claims, object)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, body)
	}
	f(`{"spec":"claim"}`)
	f(`{"spec":[]}`)
}

func TestHandles(t *testing.T) {
	chain := chain(t, class("fast", 1, annotationDefault))
	f := func(operation codec.Operation, resource string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(operation, resource, `{"spec":{}}`))
	}
	f(codec.Create, claims, admission.OutcomePatched)
	f(codec.Update, claims, admission.OutcomeAllowed)
	f(codec.Delete, claims, admission.OutcomeAllowed)
	f(codec.Create, "v1/persistentvolumes", admission.OutcomeAllowed)
	f(codec.Create, "example.com/v1/persistentvolumeclaims", admission.OutcomeAllowed)
}

func TestNoAllocations(t *testing.T) {
	chain := chain(t, class("fast", 1, annotationDefault), class("slow", 2))
	body := corpus.MustRead("persistentvolumeclaims-create-v1-1.json")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, withoutClass(body))
}

func BenchmarkAdmit(b *testing.B) {
	chain := chain(b, class("fast", 1, annotationDefault), class("slow", 2))
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Mutate, want, body) })
	}
	body := corpus.MustRead("persistentvolumeclaims-create-v1-1.json")
	f("allowed", admission.OutcomeAllowed, body)
	f("patched", admission.OutcomePatched, withoutClass(body))
}

// withoutClass removes the class that the in-tree plugin set in a recorded review.
func withoutClass(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`"storageClassName":"fast",`), nil)
}
