package podtolerationrestriction

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const (
	pods      = "v1/pods"
	gpu       = `{"key":"gpu","operator":"Exists","effect":"NoSchedule"}`
	anything  = `{"operator":"Exists"}`
	memory    = `{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"}`
	container = `{"name":"a","resources":{"requests":{"cpu":"1"}}}`
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

// namespace returns one with these annotations, in turns name and text.
func namespace(name string, annotations ...string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: make(map[string]string)}}
	for i := 0; i < len(annotations); i += 2 {
		n.Annotations[annotations[i]] = annotations[i+1]
	}
	return n
}

func TestMutates(t *testing.T) {
	f := func(standard string, places ...string) {
		t.Helper()
		chain := handlertest.MustChain(t, Plugin(), "", namespace("shop", annotationDefault, standard), namespace("kube-system"))
		handlertest.MutatesChain(t, chain, nil, places...)
	}
	f(`[`+gpu+`]`, "/spec/tolerations/*")
	f(`[{"key":"dedicated","operator":"Exists"},`+gpu+`]`, "/spec/tolerations", "/spec/tolerations/*", "/spec/tolerations/*/*")
	f(`[`+anything+`]`, "/spec/tolerations", "/spec/tolerations/*", "/spec/tolerations/*/*")
}

// TestOddPods has what no API server sends, in a namespace with tolerations.
func TestOddPods(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", namespace("namespace", annotationDefault, `[`+gpu+`]`))
	f := func(object, want string) {
		t.Helper()
		handlertest.CheckAdmit(t, chain, pods, object, want)
	}
	f(`{}`, `{"spec":{"tolerations":[`+gpu+`]}}`)
	f(`{"spec":null}`, `{"spec":{"tolerations":[`+gpu+`]}}`)
	f(`{"spec":{"tolerations":null}}`, `{"spec":{"tolerations":[`+gpu+`]}}`)
	f(`{"spec":{"tolerations":[null]}}`, `{"spec":{"tolerations":[null,`+gpu+`]}}`)
	f(`{"spec":{"tolerations":[{"key":"g\u0070u","operator":"Exists"}]}}`, `{"spec":{"tolerations":[{"key":"gpu","operator":"Exists"}]}}`)
	f(`{"spec":{"containers":[1,null,{"resources":{"requests":{"cpu":null,"memory":[]}}}]}}`,
		`{"spec":{"containers":[1,null,{"resources":{"requests":{"cpu":null,"memory":[]}}}],"tolerations":[`+gpu+`]}}`)

	fails := func(object string) {
		t.Helper()
		handlertest.CheckOutcome(t, chain, handlers.Mutate, handlers.OutcomeErrored, handlertest.Body(codec.Create, pods, object))
	}
	fails(`{"spec":{"tolerations":"all"}}`)
	fails(`{"spec":[]}`)
	fails(`null`)
}

// TestPressure is about which pods tolerate that memory is short.
func TestPressure(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", namespace("namespace"))
	f := func(want bool, pod string) {
		t.Helper()
		outcome := handlers.OutcomeAllowed
		if want {
			outcome = handlers.OutcomePatched
		}
		handlertest.CheckOutcome(t, chain, handlers.Mutate, outcome, handlertest.Body(codec.Create, pods, pod))
	}
	f(true, `{"spec":{"containers":[`+container+`]}}`)
	f(true, `{"spec":{"containers":[{"resources":{"requests":{"cpu":1}}}]}}`) // as Quantity.UnmarshalJSON takes it
	f(true, `{"spec":{"containers":[{"resources":{"limits":{"memory":"1n"}}}]}}`)
	f(true, `{"spec":{"containers":[{}],"initContainers":[{"resources":{"requests":{"memory":"1Ki"}}}]}}`)
	f(true, `{"spec":{"resources":{"requests":{"cpu":"100m"}},"containers":[{}]}}`)
	f(true, `{"status":{"qosClass":"Burstable"}}`)
	f(true, `{"status":{"qosClass":"odd"}}`)
	f(false, `{"status":{"qosClass":"BestEffort"},"spec":{"containers":[`+container+`]}}`)
	f(false, `{"spec":{"resources":{},"containers":[`+container+`]}}`)
	f(true, `{"spec":{"resources":null,"containers":[`+container+`]}}`)
	f(false, `{"spec":{"containers":[{"resources":{"requests":{"cpu":"0","memory":"0Ki","example.com/gpu":"1"}}}]}}`)
	f(false, `{"spec":{"containers":[{"resources":{"requests":{"cpu":"-1","memory":"much"}}}]}}`)
	f(false, `{"spec":{"ephemeralContainers":[`+container+`]}}`)
	f(false, `{"spec":{"containers":[`+container+`],"tolerations":[`+memory+`]}}`)
	f(false, `{"spec":{"containers":[`+container+`],"tolerations":[`+anything+`]}}`)
}

