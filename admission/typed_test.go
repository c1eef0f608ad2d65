package admission_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

type podFunc func(ctx context.Context, review *codec.Review, pod, old *corev1.Pod) admission.Result

// typedChain returns a chain of a plugin with these functions.
func typedChain(t testing.TB, rule admission.Rule, admit, validate podFunc) *admission.Chain {
	t.Helper()
	plugin := admission.Plugin{
		Name: "Typed", Rules: []admission.Rule{rule}, Mutates: admit != nil, Validates: validate != nil,
		New: func(admission.Setup) (h admission.Handler, err error) {
			if admit != nil {
				h.Admit = admission.AdmitTyped(admit)
			}
			if validate != nil {
				h.Validate = admission.ValidateTyped(validate)
			}
			return h, nil
		},
	}
	return admissiontest.MustChain(t, plugin, "")
}

// share makes all containers share the network of the node.
func share(_ context.Context, _ *codec.Review, pod, _ *corev1.Pod) admission.Result {
	pod.Spec.HostNetwork = true
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].ImagePullPolicy = corev1.PullAlways
	}
	return admission.Allowed()
}

func TestAdmitTyped(t *testing.T) {
	chain := typedChain(t, admission.CreateUpdate("pods"), share, nil)
	admissiontest.CheckAdmit(t, chain, "v1/pods",
		`{"new":[1e0],"spec":{"Containers":1,"containers":[{"name":"a","fieldOfTomorrow":12345678901234567890}]}}`,
		`{"new":[1e0],"spec":{"Containers":1,"containers":[{"name":"a","fieldOfTomorrow":12345678901234567890,`+
			`"imagePullPolicy":"Always"}],"hostNetwork":true}}`)
	admissiontest.CheckAdmit(t, chain, "v1/pods", `{}`, `{"spec":{"hostNetwork":true}}`)
	admissiontest.MutatesChain(t, chain, nil, "/spec/hostNetwork", "/spec/containers/*/imagePullPolicy", "/spec")
}

// TestAdmitTypedObjects checks the objects that the function gets.
func TestAdmitTypedObjects(t *testing.T) {
	f := func(body []byte, want string) {
		t.Helper()
		name := func(pod *corev1.Pod) string {
			if pod == nil {
				return "none"
			}
			return pod.Name
		}
		got := ""
		look := func(_ context.Context, _ *codec.Review, pod, old *corev1.Pod) admission.Result {
			got = name(pod) + " " + name(old)
			return admission.Allowed()
		}
		chain := typedChain(t, admission.Any(), look, look)
		for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
			admissiontest.CheckOutcome(t, chain, phase, admission.OutcomeAllowed, body)
			if got != want {
				t.Errorf("%s %s: got %q, want %q", phase, body, got, want)
			}
		}
	}
	const a, b = `{"metadata":{"name":"a"}}`, `{"metadata":{"name":"b"}}`
	f(admissiontest.Body(codec.Create, "v1/pods", a), "a none")
	f(admissiontest.UpdateBody("v1/pods", a, b), "a b")
	f([]byte(strings.Replace(string(admissiontest.UpdateBody("v1/pods", "null", b)), "UPDATE", "DELETE", 1)), "none b")
}

// TestAdmitTypedRefuses tests a function that denies, one that fails, and one
// that is not called at all.
func TestAdmitTypedRefuses(t *testing.T) {
	f := func(result admission.Result, object, old, want string, asked bool) {
		t.Helper()
		called := false
		decide := func(_ context.Context, _ *codec.Review, pod, _ *corev1.Pod) admission.Result {
			called = true
			pod.Spec.HostNetwork = true // without effect
			return result
		}
		chain := typedChain(t, admission.Any(), decide, decide)
		for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
			review := codec.Acquire()
			if err := review.Decode(admissiontest.UpdateBody("v1/pods", object, old)); err != nil {
				t.Fatal(err)
			}
			called = false
			_, err := chain.Review(context.Background(), review, phase)
			got := fmt.Sprintf("%d %s %v", review.Response.Status.Code, review.Response.Status.Message, err)
			if !strings.Contains(got, want) || review.Object.Changes() != 0 || called != asked {
				t.Errorf("%s: got %s, %d changes, called: %v; want %s, no change, called: %v", phase, got,
					review.Object.Changes(), called, want, asked)
			}
			review.Release()
		}
	}
	f(admission.Denied(errors.New("no")), `{}`, `{}`, "500 Typed: no <nil>", true)
	f(admission.Errored(errors.New("cannot tell")), `{}`, `{}`, "0  admission plugin Typed failed: cannot tell", true)
	f(admission.Allowed(), `{"spec":[]}`, `{}`,
		"400 Typed: cannot decode the object as *v1.Pod: json: cannot unmarshal array into Go struct field Pod.spec", false)
	large := `{"spec":{"containers":[` + strings.Repeat(`{},`, 100_000) + `{}]}}`
	f(admission.Allowed(), large, `{}`, "413 Typed: the object is too large", false)
	f(admission.Allowed(), `{}`, large, "413 Typed: the object is too large", false)
}

// TestAdmitTypedOwned uses the objects of the function after the review was
// released.
func TestAdmitTypedOwned(t *testing.T) {
	body := admissiontest.UpdateBody("v1/pods",
		`{"metadata":{"name":"a","labels":{"k\n":"v"}},"spec":{"containers":[{"resources":{"limits":{"cpu":"1m"}}}]}}`,
		`{"metadata":{"name":"b"}}`)
	admissiontest.CheckOwned(t, body, func(review *codec.Review) any {
		var kept []*corev1.Pod
		admission.AdmitTyped(func(_ context.Context, _ *codec.Review, pod, old *corev1.Pod) admission.Result {
			kept = append(kept, pod, old)
			return admission.Allowed()
		})(context.Background(), review)
		return kept
	})
}
