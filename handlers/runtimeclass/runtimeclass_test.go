package runtimeclass

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.MutatesChain(t, admissiontest.MustChain(t, Plugin(), "", classes()...), sandboxed,
		"/spec/overhead", "/spec/nodeSelector", "/spec/nodeSelector/runtime", "/spec/tolerations/*")
}

// sandboxed sets a runtime class in recorded pods.
func sandboxed(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`"schedulerName":`), []byte(`"runtimeClassName":"sandbox","schedulerName":`))
}

func classes() []runtime.Object {
	amount := func(cpu, memory string) *nodev1.Overhead {
		return &nodev1.Overhead{PodFixed: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	selector := map[string]string{"runtime": "sandbox"}
	return []runtime.Object{
		&nodev1.RuntimeClass{ObjectMeta: meta("plain")},
		&nodev1.RuntimeClass{ObjectMeta: meta("empty"), Overhead: &nodev1.Overhead{}, Scheduling: &nodev1.Scheduling{}},
		&nodev1.RuntimeClass{ObjectMeta: meta("heavy"), Overhead: amount("250m", "128Mi")},
		&nodev1.RuntimeClass{ObjectMeta: meta("sandbox"), Overhead: amount("250m", "128Mi"), Scheduling: &nodev1.Scheduling{
			NodeSelector: selector,
			Tolerations:  []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}},
		}},
		&nodev1.RuntimeClass{ObjectMeta: meta("two"), Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"a": "1", "b": "2", "c": "3"},
		}},
	}
}

func TestAdmit(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", classes()...)
	f := func(spec, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, "v1/pods", `{"spec":`+spec+`}`, `{"spec":`+want+`}`)
	}
	same := func(spec string) { t.Helper(); f(spec, spec) }
	same(`{}`)
	same(`null`)
	same(`{"runtimeClassName":null,"tolerations":[{},{}]}`)
	same(`{"runtimeClassName":"plain","tolerations":[{},{}],"overhead":{"cpu":"1"}}`)
	same(`{"runtimeClassName":"empty"}`)
	f(`{"runtimeClassName":"empty","tolerations":[{},{}]}`, `{"runtimeClassName":"empty","tolerations":[{}]}`)

	const heavy = `{"runtimeClassName":"heavy","overhead":{"cpu":"250m","memory":"128Mi"}}`
	f(`{"runtimeClassName":"heavy"}`, heavy)
	f(`{"runtimeClassName":"heavy","overhead":null}`, heavy)
	f(`{"runtimeClassName":"heavy","overhead":{}}`, heavy)
	f(`{"runtimeClassName":"heavy","overhead":{"cpu":0.25,"memory":"131072Ki"}}`, heavy)
	same(heavy)

	f(`{"runtimeClassName":"sandbox","nodeSelector":{"disk":"ssd"},"tolerations":[{"key":"a"}]}`,
		`{"runtimeClassName":"sandbox","nodeSelector":{"disk":"ssd","runtime":"sandbox"},`+
			`"tolerations":[{"key":"a"},{"key":"sandbox","operator":"Exists"}],`+
			`"overhead":{"cpu":"250m","memory":"128Mi"}}`)
	f(`{"runtimeClassName":"two","nodeSelector":{"b":"2"}}`, `{"runtimeClassName":"two","nodeSelector":{"a":"1","b":"2","c":"3"}}`)
}

func TestDenied(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", classes()...)
	f := func(phase admission.Phase, spec, want string) {
		t.Helper()
		got := admissiontest.Answer(t, chain, phase, admissiontest.Body(codec.Create, "v1/pods", `{"spec":`+spec+`}`))
		message := `"message":"pods \"name\" is forbidden: ` + want + `"`
		if is := bytes.Contains(got, []byte(message)); is != (want != "") || !is && !bytes.Contains(got, []byte(`"allowed":true`)) {
			t.Errorf("%s %s: got %s, want %q", phase, spec, got, want)
		}
	}
	const (
		unknown = `pod rejected: RuntimeClass \"none\" not found`
		other   = `pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead`
		without = `pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`
	)
	both := func(spec, want string) {
		t.Helper()
		f(admission.Mutate, spec, want)
		f(admission.Validate, spec, want)
	}
	both(`{"runtimeClassName":"none"}`, unknown)
	both(`{"runtimeClassName":"heavy","overhead":{"cpu":"250m","memory":"129Mi"}}`, other)
	both(`{"runtimeClassName":"heavy","overhead":{"cpu":"250m"}}`, other)
	both(`{"runtimeClassName":"heavy","overhead":{"cpu":"250m","memory":"128Mi","x/y":"0"}}`, other)
	both(`{"runtimeClassName":"heavy","overhead":{"cpu":"250m","x/y":"128Mi"}}`, other)
	both(`{"runtimeClassName":"heavy","overhead":{"cpu":"250m","memory":"much"}}`, other)
	both(`{"runtimeClassName":"heavy","overhead":{"cpu":"0.25","memory":"131072Ki"}}`, "")
	both(`{"runtimeClassName":"empty","overhead":{"cpu":"1"}}`, other)
	both(`{"runtimeClassName":"empty"}`, "")
	both(`{}`, "")

	f(admission.Validate, `{"runtimeClassName":"heavy"}`, other)
	f(admission.Validate, `{"overhead":{"cpu":"1"}}`, without)
	f(admission.Validate, `{"overhead":{}}`, without)
	f(admission.Validate, `{"overhead":null}`, "")
	f(admission.Validate, `{"runtimeClassName":"plain","overhead":{"cpu":"1"}}`, without)
	f(admission.Validate, `{"runtimeClassName":"two","nodeSelector":{"a":"9"}}`, "")

	const conflict = `conflict: runtimeClass.scheduling.nodeSelector[b] = 2; pod.spec.nodeSelector[b] = `
	f(admission.Mutate, `{"runtimeClassName":"two","nodeSelector":{"b":"9"}}`, conflict+"9")
	f(admission.Mutate, `{"runtimeClassName":"two","nodeSelector":{"c":"9","b":"9"}}`, conflict+"9")
	f(admission.Mutate, `{"runtimeClassName":"two","nodeSelector":{"b":null}}`, conflict)
}

