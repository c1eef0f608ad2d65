package defaultingressclass

import (
	"bytes"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const (
	ingresses = "networking.k8s.io/v1/ingresses"
	recording = "ingresses-create-v1-1.json"
)

// class returns a class that was created at that second, with that value of the
// annotation, which makes it a default one.
func class(name string, second int64, isDefault string) runtime.Object {
	return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.Unix(second, 0),
		Annotations: map[string]string{"ingressclass.kubernetes.io/is-default-class": isDefault},
	}}
}

func chain(t testing.TB, classes ...runtime.Object) *handlers.Chain {
	t.Helper()
	return handlertest.MustChain(t, Plugin(), "", classes...)
}

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	handlertest.MutatesChain(t, chain(t, class("nginx", 1, "true")), nil, "/spec/ingressClassName")
}

// TestDefault tries which class an Ingress without one gets.
func TestDefault(t *testing.T) {
	f := func(want string, classes ...runtime.Object) {
		t.Helper()
		if want != "" {
			want = `"ingressClassName":"` + want + `"`
		}
		handlertest.CheckAdmit(t, chain(t, classes...), ingresses, `{"spec":{}}`, `{"spec":{`+want+`}}`)
	}
	f("")
	f("", class("a", 1, "false"), class("b", 2, ""), class("c", 3, "True"), class("d", 4, " true"), class("e", 5, "1"))
	f("", &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	f("b", class("a", 2, "false"), class("b", 1, "true"))
	f("a", class("b", 1, "true"), class("a", 1, "true"))
	f("b", class("a", 1, "true"), class("b", 2, "true"), class("c", 3, "false"))
	f(`q\"\\`, class(`q"\`, 1, "true"))
}

// TestIngresses tries which Ingresses get a class.
func TestIngresses(t *testing.T) {
	chain := chain(t, class("nginx", 1, "true"))
	f := func(object, want string) {
		t.Helper()
		handlertest.CheckAdmit(t, chain, ingresses, object, want)
	}
	unchanged := func(object string) {
		t.Helper()
		f(object, object)
	}
	f(`{"spec":{"ingressClassName":null}}`, `{"spec":{"ingressClassName":"nginx"}}`)
	f(`{"spec":null}`, `{"spec":{"ingressClassName":"nginx"}}`)
	f(`{}`, `{"spec":{"ingressClassName":"nginx"}}`)
	f(`{"metadata":{"annotations":{"kubernetes.io/ingress.classes":"x"}},"spec":{"rules":[]}}`,
		`{"metadata":{"annotations":{"kubernetes.io/ingress.classes":"x"}},"spec":{"rules":[],"ingressClassName":"nginx"}}`)

	unchanged(`{"spec":{"ingressClassName":"other"}}`)
	unchanged(`{"spec":{"ingressClassName":""}}`)
	unchanged(`{"metadata":{"annotations":{"kubernetes.io/ingress.class":"other"}}}`)
	unchanged(`{"metadata":{"annotations":{"kubernetes.io/ingress.class":""}}}`)
	unchanged(`{"metadata":{"annotations":{"kubernetes.io/ingress.class":null}}}`) // an API server reads ""
}

// What cannot be changed is the plugin's failure: no panic, no patch.
func TestAdmitFailure(t *testing.T) {
	chain := chain(t, class("nginx", 1, "true"))
	f := func(object string) {
		t.Helper()
		body := handlertest.Body(codec.Create, ingresses, object)
		handlertest.CheckOutcome(t, chain, handlers.Mutate, handlers.OutcomeErrored, body)
	}
	f(`{"spec":"ingress"}`)
	f(`{"spec":[]}`)
	f(`null`)
}

func TestHandles(t *testing.T) {
	chain := chain(t, class("nginx", 1, "true"))
	f := func(operation codec.Operation, resource string, want handlers.Outcome) {
		t.Helper()
		handlertest.CheckOutcome(t, chain, handlers.Mutate, want, handlertest.Body(operation, resource, `{"spec":{}}`))
	}
	f(codec.Create, ingresses, handlers.OutcomePatched)
	f(codec.Update, ingresses, handlers.OutcomeAllowed)
	f(codec.Delete, ingresses, handlers.OutcomeAllowed)
	f(codec.Create, "networking.k8s.io/v1/ingressclasses", handlers.OutcomeAllowed)
	f(codec.Create, "v1/ingresses", handlers.OutcomeAllowed)
	f(codec.Create, "config.openshift.io/v1/ingresses", handlers.OutcomeAllowed)
}

func TestNoAllocations(t *testing.T) {
	chain := chain(t, class("nginx", 1, "true"), class("other", 2, "false"))
	body := corpus.MustRead(recording)
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomePatched, body)
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomeAllowed, withClass(body))
}

func BenchmarkAdmit(b *testing.B) {
	chain := chain(b, class("nginx", 1, "true"), class("other", 2, "false"))
	f := func(name string, want handlers.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { handlertest.Benchmark(b, chain, handlers.Mutate, want, body) })
	}
	body := corpus.MustRead(recording)
	f("allowed", handlers.OutcomeAllowed, withClass(body))
	f("patched", handlers.OutcomePatched, body)
}

func withClass(body []byte) []byte {
	return bytes.Replace(body, []byte(`"spec":{"rules"`), []byte(`"spec":{"ingressClassName":"other","rules"`), 1)
}
