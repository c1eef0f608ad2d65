package defaultstorageclass

import (
	"bytes"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const claims = "v1/persistentvolumeclaims"

// class returns a class that was created at that second, and is a default one
// by the annotations named.
func class(name string, second int64, defaults ...string) runtime.Object {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.Unix(second, 0), Annotations: map[string]string{"example.com/tier": "true"},
	}}
	for _, annotation := range defaults {
		c.Annotations[annotation] = "true"
	}
	return c
}

func chain(t testing.TB, classes ...runtime.Object) *handlers.Chain {
	t.Helper()
	return handlertest.MustChain(t, Plugin(), "", classes...)
}

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	handlertest.MutatesChain(t, chain(t, class("fast", 1, annotationDefault)), withoutClass, "/spec/storageClassName")
}

// TestDefault tries which class a claim without one gets.
func TestDefault(t *testing.T) {
	f := func(want string, classes ...runtime.Object) {
		t.Helper()
		object := `{"spec":{}}`
		if want != "" {
			want = `"storageClassName":"` + want + `"`
		}
		handlertest.CheckAdmit(t, chain(t, classes...), claims, object, `{"spec":{`+want+`}}`)
	}
	f("")
	f("", class("a", 1), class("b", 2))
	f("b", class("a", 1), class("b", 1, annotationDefault))
	f("b", class("a", 1), class("b", 1, annotationDefaultBeta))
	f("a", class("a", 1, annotationDefault, annotationDefaultBeta))
	f("a", class("b", 1, annotationDefault), class("a", 1, annotationDefaultBeta))
	f("b", class("b", 2, annotationDefault), class("a", 1, annotationDefault), class("c", 3))
	f(`q\"\\`, class(`q"\`, 1, annotationDefault))

	// Nothing but the text "true" makes a default.
	for _, value := range [...]string{"", "false", "True", " true", "1"} {
		c := class("a", 1).(*storagev1.StorageClass)
		c.Annotations[annotationDefault], c.Annotations[annotationDefaultBeta] = value, value
		f("", c)
	}
}

// TestClaims tries which claims get a class.
func TestClaims(t *testing.T) {
	chain := chain(t, class("fast", 1, annotationDefault))
	f := func(object, want string) {
		t.Helper()
		handlertest.CheckAdmit(t, chain, claims, object, want)
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
	unchanged(`{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":null}}}`) // an API server reads ""
	unchanged(`null`)
}

// What cannot be changed is the plugin's failure: no panic, no patch.
func TestAdmitFailure(t *testing.T) {
	chain := chain(t, class("fast", 1, annotationDefault))
	f := func(object string) {
		t.Helper()
		body := handlertest.Body(codec.Create, claims, object)
		handlertest.CheckOutcome(t, chain, handlers.Mutate, handlers.OutcomeErrored, body)
	}
	f(`{"spec":"claim"}`)
	f(`{"spec":[]}`)
}

func TestHandles(t *testing.T) {
	chain := chain(t, class("fast", 1, annotationDefault))
	f := func(operation codec.Operation, resource string, want handlers.Outcome) {
		t.Helper()
		handlertest.CheckOutcome(t, chain, handlers.Mutate, want, handlertest.Body(operation, resource, `{"spec":{}}`))
	}
	f(codec.Create, claims, handlers.OutcomePatched)
	f(codec.Update, claims, handlers.OutcomeAllowed)
	f(codec.Delete, claims, handlers.OutcomeAllowed)
	f(codec.Create, "v1/persistentvolumes", handlers.OutcomeAllowed)
	f(codec.Create, "example.com/v1/persistentvolumeclaims", handlers.OutcomeAllowed)
}

func TestNoAllocations(t *testing.T) {
	chain := chain(t, class("fast", 1, annotationDefault), class("slow", 2))
	body := corpus.MustRead("persistentvolumeclaims-create-v1-1.json")
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomeAllowed, body)
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomePatched, withoutClass(body))
}

func BenchmarkAdmit(b *testing.B) {
	chain := chain(b, class("fast", 1, annotationDefault), class("slow", 2))
	f := func(name string, want handlers.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { handlertest.Benchmark(b, chain, handlers.Mutate, want, body) })
	}
	body := corpus.MustRead("persistentvolumeclaims-create-v1-1.json")
	f("allowed", handlers.OutcomeAllowed, body)
	f("patched", handlers.OutcomePatched, withoutClass(body))
}

// withoutClass takes the class away that in-tree gave what was recorded.
func withoutClass(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`"storageClassName":"fast",`), nil)
}