// TestOddOverhead has an invalid quantity where the class has zero.
func TestOddOverhead(t *testing.T) {
	var o codec.Object
	for text, want := range map[string]bool{`{"cpu":"0"}`: true, `{"cpu":"much"}`: false, `{"memory":"0"}`: false,
		`{"cpu":"0","memory":"0"}`: false} {
		o.Reset([]byte(text))
		if got := equals(o.Root(), corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0")}); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func TestHandles(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", classes()...)
	f := func(operation codec.Operation, resource string, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Validate, want,
			admissiontest.Body(operation, resource, `{"spec":{"overhead":{"cpu":"1"}}}`))
	}
	f(codec.Create, "v1/pods", admission.OutcomeDenied)
	f(codec.Update, "v1/pods", admission.OutcomeAllowed)
	f(codec.Delete, "v1/pods", admission.OutcomeAllowed)
	f(codec.Create, "v1/podtemplates", admission.OutcomeAllowed)
	f(codec.Create, "example.com/v1/pods", admission.OutcomeAllowed)
}

// TestFailure has values that cannot be changed: the plugin fails, without panic or patch.
func TestFailure(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", classes()...)
	for _, spec := range []string{
		`{"runtimeClassName":"sandbox","overhead":"1"}`,
		`{"runtimeClassName":"sandbox","nodeSelector":[]}`,
	} {
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored,
			admissiontest.Body(codec.Create, "v1/pods", `{"spec":`+spec+`}`))
	}
}

// TestEndsWithContext merges many tolerations with a context that has ended.
func TestEndsWithContext(t *testing.T) {
	review := codec.Acquire()
	defer review.Release()
	many := strings.Repeat(`{"key":"a","operator":"Exists"},`, 5000)
	if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods", `{"spec":{"tolerations":[`+many+`{}]}}`)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if result := admit(ctx, &nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{}}, review); !errors.Is(result.Err, context.Canceled) {
		t.Errorf("got %+v, want the error of the context", result)
	}
}

func TestMerge(t *testing.T) {
	f := func(tolerations, want string) {
		t.Helper()
		chain := admissiontest.MustChain(t, Plugin(), "", classes()...)
		admissiontest.CheckAdmit(t, chain, "v1/pods",
			`{"spec":{"runtimeClassName":"empty","tolerations":[`+tolerations+`]}}`,
			`{"spec":{"runtimeClassName":"empty","tolerations":[`+want+`]}}`)
	}
	f(``, ``)
	const (
		a          = `{"key":"a","operator":"Exists"}`
		all        = `{"operator":"Exists"}`
		equal      = `{"key":"a","operator":"Equal","value":"v"}`
		other      = `{"key":"a","operator":"Equal","value":"w"}`
		bare       = `{"key":"a","value":"v"}`
		evict      = `{"key":"a","operator":"Exists","effect":"NoExecute"}`
		minute     = `{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":60}`
		hour       = `{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":3600}`
		noSchedule = `{"key":"a","operator":"Exists","effect":"NoSchedule"}`
		later      = `{"key":"a","operator":"Exists","tolerationSeconds":60}`
		odd        = `{"key":"a","operator":"odd"}`
	)
	f(a+`,`+a, a)
	f(a+`,`+all, all)
	f(all+`,`+a, all)
	f(equal+`,`+a, a)
	f(equal+`,`+other+`,`+equal, equal+`,`+other)
	f(bare+`,`+equal, bare) // bare covers equal, but equal does not cover bare
	f(equal+`,`+bare, bare)
	f(bare+`,`+other, bare+`,`+other)
	f(minute+`,`+hour, hour)
	f(hour+`,`+minute, hour)
	f(hour+`,`+evict, evict)
	f(evict+`,`+noSchedule, evict+`,`+noSchedule) // another effect
	f(evict+`,`+later, later)                     // with the effect NoExecute, seconds count
	f(odd+`,`+a, a)
	f(odd+`,`+odd, odd)
	f(odd+`,`+equal, odd+`,`+equal)
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", classes()...)
	body := corpus.MustRead("pods-create-v1-1.json")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, body)
}

func BenchmarkMutate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "", classes()...)
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Mutate, want, body) })
	}
	body := corpus.MustRead("pods-create-v1-1.json")
	f("allowed", admission.OutcomeAllowed, body)
	f("patched", admission.OutcomePatched, sandboxed(body))
}
