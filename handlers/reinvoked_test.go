package handlers_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// TestTolerationsReinvoked has PodTolerationRestriction and ExtendedResourceToleration in
// one webhook, and in one each, as described in the README.md of the former. In-tree they
// run in this order, and again after a webhook changed the pod.
// TestTolerationsReinvokedListed in e2e/oracle runs the same in-tree.
func TestTolerationsReinvoked(t *testing.T) {
	const (
		restricts, extends = "PodTolerationRestriction", "ExtendedResourceToleration"
		equal              = "example.com/gpu Equal"
		exists             = "example.com/gpu Exists"
		pressure           = "node.kubernetes.io/memory-pressure Exists"
	)
	var (
		never     = admission.Settings{}
		ifNeeded  = admission.Settings{ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy}
		one       = chainOfAll(t, never, restricts, extends)
		again     = chainOfAll(t, ifNeeded, restricts, extends)
		restrict  = chainOfAll(t, never, restricts)
		extend    = chainOfAll(t, never, extends)
		asInTree  = []string{equal, pressure, exists}
		withoutIt = []string{pressure, exists}
	)
	for _, value := range []string{"", "v"} {
		f := func(about string, want []string, calls ...*admission.Chain) {
			t.Helper()
			object := `{"spec":{"containers":[{"resources":{"requests":{"cpu":"1","example.com/gpu":"1"}}}],` +
				`"tolerations":[{"key":"example.com/gpu","operator":"Equal","value":"` + value + `","effect":"NoSchedule"}]}}`
			for _, chain := range calls {
				object = mutated(t, chain, object)
			}
			if got := tolerated(t, object); !slices.Equal(got, want) {
				t.Errorf("%s, value %q: got %q, want %q", about, value, got, want)
			}
		}
		f("one webhook", asInTree, one)
		f("one webhook, called again, which in-tree does too", withoutIt, one, one)
		f("one webhook whose plugins run again", withoutIt, again)
		f("two webhooks, none called again", asInTree, restrict, extend)
		f("two webhooks, the first called again", withoutIt, restrict, extend, restrict)
		f("two webhooks in the other order", []string{exists, pressure}, extend, restrict)
	}
}

// chainOfAll returns the plugins of these names in one chain.
func chainOfAll(t *testing.T, settings admission.Settings, names ...string) *admission.Chain {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}}
	state, err := cluster.New(cluster.Options{Objects: []runtime.Object{namespace}})
	if err != nil {
		t.Fatal(err)
	}
	enabled := make(map[string]admission.Enabled)
	table := handlers.InTree(handlers.DefaultOptions())
	for _, p := range table {
		if !slices.Contains(names, p.Name) {
			continue
		}
		enabled[p.Name] = admission.Enabled{Settings: settings}
		if err := state.Follow(t.Context(), p.Needs...); err != nil {
			t.Fatal(err)
		}
	}
	chain, err := admission.NewChain(table, enabled, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// mutated returns a pod as a call of a mutating webhook changes it.
func mutated(t *testing.T, chain *admission.Chain, object string) string {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	body := fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",`+
		`"resource":{"group":"","version":"v1","resource":"pods"},"name":"name","namespace":"namespace",`+
		`"operation":"CREATE","object":%s}}`, object)
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	outcome, err := chain.Review(t.Context(), review, admission.Mutate)
	if err != nil || outcome != admission.OutcomePatched {
		t.Fatalf("got %s, %v, want a patch", outcome, err)
	}
	return string(review.Object.Root().AppendJSON(nil))
}

// tolerated returns the key and the operator of each toleration of a pod.
func tolerated(t *testing.T, object string) (shown []string) {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(object), &pod); err != nil {
		t.Fatal(err)
	}
	for _, toleration := range pod.Spec.Tolerations {
		shown = append(shown, toleration.Key+" "+string(toleration.Operator))
	}
	return shown
}
