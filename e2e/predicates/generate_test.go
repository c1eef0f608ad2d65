package predicates

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/seed"
)

var cases = flag.Int("cases", tally.Cases(10_000, 100_000), "generated cases")

// differencesMax is how many differences a failed test shows.
const differencesMax = 5

// TestGenerated compares both for generated requests and criteria.
func TestGenerated(t *testing.T) {
	g, w := newGenerator(t), newWorld(t)
	tallies := make(map[string]*tally.Row)
	for _, predicate := range predicates {
		tallies[predicate] = &tally.Row{Plugin: predicate, Test: "generated predicates", Cases: *cases}
	}
	counts := make(map[string]int)
	for i := range *cases {
		c, r := g.criteria(), g.request()
		upstream, different := w.compare(t, c, r)
		for _, predicate := range different {
			tallies[predicate].Different = append(tallies[predicate].Different, fmt.Sprintf("case %d", i))
		}
		for predicate, a := range upstream {
			counts[fmt.Sprintf("%s, %s", predicate, kindOf(a))]++
		}
		if slices.ContainsFunc(predicates, func(p string) bool { return len(tallies[p].Different) >= differencesMax }) {
			t.Error("and perhaps more")
			break
		}
	}
	for _, predicate := range predicates {
		mustWrite(t, *tallies[predicate])
		kinds := []string{"matches", "does not match"}
		if predicate == byNamespaceSelector || predicate == byAll {
			kinds = append(kinds, "code 404", "code 500")
		}
		for _, kind := range kinds {
			n := counts[predicate+", "+kind]
			t.Logf("%s: %d of %d: %s", predicate, n, *cases, kind)
			// A generator that rarely produces an answer proves little about it.
			if !t.Failed() && n < *cases/200 {
				t.Errorf("%s: got so few cases of %s, want at least %d", predicate, kind, *cases/200)
			}
		}
	}
}

func kindOf(a answer) string {
	switch {
	case a.Status != nil:
		return fmt.Sprintf("code %d", a.Status.Code)
	case a.Matches:
		return "matches"
	}
	return "does not match"
}

// generator generates requests and criteria. Values come from small pools, so that they often
// match.
type generator struct{ *rand.Rand }

func newGenerator(t *testing.T) *generator { return &generator{seed.Rand(t)} }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// in reports true once in n times.
func (g *generator) in(n int) bool { return g.IntN(n) == 0 }

func some[T any](g *generator, least, most int, one func() T) (list []T) {
	for range least + g.IntN(most-least+1) {
		list = append(list, one())
	}
	return list
}

func (g *generator) label() string { return pick(g, "a", "tier", "example.com/b", "0", "A") }
func (g *generator) value() string { return pick(g, "", "x", "y", "web", "1") }

func (g *generator) labels() map[string]string {
	if g.in(5) {
		return nil
	}
	ls := make(map[string]string)
	for range g.IntN(4) {
		ls[g.label()] = g.value()
	}
	return ls
}

func (g *generator) criteria() *match.Criteria {
	return &match.Criteria{
		Rules:             some(g, 0, 3, g.rule),
		NamespaceSelector: g.selector(),
		ObjectSelector:    g.selector(),
	}
}

func (g *generator) selector() *metav1.LabelSelector {
	if g.in(6) {
		return nil
	}
	s := new(metav1.LabelSelector)
	for range g.IntN(2) {
		s.MatchLabels = map[string]string{g.label(): g.value()}
	}
	s.MatchExpressions = some(g, 0, 2, func() metav1.LabelSelectorRequirement {
		r := metav1.LabelSelectorRequirement{Key: g.label(), Operator: pick(g, metav1.LabelSelectorOpIn,
			metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}
		if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
			r.Values = some(g, 1, 3, g.value)
		}
		return r
	})
	return s
}

// rule generates a rule that an API server accepts.
func (g *generator) rule() admissionregistrationv1.RuleWithOperations {
	r := anyRule()
	if !g.in(3) {
		r.Operations = some(g, 1, 3, func() admissionregistrationv1.OperationType {
			return pick(g, admissionregistrationv1.Create, admissionregistrationv1.Update,
				admissionregistrationv1.Delete, admissionregistrationv1.Connect)
		})
	}
	if !g.in(2) {
		r.APIGroups = some(g, 1, 2, func() string { return pick(g, "", "", "apps", "example.com") })
	}
	if !g.in(2) {
		r.APIVersions = some(g, 1, 2, func() string { return pick(g, "v1", "v1", "v1beta1", "V1") })
	}
	if !g.in(5) {
		r.Resources = some(g, 1, 2, func() string {
			return pick(g, "pods", "Pods", "pods/exec", "pods/eviction", "nodes", "nodes/status", "nodes/proxy",
				"namespaces", "namespaces/finalize", "deployments", "deployments/scale", "widgets", "pods/exec/x", "/", "pods/")
		})
		if g.in(2) {
			r.Resources = []string{pick(g, "*", "*/*", "pods/*", "nodes/*", "namespaces/*", "*/scale", "*/status", "*/exec", "*/", "/*")}
		}
	}
	if !g.in(2) {
		r.Scope = new(pick(g, admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope,
			admissionregistrationv1.NamespacedScope))
	}
	return r
}

