package priority

import (
	"bytes"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.MutatesChain(t, admissiontest.MustChain(t, Plugin(), "", recorded), withoutPriority, "/spec/priority",
		"/spec/preemptionPolicy")
}

// recorded is the priority class in the recordings.
var recorded = class("high", 100_000, false, corev1.PreemptLowerPriority)

// withoutPriority removes the fields that the in-tree plugin set in a recorded review.
func withoutPriority(body []byte) []byte {
	body = bytes.ReplaceAll(body, []byte(`,"priority":100000`), nil)
	body = bytes.ReplaceAll(body, []byte(`,"priority":0`), nil)
	return bytes.ReplaceAll(body, []byte(`,"preemptionPolicy":"PreemptLowerPriority"`), nil)
}

func class(name string, value int32, byDefault bool, policy corev1.PreemptionPolicy) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: byDefault, PreemptionPolicy: &policy,
	}
}

func TestNewPod(t *testing.T) {
	f := func(spec, want string, classes ...runtime.Object) {
		t.Helper()
		admissiontest.CheckAdmit(t, admissiontest.MustChain(t, Plugin(), "", classes...), "v1/pods", `{"spec":`+spec+`}`,
			`{"spec":`+want+`}`)
	}
	high := class("high", 1000, false, corev1.PreemptNever)
	const zero = `{"priority":0,"preemptionPolicy":"PreemptLowerPriority"}`
	f(`{}`, zero)
	f(`{}`, zero, high)
	f(`null`, zero)
	f(`{"priority":null,"preemptionPolicy":null}`, zero)
	f(zero, zero)
	f(`{"priorityClassName":"high"}`, `{"priorityClassName":"high","priority":1000,"preemptionPolicy":"Never"}`, high)

	// The default class, and the lowest if there are several.
	f(`{}`, `{"priorityClassName":"b","priority":-5,"preemptionPolicy":"Never"}`, high,
		class("a", 7, true, corev1.PreemptLowerPriority), class("b", -5, true, corev1.PreemptNever),
		class("c", 8, true, corev1.PreemptNever))
	f(`{}`, `{"priorityClassName":"a","priority":7,"preemptionPolicy":"Never"}`,
		class("b", 7, true, corev1.PreemptNever), class("a", 7, true, corev1.PreemptNever))
}

// TestNoPolicy has a class without a policy, as old API servers wrote them.
func TestNoPolicy(t *testing.T) {
	f := func(spec, want string) {
		t.Helper()
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods", `{"spec":`+spec+`}`)); err != nil {
			t.Fatal(err)
		}
		err := apply(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Value: 2147483647}, review)
		if got := review.Object.Get("spec").JSON(); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", spec, got, err, want)
		}
	}
	f(`{}`, `{"priorityClassName":"old","priority":2147483647}`)
	f(`{"preemptionPolicy":"Never"}`, `{"preemptionPolicy":"Never","priorityClassName":"old","priority":2147483647}`)
}

