package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// pick returns an element of the list.
func pick[T any](random *rand.Rand, list ...T) T { return list[random.IntN(len(list))] }

// generatedRule returns a rule that may have names.
func generatedRule(random *rand.Rand) (r admissionregistrationv1.NamedRuleWithOperations) {
	r.Operations = []admissionregistrationv1.OperationType{pick[admissionregistrationv1.OperationType](random, "CREATE", "UPDATE", "*")}
	r.APIGroups, r.APIVersions = []string{pick(random, "", "apps", "*")}, []string{pick(random, "v1", "v2", "*")}
	r.Resources = []string{pick(random, "pods", "pods/*", "pods/status", "deployments", "nodes", "namespaces", "*", "*/*")}
	r.Scope = new(pick(random, admissionregistrationv1.AllScopes, admissionregistrationv1.NamespacedScope,
		admissionregistrationv1.ClusterScope))
	if random.IntN(3) == 0 {
		r.ResourceNames = []string{pick(random, "a", "b"), "c"}[:1+random.IntN(2)]
	}
	return r
}

// generatedSelector returns a selector, nil for everything.
func generatedSelector(random *rand.Rand) *metav1.LabelSelector {
	key, value := pick(random, "k", "l", "m"), pick(random, "", "x", "y")
	switch random.IntN(6) {
	case 0:
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	case 1:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"k": "x", "l": value}}
	case 2:
		operator := pick(random, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn)
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: key, Operator: operator, Values: []string{value, "y", "z"}},
		}}
	case 3:
		operator := pick(random, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator}}}
	}
	return nil
}

func generatedMatcher(t *testing.T, random *rand.Rand) *Matcher {
	m := &admissionregistrationv1.MatchResources{
		NamespaceSelector: generatedSelector(random), ObjectSelector: generatedSelector(random),
		MatchPolicy: new(pick(random, admissionregistrationv1.Exact, admissionregistrationv1.Equivalent)),
	}
	for range random.IntN(3) {
		m.ResourceRules = append(m.ResourceRules, generatedRule(random))
	}
	if random.IntN(4) == 0 {
		m.ExcludeResourceRules = append(m.ExcludeResourceRules, generatedRule(random))
	}
	made, err := NewMatcher(m)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// generatedSet returns policies with bindings, some of which have no Matcher.
func generatedSet(t *testing.T, random *rand.Rand, measured *sourceMetrics) (set Set[string]) {
	names := make([]string, random.IntN(60))
	for i := range names {
		names[i] = fmt.Sprintf("p%02d", i)
	}
	measured.use(names)
	for _, name := range names {
		var bindings []*Binding
		for i := range pick(random, 0, 1, 2, 40) {
			b := &Binding{Name: fmt.Sprintf("b%02d", i), matcher: generatedMatcher(t, random)}
			if random.IntN(20) == 0 {
				b.matcher, b.err = nil, fmt.Errorf("%s of %s is invalid", b.Name, name)
			}
			bindings = append(bindings, b)
		}
		set = append(set, &Policy[string]{
			Name: name, matcher: generatedMatcher(t, random), bound: newBoundBy(bindings), metrics: measured.of(name),
		})
	}
	return set
}

func generatedRequest(t *testing.T, random *rand.Rand) *codec.Review {
	labels := pick(random, `null`, `{}`, `{"k":"x"}`, `{"k":"y","l":"x"}`, `{"m":null}`, `{"k":1,"l":"x"}`, `{"l":"","m":"z"}`, `[]`)
	object, oldObject, operation := fmt.Sprintf(`{"metadata":{"labels":%s}}`, labels), `null`, codec.Create
	if random.IntN(2) == 0 {
		oldObject, operation = `{"metadata":{"labels":{"k":"x","m":"y"}}}`, codec.Update
	}
	resource := pick(random, `"","version":"v1","resource":"pods"`, `"","version":"v2","resource":"pods"`,
		`"apps","version":"v1","resource":"deployments"`, `"","version":"v1","resource":"nodes"`,
		`"","version":"v1","resource":"namespaces"`)
	return reviewOf(t, fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",`+
		`"resource":{"group":%s},"requestResource":{"group":%s},"subResource":%q,"name":%q,"namespace":%q,"operation":%q,`+
		`"object":%s,"oldObject":%s}}`, resource, strings.Replace(resource, "v2", "v1", random.IntN(2)), pick(random, "", "status"),
		pick(random, "", "a", "b", "c", "d"), pick(random, "", "plain", "labelled", "missing"), operation, object, oldObject))
}