// request generates a request for a namespaced object, a cluster-scoped one or a Namespace.
func (g *generator) request() *request {
	r := new(request)
	object := g.about(r)
	switch {
	case r.operation == admission.Connect:
	case r.subresource != "":
		r.operation = pick(g, admission.Create, admission.Update)
	default:
		r.operation = pick(g, admission.Create, admission.Update, admission.Delete)
	}
	if r.operation != admission.Delete && !g.in(50) {
		r.object = object()
	}
	if r.operation == admission.Delete || r.operation == admission.Update {
		r.oldObject = object()
	}
	r.name = pick(g, "", "name")
	if r.namespace != "" {
		r.namespace = pick(g, "shop", "bare", "blank", "new", "new-bare", "missing", "broken")
	}
	if r.resource.Resource == "namespaces" {
		r.name = r.namespace
		if g.in(8) {
			r.name, r.namespace = "", ""
		}
	}
	if g.in(8) {
		r.asVersion = pick(g, "v1", "v1beta1")
	}
	r.edits = g.edits(r.object)
	return r
}

// about sets the resource of the request and returns a function that makes objects of its kind.
func (g *generator) about(r *request) (object func() runtime.Object) {
	meta := func() metav1.ObjectMeta { return metav1.ObjectMeta{Labels: g.labels()} }
	is := func(group, version, kind, resource, subresource, namespace string, object func() runtime.Object) func() runtime.Object {
		r.kind = schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
		r.resource = schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
		r.subresource, r.namespace = subresource, namespace
		return func() runtime.Object {
			o := object()
			o.GetObjectKind().SetGroupVersionKind(r.kind)
			return o
		}
	}
	const namespaced = "some"
	pod := func() runtime.Object { return &corev1.Pod{ObjectMeta: meta()} }
	switch g.IntN(14) {
	case 0, 1:
		return is("", "v1", "Pod", "pods", pick(g, "", "", "", "status", "resize"), namespaced, pod)
	case 2:
		r.operation = admission.Connect
		return is("", "v1", "PodExecOptions", "pods", "exec", namespaced,
			func() runtime.Object { return &corev1.PodExecOptions{Stdin: true} })
	case 3:
		r.operation = admission.Connect
		return is("", "v1", "NodeProxyOptions", "nodes", "proxy", "", func() runtime.Object { return &corev1.NodeProxyOptions{Path: "/"} })
	case 4:
		return is("policy", "v1", "Eviction", "pods", "eviction", namespaced,
			func() runtime.Object { return &policyv1.Eviction{ObjectMeta: meta()} })
	case 5:
		return is("", "v1", "Node", "nodes", pick(g, "", "status"), "", func() runtime.Object { return &corev1.Node{ObjectMeta: meta()} })
	case 6:
		return is("apps", "v1", "Deployment", "deployments", "", namespaced,
			func() runtime.Object { return &appsv1.Deployment{ObjectMeta: meta()} })
	case 7:
		return is("apps", "v1", "Scale", "deployments", "scale", namespaced,
			func() runtime.Object { return &autoscalingv1.Scale{ObjectMeta: meta()} })
	case 8:
		return is("", "v1", "TokenRequest", "serviceaccounts", "token", namespaced,
			func() runtime.Object { return &authenticationv1.TokenRequest{ObjectMeta: meta()} })
	case 9:
		return is("example.com", pick(g, "v1", "v1beta1"), "Widget", "widgets", pick(g, "", "status"), pick(g, "", namespaced), g.custom)
	case 10:
		// Custom resources that are also called namespaces.
		return is(pick(g, "", "example.com"), pick(g, "v1", "v1beta1"), "Namespace", "namespaces", pick(g, "", "", "status"),
			pick(g, "", namespaced), g.custom)
	}
	return is("", "v1", "Namespace", "namespaces", pick(g, "", "", "", "finalize", "status"), namespaced,
		func() runtime.Object { return &corev1.Namespace{ObjectMeta: meta()} })
}

// custom makes a custom resource. Another webhook's patch may have put anything into its labels.
func (g *generator) custom() runtime.Object {
	ls := make(map[string]any)
	for k, v := range g.labels() {
		ls[k] = v
	}
	metadata := map[string]any{"name": "a", "labels": ls}
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": metadata}}
	if g.in(3) {
		ls[g.label()] = pick[any](g, nil, int64(1), true, []any{"x"}, map[string]any{})
	}
	if g.in(10) {
		metadata["labels"] = pick[any](g, nil, "x", int64(1), []any{"x"}, []any{})
	}
	if g.in(20) {
		u.Object["metadata"] = pick[any](g, nil, "x", []any{})
	}
	return u
}

// edits are edits of earlier plugins. They apply to objects of any content.
func (g *generator) edits(object runtime.Object) []edit {
	o, ok := object.(metav1.Object)
	if !ok || !g.in(4) {
		return nil
	}
	if u, ok := object.(*unstructured.Unstructured); ok {
		if _, found, err := unstructured.NestedStringMap(u.Object, "metadata", "labels"); !found || err != nil {
			return nil
		}
	}
	return some(g, 1, 3, func() edit {
		return edit{label: g.label(), value: g.value(), remove: o.GetLabels() != nil && g.in(2)}
	})
}
