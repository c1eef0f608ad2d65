package podnodeselector

import (
	"bytes"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const pods = "v1/pods"

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// namespace returns a namespace with this selector, or without annotations if it is "none".
func namespace(name, selector string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if selector != "none" {
		n.Annotations = map[string]string{annotation: selector}
	}
	return n
}

func TestMutates(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", namespace("shop", "pool=shop,example.com/disk=ssd"),
		namespace("kube-system", "none"))
	admissiontest.MutatesChain(t, chain, nil, "/spec/nodeSelector", "/spec/nodeSelector/*")
}

// TestSelectors checks the selectors of pods in a namespace with the selector a=1,b/c=2.
func TestSelectors(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", namespace("namespace", "b.c/d=2,a=1"))
	const both = `{"spec":{"nodeSelector":{"a":"1","b.c/d":"2"}}}`
	f := func(object, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, pods, object, want)
	}
	f(`{}`, both)
	f(`{"spec":null}`, both)
	f(`{"spec":{}}`, both)
	f(`{"spec":{"nodeSelector":null}}`, both)
	f(`{"spec":{"nodeSelector":{}}}`, both)
	f(`{"spec":{"nodeSelector":{"a":"1"}}}`, both)
	f(`{"spec":{"nodeSelector":{"\u0061":"\u0031"}}}`, `{"spec":{"nodeSelector":{"a":"1","b.c/d":"2"}}}`)
	f(`{"spec":{"nodeSelector":{"A":"1"}}}`, `{"spec":{"nodeSelector":{"A":"1","a":"1","b.c/d":"2"}}}`)

	fails := func(object string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(codec.Create, pods, object))
	}
	fails(`{"spec":{"nodeSelector":{"a":""}}}`, admission.OutcomeDenied)
	fails(`{"spec":{"nodeSelector":{"a":null}}}`, admission.OutcomeDenied) // decodes as ""
	fails(`{"spec":{"nodeSelector":"a=1"}}`, admission.OutcomeErrored)
	fails(`{"spec":[]}`, admission.OutcomeErrored)
	fails(`null`, admission.OutcomeErrored)
}

// TestHandles has upstream's operations and resources.
func TestHandles(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", namespace("namespace", "a=1"))
	f := func(operation codec.Operation, resource string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, admissiontest.Body(operation, resource, `{"spec":{}}`))
	}
	f(codec.Create, pods, admission.OutcomePatched)
	f(codec.Update, pods, admission.OutcomeAllowed)
	f(codec.Delete, pods, admission.OutcomeAllowed)
	f(codec.Connect, pods, admission.OutcomeAllowed)
	f(codec.Create, "v1/podtemplates", admission.OutcomeAllowed)
	f(codec.Create, "example.com/v1/pods", admission.OutcomeAllowed)
}

const listed = "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: pool=general, shop: 'pool=shop,pool2=shop'}"

// TestListed has namespaces in the configuration, one of them with an empty list.
func TestListed(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "podNodeSelectorPluginConfig: {namespace: 'a=1,b=', empty: ''}",
		namespace("namespace", "a=1"), namespace("empty", "a=1"))
	f := func(name, selector string, want admission.Outcome) {
		t.Helper()
		body := admissiontest.Body(codec.Create, pods, `{"spec":{"nodeSelector":`+selector+`}}`)
		body = bytes.Replace(body, []byte(`"namespace":"namespace"`), []byte(`"namespace":"`+name+`"`), 1)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, body)
	}
	f("namespace", `{"a":"1","b":""}`, admission.OutcomeAllowed)
	f("namespace", `{"a":"1","b":"2"}`, admission.OutcomeDenied)
	f("namespace", `{"a":"1","c":""}`, admission.OutcomeDenied)
	f("empty", `{"a":"1","c":"2"}`, admission.OutcomeAllowed)
}

// TestLive has a namespace that is not in the cache.
func TestLive(t *testing.T) {
	for code, want := range map[int32]admission.Outcome{404: admission.OutcomeDenied, 403: admission.OutcomeErrored,
		500: admission.OutcomeErrored} {
		chain := admissiontest.LiveChain(t, Plugin(), func(*http.Request) any {
			reason := map[int32]metav1.StatusReason{404: metav1.StatusReasonNotFound}[code]
			return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}
		})
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, corpus.MustRead("pods-create-v1-1.json"))
	}
}

func TestNoAllocations(t *testing.T) {
	body := corpus.MustRead("pods-create-v1-1.json")
	f := func(chain *admission.Chain, want admission.Outcome) {
		t.Helper()
		admissiontest.NoAllocations(t, chain, admission.Mutate, want, body)
		admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, body)
	}
	f(admissiontest.MustChain(t, Plugin(), "", namespace("shop", "none")), admission.OutcomeAllowed)
	f(admissiontest.MustChain(t, Plugin(), "", namespace("shop", "a=b")), admission.OutcomePatched)
	f(admissiontest.MustChain(t, Plugin(), listed, namespace("shop", "pool=shop")), admission.OutcomePatched)
}

func BenchmarkMutate(b *testing.B) {
	f := func(name string, want admission.Outcome, chain *admission.Chain) {
		b.Run(name, func(b *testing.B) {
			admissiontest.Benchmark(b, chain, admission.Mutate, want, corpus.MustRead("pods-create-v1-1.json"))
		})
	}
	f("none", admission.OutcomeAllowed, admissiontest.MustChain(b, Plugin(), "", namespace("shop", "none")))
	f("patched", admission.OutcomePatched, admissiontest.MustChain(b, Plugin(), listed, namespace("shop", "pool=shop")))
}