// TestMany has more tolerations than package tolerations compares each with each.
func TestMany(t *testing.T) {
	const comparedMax = 64
	pod := func(n int, more string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `{"key":"k%d","operator":"Exists"},`, i)
		}
		return `{"spec":{"tolerations":[` + b.String() + more + `]}}`
	}
	f := func(phase handlers.Phase, n int, more string, want handlers.Outcome, annotations ...string) {
		t.Helper()
		chain := handlertest.MustChain(t, Plugin(), "", namespace("namespace", annotations...))
		handlertest.CheckOutcome(t, chain, phase, want, handlertest.Body(codec.Create, pods, pod(n, more)))
	}
	for _, n := range []int{comparedMax - 3, comparedMax - 2, comparedMax - 1, comparedMax, 20 * comparedMax} {
		f(handlers.Validate, n, gpu, handlers.OutcomeAllowed, annotationWhitelist, `[`+anything+`]`)
		f(handlers.Validate, n, gpu, handlers.OutcomeDenied, annotationWhitelist, `[`+gpu+`]`)
		f(handlers.Mutate, n, gpu, handlers.OutcomePatched, annotationDefault, `[`+memory+`]`)
		f(handlers.Mutate, n, gpu, handlers.OutcomeAllowed, annotationDefault, `[`+gpu+`]`)
	}
	const few = 3
	chain := handlertest.MustChain(t, Plugin(), "", namespace("namespace", annotationDefault, `[`+strings.Repeat(gpu+`,`, 5*comparedMax)+gpu+`]`))
	handlertest.CheckAdmit(t, chain, pods, pod(few, gpu), pod(few, gpu))
	handlertest.CheckAdmit(t, chain, pods, pod(few, memory), pod(few, memory+","+gpu))
}

// TestOneToleration has a pod with nothing but what its namespace does not list.
func TestOneToleration(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", namespace("namespace", annotationWhitelist, `[`+gpu+`]`))
	for toleration, want := range map[string]handlers.Outcome{gpu: handlers.OutcomeAllowed, memory: handlers.OutcomeDenied} {
		handlertest.CheckOutcome(t, chain, handlers.Validate, want, handlertest.Body(codec.Create, pods, `{"spec":{"tolerations":[`+toleration+`]}}`))
	}
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

func TestHandles(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "", namespace("namespace"))
	handlertest.CheckPodsCreateUpdate(t, chain, `{"spec":{"containers":[`+container+`]}}`)
}

func TestNoAllocations(t *testing.T) {
	create, update := corpus.MustRead("pods-create-v1-1.json"), corpus.MustRead("pods-update-v1-1.json")
	chain := handlertest.MustChain(t, Plugin(), "", namespace("shop"))
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomePatched, create)
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomePatched, update)
	handlertest.NoAllocations(t, chain, handlers.Validate, handlers.OutcomeAllowed, create)
	handlertest.NoAllocations(t, restricting(t), handlers.Mutate, handlers.OutcomePatched, create)
	handlertest.NoAllocations(t, restricting(t), handlers.Validate, handlers.OutcomeAllowed, create)
	covered := handlertest.MustChain(t, Plugin(), "", namespace("shop", annotationDefault, `[`+anything+`]`))
	handlertest.NoAllocations(t, covered, handlers.Mutate, handlers.OutcomePatched, create)
}

// restricting returns a chain that adds a toleration, and has a list.
func restricting(t testing.TB) *handlers.Chain {
	return handlertest.MustChain(t, Plugin(), "", namespace("shop",
		annotationDefault, `[`+gpu+`]`,
		annotationWhitelist, `[{"key":"dedicated","operator":"Exists"},{"operator":"Exists","effect":"NoExecute"},`+gpu+`,`+memory+`]`))
}

func BenchmarkMutate(b *testing.B) {
	f := func(name string, chain *handlers.Chain) {
		b.Run(name, func(b *testing.B) {
			handlertest.Benchmark(b, chain, handlers.Mutate, handlers.OutcomePatched, corpus.MustRead("pods-create-v1-1.json"))
		})
	}
	f("pressure", handlertest.MustChain(b, Plugin(), "", namespace("shop")))
	f("all", restricting(b))
}

func BenchmarkValidate(b *testing.B) {
	f := func(name string, chain *handlers.Chain) {
		b.Run(name, func(b *testing.B) {
			handlertest.Benchmark(b, chain, handlers.Validate, handlers.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
		})
	}
	f("none", handlertest.MustChain(b, Plugin(), "", namespace("shop")))
	f("whitelist", restricting(b))
}
