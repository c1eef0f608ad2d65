package podtolerationrestriction

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const (
	pods      = "v1/pods"
	gpu       = `{"key":"gpu","operator":"Exists","effect":"NoSchedule"}`
	anything  = `{"operator":"Exists"}`
	memory    = `{"key":"node.kubernetes.io/memory-pressure","operator":"Exists","effect":"NoSchedule"}`
	container = `{"name":"a","resources":{"requests":{"cpu":"1"}}}`
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// namespace returns a namespace with these annotations, given as alternating keys and
// values.
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
		chain := admissiontest.MustChain(t, Plugin(), "", namespace("shop", annotationDefault, standard), namespace("kube-system"))
		admissiontest.MutatesChain(t, chain, nil, places...)
	}
	f(`[`+gpu+`]`, "/spec/tolerations/*")
	f(`[{"key":"dedicated","operator":"Exists"},`+gpu+`]`, "/spec/tolerations", "/spec/tolerations/*", "/spec/tolerations/*/*")
	f(`[`+anything+`]`, "/spec/tolerations", "/spec/tolerations/*", "/spec/tolerations/*/*")
}

// TestOddPods has pods that no API server sends, in a namespace with tolerations.
func TestOddPods(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", namespace("namespace", annotationDefault, `[`+gpu+`]`))
	f := func(object, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, pods, object, want)
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
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, admissiontest.Body(codec.Create, pods, object))
	}
	fails(`{"spec":{"tolerations":"all"}}`)
	fails(`{"spec":[]}`)
	fails(`null`)
}

// TestPressure checks which pods tolerate memory pressure.
func TestPressure(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", namespace("namespace"))
	f := func(want bool, pod string) {
		t.Helper()
		outcome := admission.OutcomeAllowed
		if want {
			outcome = admission.OutcomePatched
		}
		admissiontest.CheckOutcome(t, chain, admission.Mutate, outcome, admissiontest.Body(codec.Create, pods, pod))
	}
	f(true, `{"spec":{"containers":[`+container+`]}}`)
	f(true, `{"spec":{"containers":[{"resources":{"requests":{"cpu":1}}}]}}`) // as Quantity.UnmarshalJSON accepts
	f(true, `{"spec":{"containers":[{"resources":{"limits":{"memory":"1n"}}}]}}`)
	f(true, `{"spec":{"containers":[{}],"initContainers":[{"resources":{"requests":{"memory":"1Ki"}}}]}}`)
	f(true, `{"spec":{"resources":{"requests":{"cpu":"100m"}},"containers":[{}]}}`)
	f(true, `{"status":{"qosClass":"Burstable"}}`)
	f(true, `{"status":{"qosClass":"odd"}}`)
	f(false, `{"status":{"qosClass":"BestEffort"},"spec":{"containers":[`+container+`]}}`)
	f(true, `{"spec":{"resources":{},"containers":[`+container+`]}}`)
	f(false, `{"spec":{"resources":{"limits":{"hugepages-2Mi":"2Mi"}},"containers":[`+container+`]}}`)
	f(true, `{"spec":{"resources":null,"containers":[`+container+`]}}`)
	f(false, `{"spec":{"containers":[{"resources":{"requests":{"cpu":"0","memory":"0Ki","example.com/gpu":"1"}}}]}}`)
	f(false, `{"spec":{"containers":[{"resources":{"requests":{"memory":"much"}}}]}}`)
	f(true, `{"spec":{"containers":[{"resources":{"requests":{"cpu":"-1"}}}]}}`) // as in-tree; validation refuses it later
	f(false, `{"spec":{"ephemeralContainers":[`+container+`]}}`)
	f(false, `{"spec":{"containers":[`+container+`],"tolerations":[`+memory+`]}}`)
	f(false, `{"spec":{"containers":[`+container+`],"tolerations":[`+anything+`]}}`)
}

// TestPressureByRelease tests pods whose QoS class is another one in older releases.
func TestPressureByRelease(t *testing.T) {
	type wants map[string]bool
	const one, zero, negative = `{"requests":{"cpu":"1"}}`, `{"requests":{"cpu":"0"}}`, `{"requests":{"cpu":"-1"}}`
	whole := func(resources, container string) string {
		return `{"spec":{"resources":` + resources + `,"containers":[` + container + `]}}`
	}
	for pod, want := range map[string]wants{
		whole(one, `{}`):       {"1.33": false, "1.34": true, "1.36": true, "1.37": true},
		whole(`{}`, container): {"1.33": true, "1.34": false, "1.36": false, "1.37": true},
		whole(negative, `{}`):  {"1.33": false, "1.36": false, "1.37": true},
		whole(zero, container): {"1.33": true, "1.36": false, "1.37": false},
		`{"spec":{"containers":[{"resources":` + negative + `}]}}`: {"1.33": false, "1.36": false, "1.37": true},
	} {
		for release, pressed := range want {
			chain := admissiontest.MustChain(t, admissiontest.Emulating(t, Plugin(), release), "", namespace("namespace"))
			outcome := admission.OutcomeAllowed
			if pressed {
				outcome = admission.OutcomePatched
			}
			admissiontest.CheckOutcome(t, chain, admission.Mutate, outcome, admissiontest.Body(codec.Create, pods, pod))
		}
	}
}