func TestDeniedPod(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", class("high", 1000, false, corev1.PreemptNever))
	f := func(spec, want string) {
		t.Helper()
		body := admissiontest.Body(codec.Create, "v1/pods", `{"spec":`+spec+`}`)
		got := admissiontest.Answer(t, chain, admission.Mutate, body)
		if want := `"message":"pods \"name\" is forbidden: ` + want + `"`; !bytes.Contains(got, []byte(want)) {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
	}
	f(`{"priorityClassName":"none"}`, `no PriorityClass with name none was found`)
	f(`{"priorityClassName":"none","priority":1}`, `no PriorityClass with name none was found`)
	const number = `the integer value of priority (%d) must not be provided in pod spec; ` +
		`priority admission controller computed %d from the given PriorityClass name`
	f(`{"priority":1}`, fmt.Sprintf(number, 1, 0))
	f(`{"priority":0,"priorityClassName":"high"}`, fmt.Sprintf(number, 0, 1000))
	f(`{"priority":-1,"preemptionPolicy":"odd"}`, fmt.Sprintf(number, -1, 0))
	const policy = `the string value of PreemptionPolicy (%s) must not be provided in pod spec; ` +
		`priority admission controller computed %s from the given PriorityClass name`
	f(`{"preemptionPolicy":"Never"}`, fmt.Sprintf(policy, "Never", "PreemptLowerPriority"))
	f(`{"preemptionPolicy":"PreemptLowerPriority","priorityClassName":"high"}`, fmt.Sprintf(policy, "PreemptLowerPriority", "Never"))
	f(`{"preemptionPolicy":""}`, fmt.Sprintf(policy, "", "PreemptLowerPriority"))
}

func TestUpdatedPod(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(spec, old string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want,
			admissiontest.UpdateBody("v1/pods", `{"spec":`+spec+`}`, `{"spec":`+old+`}`))
	}
	f(`{}`, `{"priority":5}`, admission.OutcomePatched)
	f(`{}`, `{"preemptionPolicy":"Never"}`, admission.OutcomePatched)
	f(`null`, `{"preemptionPolicy":"Never"}`, admission.OutcomePatched)
	f(`{"priority":null}`, `{"priority":5}`, admission.OutcomePatched)
	f(`{"priority":6}`, `{"priority":5}`, admission.OutcomeAllowed)
	f(`{"priority":6}`, `{}`, admission.OutcomeAllowed)
	f(`{}`, `{"priority":null}`, admission.OutcomeAllowed)
	f(`{"priorityClassName":"none"}`, `null`, admission.OutcomeAllowed)
	f(`"spec"`, `{"priority":5}`, admission.OutcomeErrored)
}

// TestOddPods has values that cannot be changed: the plugin fails, without panic or patch.
func TestOddPods(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	for _, pod := range []string{`{"spec":"pod"}`, `{"spec":[]}`, `null`} {
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, admissiontest.Body(codec.Create, "v1/pods", pod))
	}
}

func TestSecondDefault(t *testing.T) {
	const classes = "scheduling.k8s.io/v1/priorityclasses"
	chain := admissiontest.MustChain(t, Plugin(), "", class("first", 10, true, corev1.PreemptNever),
		class("other", 5, false, corev1.PreemptNever))
	empty := admissiontest.MustChain(t, Plugin(), "", class("other", 5, false, corev1.PreemptNever))
	f := func(chain *admission.Chain, operation codec.Operation, resource, object string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.Body(operation, resource, object))
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, admissiontest.Body(operation, classes, object))
	}
	const second, first = `{"metadata":{"name":"second"},"globalDefault":true}`, `{"metadata":{"name":"first"},"globalDefault":true}`
	f(chain, codec.Create, classes, second, admission.OutcomeDenied)
	f(chain, codec.Update, classes, second, admission.OutcomeDenied)
	f(chain, codec.Create, classes, first, admission.OutcomeDenied)
	f(chain, codec.Update, classes, first, admission.OutcomeAllowed)
	f(chain, codec.Delete, classes, second, admission.OutcomeAllowed)
	f(chain, codec.Create, "v1/pods", second, admission.OutcomeAllowed)
	f(chain, codec.Create, "v1/priorityclasses", second, admission.OutcomeAllowed)
	f(empty, codec.Create, classes, second, admission.OutcomeAllowed)
	f(empty, codec.Update, classes, second, admission.OutcomeAllowed)
	for _, object := range []string{`{}`, `{"globalDefault":false}`, `{"globalDefault":null}`, `{"globalDefault":"true"}`, `null`} {
		f(chain, codec.Create, classes, object, admission.OutcomeAllowed)
	}
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", recorded)
	body := corpus.MustRead("pods-create-v1-1.json")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, body)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, withoutPriority(body))
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, corpus.MustRead("pods-update-v1-1.json"))
}

func BenchmarkAdmit(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", recorded)
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Mutate, want, body) })
	}
	body := corpus.MustRead("pods-create-v1-1.json")
	f("allowed", admission.OutcomeAllowed, body)
	f("patched", admission.OutcomePatched, withoutPriority(body))
}
