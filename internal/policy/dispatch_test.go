package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// handled notes what it is told of policies, and ends the review at one of them.
type handled struct {
	told []string
	ends string
}

// Evaluate implements Handles.
func (h *handled) Evaluate(p *Policy[string], b *Binding, params []*Param) *admission.Result {
	of := ""
	for _, param := range params {
		of += " null"
		if param != nil {
			of = of[:len(of)-len("null")] + param.Namespace + "/" + param.Name
		}
	}
	h.told = append(h.told, fmt.Sprintf("%s %s%s", p.Name, b.Name, of))
	if b.Name == h.ends {
		return new(admission.Denied(errors.New("no")))
	}
	return nil
}

// Misconfigured implements Handles.
func (h *handled) Misconfigured(p *Policy[string], b *Binding, err error) {
	binding := "none"
	if b != nil {
		binding = b.Name
	}
	h.told = append(h.told, fmt.Sprintf("%s %s: %v", p.Name, binding, err))
}

// TestDispatch has policies be for a review, or not, or nobody can tell (k8s.io/apiserver
// pkg/admission/plugin/policy/generic policy_dispatcher_test.go).
func TestDispatch(t *testing.T) {
	namespaces := cluster.Namespaces.In(viewOf(t, staticConfig, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}))
	asked := &Cluster{Namespaces: namespaces}
	set := metrics.NewSet()
	measured := newSourceMetrics("P", set)
	measured.use([]string{"p"})
	resources := func(text string) *admissionregistrationv1.MatchResources {
		m := new(admissionregistrationv1.MatchResources)
		if err := json.Unmarshal([]byte(text), m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	policyOf := func(match string, err error, bindings ...*Binding) *Policy[string] {
		m, matcherErr := NewMatcher(resources(match))
		if matcherErr != nil {
			t.Fatal(matcherErr)
		}
		return &Policy[string]{
			Name: "p", matcher: m, err: err, bound: newBoundBy(bindings), metrics: measured.of("p"),
			paramKind: &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
			params:    fakeParams{"namespace/a": nil, "namespace/b": nil},
		}
	}
	bindingOf := func(name, match string, ref *admissionregistrationv1.ParamRef, err error) *Binding {
		m, matcherErr := NewMatcher(resources(match))
		if matcherErr != nil {
			t.Fatal(matcherErr)
		}
		return &Binding{Name: name, matcher: m, paramRef: ref, err: err}
	}
	misconfigured := func(b *Binding, p *Policy[string]) uint64 {
		binding, action := "", ActionDeny
		if b != nil {
			binding = b.Name
		}
		if p.Ignores {
			action = ActionAllow
		}
		return measured.newCounter(checked{"p", binding, action, configurationError}).Get()
	}
	f := func(p *Policy[string], at *Binding, ends string, wantEnd bool, want ...string) {
		t.Helper()
		for _, ignores := range []bool{false, true} {
			h := &handled{ends: ends}
			p.Ignores = ignores
			d := new(Dispatch)
			d.Begin(t.Context(), reviewOf(t, admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"n","labels":{"a":"b"}}}`)), asked)
			before := misconfigured(at, p)
			var result *admission.Result
			for _, c := range (&Index[string]{all: Set[string]{p}}).Find(d) {
				result = c.Dispatch(d, h)
			}
			d.End()
			wanted := want
			if ignores {
				wanted = slices.DeleteFunc(slices.Clone(want), func(told string) bool { return told[:2] != "p " || slices.Contains([]byte(told), ':') })
			}
			if !slices.Equal(h.told, wanted) || (result != nil) != wantEnd {
				t.Errorf("ignores %v: got %q, ended %v, want %q, %v", ignores, h.told, result != nil, wanted, wantEnd)
			}
			counted := uint64(0)
			for _, told := range want {
				if slices.Contains([]byte(told), ':') {
					counted++
				}
			}
			if got := misconfigured(at, p) - before; got != counted {
				t.Errorf("%q: got %d counted, want %d", want, got, counted)
			}
		}
	}
	const pods, others = `{"resourceRules":[{` + ruleFields + `}]}`,
		`{"resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["others"]}]}`
	const unknown = `{"matchPolicy":"Equivalent","resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v2"],` +
		`"resources":["pods"]}]}`
	const converted = "failed to convert object version: got v1 pods, want a version that the policy names; let the rules of the " +
		"webhook name the versions that policies do"
	plain, second := bindingOf("b", `{}`, nil, nil), bindingOf("c", `{}`, nil, nil)
	named := bindingOf("d", `{}`, &admissionregistrationv1.ParamRef{Name: "a"}, nil)
	selected := bindingOf("e", `{}`, &admissionregistrationv1.ParamRef{Selector: &metav1.LabelSelector{}}, nil)
	broken := errors.New("it is broken")
	f(policyOf(pods, nil), nil, "", false)
	f(policyOf(unknown, broken), nil, "", false) // without bindings nobody asks
	f(policyOf(pods, nil, plain), nil, "", false, "p b null")
	f(policyOf(pods, nil, plain, second, named, selected), nil, "", false, "p b null", "p c null", "p d namespace/a",
		"p e namespace/a namespace/b")
	f(policyOf(pods, nil, plain, second), nil, "b", true, "p b null")
	f(policyOf(others, broken, plain), nil, "", false)
	f(policyOf(unknown, nil, plain), nil, "", false, "p none: failed to configure policy: "+converted)
	f(policyOf(pods, broken, plain), nil, "", false, "p none: failed to configure policy: it is broken")
	f(policyOf(pods, nil, bindingOf("x", others, nil, nil), plain), nil, "", false, "p b null")
	wrong := bindingOf("x", `{}`, nil, broken)
	f(policyOf(pods, nil, wrong, plain), wrong, "", false, "p x: failed to configure binding: it is broken", "p b null")
	wrong = bindingOf("x", unknown, nil, nil)
	f(policyOf(pods, nil, wrong, plain), wrong, "", false, "p x: failed to configure binding: "+converted, "p b null")
	wrong = bindingOf("x", `{}`, &admissionregistrationv1.ParamRef{Name: "broken"}, nil)
	f(policyOf(pods, nil, wrong, plain), wrong, "", false, "p x: failed to configure binding: cannot read it", "p b null")
	wrong = bindingOf("x", others, nil, broken)
	f(policyOf(pods, nil, wrong), wrong, "", false, "p x: failed to configure binding: it is broken")
}
