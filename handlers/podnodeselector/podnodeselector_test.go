package podnodeselector

import (
	"bytes"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const pods = "v1/pods"

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

// namespace returns one with that selector, without annotations if it is "none".
func namespace(name, selector string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if selector != "none" {
		n.Annotations = map[string]string{annotation: selector}
	}
	return n
}

func TestMutates(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", namespace("shop", "pool=shop,example.com/disk=ssd"), namespace("kube-system", "none"))
	handlertest.MutatesChain(t, chain, nil, "/spec/nodeSelector", "/spec/nodeSelector/*")
}

// TestSelectors has what a pod's selector becomes in a namespace with the
// selector a=1,b/c=2.
func TestSelectors(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", namespace("namespace", "b.c/d=2,a=1"))
	const both = `{"spec":{"nodeSelector":{"a":"1","b.c/d":"2"}}}`
	f := func(object, want string) {
		t.Helper()
		handlertest.CheckAdmit(t, chain, pods, object, want)
	}
	f(`{}`, both)
	f(`{"spec":null}`, both)
	f(`{"spec":{}}`, both)
	f(`{"spec":{"nodeSelector":null}}`, both)
	f(`{"spec":{"nodeSelector":{}}}`, both)
	f(`{"spec":{"nodeSelector":{"a":"1"}}}`, both)
	f(`{"spec":{"nodeSelector":{"\u0061":"\u0031"}}}`, `{"spec":{"nodeSelector":{"a":"1","b.c/d":"2"}}}`)
	f(`{"spec":{"nodeSelector":{"A":"1"}}}`, `{"spec":{"nodeSelector":{"A":"1","a":"1","b.c/d":"2"}}}`)

	fails := func(object string, want handlers.Outcome) {
		t.Helper()
		handlertest.CheckOutcome(t, chain, handlers.Mutate, want, handlertest.Body(codec.Create, pods, object))
	}
	fails(`{"spec":{"nodeSelector":{"a":""}}}`, handlers.OutcomeDenied)
	fails(`{"spec":{"nodeSelector":{"a":null}}}`, handlers.OutcomeDenied) // as the empty text, to Go
	fails(`{"spec":{"nodeSelector":"a=1"}}`, handlers.OutcomeErrored)
	fails(`{"spec":[]}`, handlers.OutcomeErrored)
	fails(`null`, handlers.OutcomeErrored)
}

// TestHandles has the operations and resources of upstream.
func TestHandles(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", namespace("namespace", "a=1"))
	f := func(operation codec.Operation, resource string, want handlers.Outcome) {
		t.Helper()
		handlertest.CheckOutcome(t, chain, handlers.Mutate, want, handlertest.Body(operation, resource, `{"spec":{}}`))
	}
	f(codec.Create, pods, handlers.OutcomePatched)
	f(codec.Update, pods, handlers.OutcomeAllowed)
	f(codec.Delete, pods, handlers.OutcomeAllowed)
	f(codec.Connect, pods, handlers.OutcomeAllowed)
	f(codec.Create, "v1/podtemplates", handlers.OutcomeAllowed)
	f(codec.Create, "example.com/v1/pods", handlers.OutcomeAllowed)
}

const listed = "podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: pool=general, shop: 'pool=shop,pool2=shop'}"

// TestListed has namespaces that the configuration lists, one of them with nothing.
func TestListed(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "podNodeSelectorPluginConfig: {namespace: 'a=1,b=', empty: ''}", namespace("namespace", "a=1"), namespace("empty", "a=1"))
	f := func(name, selector string, want handlers.Outcome) {
		t.Helper()
		body := handlertest.Body(codec.Create, pods, `{"spec":{"nodeSelector":`+selector+`}}`)
		body = bytes.Replace(body, []byte(`"namespace":"namespace"`), []byte(`"namespace":"`+name+`"`), 1)
		handlertest.CheckOutcome(t, chain, handlers.Validate, want, body)
	}
	f("namespace", `{"a":"1","b":""}`, handlers.OutcomeAllowed)
	f("namespace", `{"a":"1","b":"2"}`, handlers.OutcomeDenied)
	f("namespace", `{"a":"1","c":""}`, handlers.OutcomeDenied)
	f("empty", `{"a":"1","c":"2"}`, handlers.OutcomeAllowed)
}

// TestLive is about a namespace that the cache does not have.
func TestLive(t *testing.T) {
	for code, want := range map[int32]handlers.Outcome{404: handlers.OutcomeDenied, 403: handlers.OutcomeErrored, 500: handlers.OutcomeErrored} {
		chain := handlertest.LiveChain(t, Plugin(), func(*http.Request) any {
			reason := map[int32]metav1.StatusReason{404: metav1.StatusReasonNotFound}[code]
			return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}
		})
		handlertest.CheckOutcome(t, chain, handlers.Validate, want, corpus.MustRead("pods-create-v1-1.json"))
	}
}

func TestNoAllocations(t *testing.T) {
	body := corpus.MustRead("pods-create-v1-1.json")
	f := func(chain *handlers.Chain, want handlers.Outcome) {
		t.Helper()
		handlertest.NoAllocations(t, chain, handlers.Mutate, want, body)
		handlertest.NoAllocations(t, chain, handlers.Validate, handlers.OutcomeAllowed, body)
	}
	f(handlertest.MustChain(t, Plugin(), "", namespace("shop", "none")), handlers.OutcomeAllowed)
	f(handlertest.MustChain(t, Plugin(), "", namespace("shop", "a=b")), handlers.OutcomePatched)
	f(handlertest.MustChain(t, Plugin(), listed, namespace("shop", "pool=shop")), handlers.OutcomePatched)
}

func BenchmarkMutate(b *testing.B) {
	f := func(name string, want handlers.Outcome, chain *handlers.Chain) {
		b.Run(name, func(b *testing.B) {
			handlertest.Benchmark(b, chain, handlers.Mutate, want, corpus.MustRead("pods-create-v1-1.json"))
		})
	}
	f("none", handlers.OutcomeAllowed, handlertest.MustChain(b, Plugin(), "", namespace("shop", "none")))
	f("patched", handlers.OutcomePatched, handlertest.MustChain(b, Plugin(), listed, namespace("shop", "pool=shop")))
}