// TestMany has more tolerations than package tolerations compares pairwise.
func TestMany(t *testing.T) {
	const comparedMax = 64
	pod := func(n int, more string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `{"key":"k%d","operator":"Exists"},`, i)
		}
		return `{"spec":{"tolerations":[` + b.String() + more + `]}}`
	}
	f := func(phase admission.Phase, n int, more string, want admission.Outcome, annotations ...string) {
		t.Helper()
		chain := admissiontest.MustChain(t, Plugin(), "", namespace("namespace", annotations...))
		admissiontest.CheckOutcome(t, chain, phase, want, admissiontest.Body(codec.Create, pods, pod(n, more)))
	}
	for _, n := range []int{comparedMax - 3, comparedMax - 2, comparedMax - 1, comparedMax, 20 * comparedMax} {
		f(admission.Validate, n, gpu, admission.OutcomeAllowed, annotationWhitelist, `[`+anything+`]`)
		f(admission.Validate, n, gpu, admission.OutcomeDenied, annotationWhitelist, `[`+gpu+`]`)
		f(admission.Mutate, n, gpu, admission.OutcomePatched, annotationDefault, `[`+memory+`]`)
		f(admission.Mutate, n, gpu, admission.OutcomeAllowed, annotationDefault, `[`+gpu+`]`)
	}
	const few = 3
	chain := admissiontest.MustChain(t, Plugin(), "",
		namespace("namespace", annotationDefault, `[`+strings.Repeat(gpu+`,`, 5*comparedMax)+gpu+`]`))
	admissiontest.CheckAdmit(t, chain, pods, pod(few, gpu), pod(few, gpu))
	admissiontest.CheckAdmit(t, chain, pods, pod(few, memory), pod(few, memory+","+gpu))
}

// TestOneToleration has a pod whose only toleration is not in its namespace's whitelist.
func TestOneToleration(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", namespace("namespace", annotationWhitelist, `[`+gpu+`]`))
	for toleration, want := range map[string]admission.Outcome{gpu: admission.OutcomeAllowed, memory: admission.OutcomeDenied} {
		admissiontest.CheckOutcome(t, chain, admission.Validate, want,
			admissiontest.Body(codec.Create, pods, `{"spec":{"tolerations":[`+toleration+`]}}`))
	}
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

func TestHandles(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", namespace("namespace"))
	admissiontest.CheckPodsCreateUpdate(t, chain, `{"spec":{"containers":[`+container+`]}}`)
}

func TestNoAllocations(t *testing.T) {
	create, update := corpus.MustRead("pods-create-v1-1.json"), corpus.MustRead("pods-update-v1-1.json")
	chain := admissiontest.MustChain(t, Plugin(), "", namespace("shop"))
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, create)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, update)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, create)
	admissiontest.NoAllocations(t, restricting(t), admission.Mutate, admission.OutcomePatched, create)
	admissiontest.NoAllocations(t, restricting(t), admission.Validate, admission.OutcomeAllowed, create)
	covered := admissiontest.MustChain(t, Plugin(), "", namespace("shop", annotationDefault, `[`+anything+`]`))
	admissiontest.NoAllocations(t, covered, admission.Mutate, admission.OutcomePatched, create)
}

// restricting returns a chain that adds a toleration, and has a whitelist.
func restricting(t testing.TB) *admission.Chain {
	return admissiontest.MustChain(t, Plugin(), "", namespace("shop",
		annotationDefault, `[`+gpu+`]`,
		annotationWhitelist, `[{"key":"dedicated","operator":"Exists"},{"operator":"Exists","effect":"NoExecute"},`+gpu+`,`+memory+`]`))
}

func BenchmarkMutate(b *testing.B) {
	f := func(name string, chain *admission.Chain) {
		b.Run(name, func(b *testing.B) {
			admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomePatched, corpus.MustRead("pods-create-v1-1.json"))
		})
	}
	f("pressure", admissiontest.MustChain(b, Plugin(), "", namespace("shop")))
	f("all", restricting(b))
}

func BenchmarkValidate(b *testing.B) {
	f := func(name string, chain *admission.Chain) {
		b.Run(name, func(b *testing.B) {
			admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
		})
	}
	f("none", admissiontest.MustChain(b, Plugin(), "", namespace("shop")))
	f("whitelist", restricting(b))
}