// dispatchAll checks every policy and every binding.
func dispatchAll(set Set[string], d *Dispatch, h *handled) {
	for _, p := range set {
		if len(p.bindings()) == 0 {
			continue
		}
		matches, err := p.matcher.Matches(d.Ctx, &d.Request, d)
		if err != nil {
			h.Misconfigured(p, nil, fmt.Errorf("failed to configure policy: %w", err))
		}
		if !matches {
			continue
		}
		for _, b := range p.bindings() {
			switch params, matches, err := b.collect(d, nil, nil); {
			case err != nil:
				h.Misconfigured(p, b, fmt.Errorf("failed to configure binding: %w", err))
			case matches:
				h.Evaluate(p, b, params)
			}
		}
	}
}

// TestIndex dispatches generated requests to generated policies. It expects the same result
// as from checking every policy and binding.
func TestIndex(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many seconds with the race detector, and runs one goroutine")
	}
	random := seed.Rand(t)
	namespaces := cluster.Namespaces.In(viewOf(t, staticConfig,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{"k": "x", "l": "y", "m": ""}}}))
	asked := &Cluster{Namespaces: namespaces}
	measured := newSourceMetrics("P", metrics.NewSet())
	told := 0
	for range 100 {
		set := generatedSet(t, random, measured)
		index := newIndex(set)
		for range 40 {
			d := new(Dispatch)
			d.Begin(t.Context(), generatedRequest(t, random), asked)
			want, got := new(handled), new(handled)
			dispatchAll(set, d, want)
			for _, c := range index.Find(d) {
				Evaluate(&c, d, got)
			}
			if !slices.Equal(got.told, want.told) {
				t.Fatalf("%s: got\n%q, want\n%q", d.Object.Root().AppendJSON(nil), got.told, want.told)
			}
			told += len(got.told)
			d.End()
		}
	}
	if told == 0 {
		t.Error("no request matched a policy")
	}
}

// TestIndexBounds fills the Index with its maximum number of attributes, and of candidates. For further ones,
// the candidates are found at each request. Resources for which the same policies are selected share them.
func TestIndexBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many seconds with the race detector, and runs one goroutine")
	}
	matcher := func(m *admissionregistrationv1.MatchResources) *Matcher {
		made, err := NewMatcher(m)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	every := matcher(nil)
	f := func(policies, own, resources, want, wantSize int) {
		t.Helper()
		var set Set[string]
		for range policies {
			set = append(set, &Policy[string]{matcher: every, bound: newBoundBy([]*Binding{{matcher: every}})})
		}
		for i := range own {
			rule := admissionregistrationv1.RuleWithOperations{Operations: []admissionregistrationv1.OperationType{"*"}}
			rule.APIGroups, rule.APIVersions, rule.Resources = []string{""}, []string{"v1"}, []string{fmt.Sprint("r", i)}
			of := &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			}
			set = append(set, &Policy[string]{matcher: matcher(of), bound: newBoundBy([]*Binding{{matcher: every}})})
		}
		x := newIndex(set)
		for i := range resources {
			r := NewRequest(reviewOf(t, admissiontest.Body(codec.Create, fmt.Sprint("v1/r", i), `{}`)))
			for range 2 {
				if got := len(x.of(&r).all); got != policies+min(own, 1) {
					t.Fatalf("%d: got %d candidates, want %d", i, got, policies)
				}
			}
		}
		if got := len(*x.known.Load()); got != want || x.size != wantSize {
			t.Errorf("%d policies, %d of one resource, %d resources: got %d combinations and %d candidates, want %d and %d", policies, own,
				resources, got, x.size, want, wantSize)
		}
	}
	f(1, 0, attributesMax-1, attributesMax-1, 1)
	f(1, 0, attributesMax, attributesMax, 1)
	f(1, 0, attributesMax+1, attributesMax, 1)
	const part = candidatesMax / 64
	f(part, 0, 65, 65, part)
	f(part-1, 65, 63, 63, candidatesMax-part)
	f(part-1, 65, 64, 64, candidatesMax)
	f(part-1, 65, 65, 64, candidatesMax)
}
