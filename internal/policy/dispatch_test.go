package policy

import (
	"bytes"
	"context"
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

// handled records the policies that it is called with, and ends the review at one of them.
type handled struct {
	told, ignored []string
	ends          string
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
	h.told = append(h.told, failure(p, b, err))
}

// Ignored implements Handles.
func (h *handled) Ignored(p *Policy[string], b *Binding, err error) {
	h.ignored = append(h.ignored, failure(p, b, err))
}

func failure(p *Policy[string], b *Binding, err error) string {
	binding := "none"
	if b != nil {
		binding = b.Name
	}
	return fmt.Sprintf("%s %s: %v", p.Name, binding, err)
}

// dispatcher dispatches policies for a review of a Pod, and measures them.
type dispatcher struct {
	t        *testing.T
	asked    *Cluster
	measured *sourceMetrics
}

func newDispatcher(t *testing.T) *dispatcher {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	d := &dispatcher{t, &Cluster{Namespaces: cluster.Namespaces.In(viewOf(t, staticConfig, namespace))},
		newSourceMetrics("P", metrics.NewSet())}
	d.measured.use([]string{"p"})
	return d
}

func (d *dispatcher) matcher(resources string) *Matcher {
	match := new(admissionregistrationv1.MatchResources)
	if err := json.Unmarshal([]byte(resources), match); err != nil {
		d.t.Fatal(err)
	}
	m, err := NewMatcher(match)
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

func (d *dispatcher) policy(match string, err error, bindings ...*Binding) *Policy[string] {
	return &Policy[string]{
		Name: "p", matcher: d.matcher(match), err: err, bound: newBoundBy(bindings), metrics: d.measured.of("p"),
		paramKind: &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
		params:    fakeParams{"namespace/a": nil, "namespace/b": nil},
	}
}

func (d *dispatcher) binding(name, match string, ref *admissionregistrationv1.ParamRef, err error) *Binding {
	return &Binding{Name: name, matcher: d.matcher(match), paramRef: newParamRef(ref), err: err}
}

// misconfigured returns how often the policy was counted as misconfigured with that binding, or without any.
func (d *dispatcher) misconfigured(b *Binding, p *Policy[string]) uint64 {
	binding, action := "", ActionDeny
	if b != nil {
		binding = b.Name
	}
	if p.Ignores {
		action = ActionAllow
	}
	return d.measured.newCounter(checked{"p", binding, action, configurationError}).Get()
}

// askedAs returns a review of Pods that the user asked for in another version.
func askedAs(version string, body []byte) []byte {
	const request = `"request":{`
	asked := fmt.Appendf(nil, `%s"requestResource":{"group":"","version":%q,"resource":"pods"},`, request, version)
	return bytes.Replace(body, []byte(request), asked, 1)
}

// check dispatches two policies: one that denies on failures, and one that ignores them. It expects the calls of the
// handler in want, and that each failure is counted with the binding at. The handler ends the review at the binding
// ends.
func (d *dispatcher) check(p *Policy[string], at *Binding, ends string, wantEnd bool, want ...string) {
	d.t.Helper()
	pod := askedAs("v2", admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"n","labels":{"a":"b"}}}`))
	isFailure := func(told string) bool { return slices.Contains([]byte(told), ':') }
	for _, ignores := range []bool{false, true} {
		h := &handled{ends: ends}
		p.Ignores = ignores
		dispatch := new(Dispatch)
		dispatch.Begin(d.t.Context(), reviewOf(d.t, pod), d.asked)
		before := d.misconfigured(at, p)
		var result *admission.Result
		for _, c := range newIndex(Set[string]{p}).Find(dispatch) {
			result = Evaluate(&c, dispatch, h)
		}
		dispatch.End()
		wanted, wantedIgnored := want, []string(nil)
		if ignores {
			wantedIgnored = slices.DeleteFunc(slices.Clone(want), func(told string) bool { return !isFailure(told) })
			wanted = slices.DeleteFunc(slices.Clone(want), func(told string) bool { return told[:2] != "p " || isFailure(told) })
		}
		if !slices.Equal(h.told, wanted) || !slices.Equal(h.ignored, wantedIgnored) || (result != nil) != wantEnd {
			d.t.Errorf("ignores %v: got %q and %q, ended %v, want %q, %q, %v",
				ignores, h.told, h.ignored, result != nil, wanted, wantedIgnored, wantEnd)
		}
		counted := uint64(0)
		for _, told := range want {
			if isFailure(told) {
				counted++
			}
		}
		if got := d.misconfigured(at, p) - before; got != counted {
			d.t.Errorf("%q: got %d counted, want %d", want, got, counted)
		}
	}
}

// TestDispatch tests policies that match a review, that do not, and whose match fails (k8s.io/apiserver
// pkg/admission/plugin/policy/generic policy_dispatcher_test.go).
func TestDispatch(t *testing.T) {
	d := newDispatcher(t)
	policyOf, bindingOf, f := d.policy, d.binding, d.check
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
	f(policyOf(unknown, broken), nil, "", false) // without bindings, the policy is not matched
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

// largeParams are parameters of a namespace that has too many.
type largeParams struct{}

// OfKind implements Params.
func (p largeParams) OfKind(context.Context, admissionregistrationv1.ParamKind) (ParamObjects, bool, error) {
	return nil, true, &cluster.TooLargeError{}
}

// TestDispatchTooLarge has more parameters than can be cached: the review is denied, whatever
// the failure policy is, and other policies are not asked.
func TestDispatchTooLarge(t *testing.T) {
	d := newDispatcher(t)
	b := d.binding("b", `{}`, &admissionregistrationv1.ParamRef{Name: "a"}, nil)
	for _, ignores := range []bool{false, true} {
		p := d.policy(`{"resourceRules":[{`+ruleFields+`}]}`, nil, b)
		p.params, p.Ignores = largeParams{}, ignores
		dispatch := new(Dispatch)
		dispatch.Begin(t.Context(), reviewOf(t, admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"n"}}`)), d.asked)
		h, before := new(handled), d.misconfigured(b, p)
		var result *admission.Result
		for _, c := range newIndex(Set[string]{p}).Find(dispatch) {
			result = Evaluate(&c, dispatch, h)
		}
		dispatch.End()
		if result == nil || !cluster.IsTooLarge(result.Err) || len(h.told) > 0 || d.misconfigured(b, p) != before+1 {
			t.Errorf("ignores %v: got %+v and %q, want that it is denied", ignores, result, h.told)
		}
	}
}
