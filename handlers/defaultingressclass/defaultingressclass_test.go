package defaultingressclass

import (
	"bytes"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const (
	ingresses = "networking.k8s.io/v1/ingresses"
	recording = "ingresses-create-v1-1.json"
)

// class returns a class with this second of creation and this value of the annotation that
// makes a class the default.
func class(name string, second int64, isDefault string) runtime.Object {
	return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{
		Name: name, CreationTimestamp: metav1.Unix(second, 0),
		Annotations: map[string]string{"ingressclass.kubernetes.io/is-default-class": isDefault},
	}}
}

func chain(t testing.TB, classes ...runtime.Object) *admission.Chain {
	t.Helper()
	return admissiontest.MustChain(t, Plugin(), "", classes...)
}

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.MutatesChain(t, chain(t, class("nginx", 1, "true")), nil, "/spec/ingressClassName")
}

// TestDefault checks which class an Ingress without one gets.
func TestDefault(t *testing.T) {
	f := func(want string, classes ...runtime.Object) {
		t.Helper()
		if want != "" {
			want = `"ingressClassName":"` + want + `"`
		}
		admissiontest.CheckAdmit(t, chain(t, classes...), ingresses, `{"spec":{}}`, `{"spec":{`+want+`}}`)
	}
	f("")
	f("", class("a", 1, "false"), class("b", 2, ""), class("c", 3, "True"), class("d", 4, " true"), class("e", 5, "1"))
	f("", &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	f("b", class("a", 2, "false"), class("b", 1, "true"))
	f("a", class("b", 1, "true"), class("a", 1, "true"))
	f("b", class("a", 1, "true"), class("b", 2, "true"), class("c", 3, "false"))
	f(`q\"\\`, class(`q"\`, 1, "true"))
}

// TestIngresses checks which Ingresses get a class.
func TestIngresses(t *testing.T) {
	chain := chain(t, class("nginx", 1, "true"))
	f := func(object, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, ingresses, object, want)
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
	unchanged(`{"metadata":{"annotations":{"kubernetes.io/ingress.class":null}}}`) // an API server reads null as ""
}

// TestAdmitFailure has values that cannot be changed: the plugin fails, without panic or
// patch.
func TestAdmitFailure(t *testing.T) {
	chain := chain(t, class("nginx", 1, "true"))
	f := func(object string) {
		t.Helper()
		body := admissiontest.Body(codec.Create, ingresses, object)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, body)
	}
	f(`{"spec":"ingress"}`)
	f(`{"spec":[]}`)
	f(`null`)
}

func TestHandles(t *testing.T) {
	chain := chain(t, class("nginx", 1, "true"))
	f := func(operation codec.Operation, resource string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(operation, resource, `{"spec":{}}`))
	}
	f(codec.Create, ingresses, admission.OutcomePatched)
	f(codec.Update, ingresses, admission.OutcomeAllowed)
	f(codec.Delete, ingresses, admission.OutcomeAllowed)
	f(codec.Create, "networking.k8s.io/v1/ingressclasses", admission.OutcomeAllowed)
	f(codec.Create, "v1/ingresses", admission.OutcomeAllowed)
	f(codec.Create, "config.openshift.io/v1/ingresses", admission.OutcomeAllowed)
}

func TestNoAllocations(t *testing.T) {
	chain := chain(t, class("nginx", 1, "true"), class("other", 2, "false"))
	body := corpus.MustRead(recording)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, body)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, withClass(body))
}

func BenchmarkAdmit(b *testing.B) {
	chain := chain(b, class("nginx", 1, "true"), class("other", 2, "false"))
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Mutate, want, body) })
	}
	body := corpus.MustRead(recording)
	f("allowed", admission.OutcomeAllowed, withClass(body))
	f("patched", admission.OutcomePatched, body)
}

func withClass(body []byte) []byte {
	return bytes.Replace(body, []byte(`"spec":{"rules"`), []byte(`"spec":{"ingressClassName":"other","rules"`), 1)
}
