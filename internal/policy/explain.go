package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/recording"
)

// An explainer collects what the policies of a plugin decide about a review, and why.
type explainer struct {
	into   *admission.Explanation
	pass   int
	places map[any]int           // of the policies, by their pointers
	whys   map[selectedBy]string // why a policy is evaluated for a binding
	all    []explained
	hidden [][]string // fields of the object
}

// selectedBy is a policy and its binding.
type selectedBy struct {
	policy  any
	binding *Binding
}

// explained is a PolicyExplanation with the place of the policy.
type explained struct {
	place int
	admission.PolicyExplanation
}

// Explain makes d collect what policies decide, until it ends. Call it after Begin; if x is nil, it does nothing. After
// all policies were evaluated, call the result, which adds to x what was collected.
func (d *Dispatch) Explain(x *admission.Explanation) (finish func()) {
	if x == nil {
		return func() {}
	}
	e := &explainer{
		into: x, places: make(map[any]int), whys: make(map[selectedBy]string), hidden: admission.HiddenFields(d.Review),
	}
	d.explainer = e
	return e.finish
}

// Explains reports whether explanations are collected.
func (d *Dispatch) Explains() bool { return d.explainer != nil }

// finish adds the policies in their order. If there are too many, those that were evaluated stay.
func (e *explainer) finish() {
	slices.SortStableFunc(e.all, func(a, b explained) int {
		return cmp.Or(cmp.Compare(a.Pass, b.Pass), cmp.Compare(a.place, b.place), strings.Compare(a.Binding, b.Binding))
	})
	asked := 0
	for i := range e.all {
		if e.all[i].Asked {
			asked++
		}
	}
	others := max(admission.ExplainedMax-asked, 0) // those for which there is room
	for i := range e.all {
		if p := &e.all[i]; p.Asked {
			e.into.AddPolicy(p.PolicyExplanation)
		} else if others--; others >= 0 {
			e.into.AddPolicy(p.PolicyExplanation)
		} else {
			e.into.MorePolicies++
		}
	}
}

// Explained adds what a policy decided for a binding and a parameter. x has what is not in the other arguments. If it is
// another expression of the policy that was added last, both become one.
func Explained[E any](d *Dispatch, p *Policy[E], b *Binding, param *Param, x admission.PolicyExplanation) {
	e := d.explainer
	x.Policy, x.Binding, x.Pass = p.Name, b.Name, e.pass
	if param != nil {
		x.Param = strings.TrimPrefix(param.Namespace+"/"+param.Name, "/")
	}
	if x.Why == "" {
		x.Why = e.whys[selectedBy{p, b}]
	}
	if n := len(e.all); n > 0 {
		last := &e.all[n-1].PolicyExplanation
		if last.Asked && x.Asked && last.Policy == x.Policy && last.Binding == x.Binding && last.Param == x.Param && last.Pass == x.Pass {
			last.Expressions = append(last.Expressions, x.Expressions...)
			last.Outcome, last.Message = x.Outcome, cmp.Or(x.Message, last.Message)
			last.Exception = cmp.Or(x.Exception, last.Exception)
			return
		}
	}
	e.all = append(e.all, explained{e.places[p], x})
}

// AddChanges adds the changes between two texts of the object, made by the Policy or Webhook of by.
func (d *Dispatch) AddChanges(by admission.Change, before, after []byte) {
	changes := admission.Changes(d.Review, before, after)
	for i := range changes {
		changes[i].Policy, changes[i].Webhook = by.Policy, by.Webhook
	}
	x := d.explainer.into
	x.Changes = append(x.Changes, changes[:min(len(changes), max(admission.ExplainedMax-len(x.Changes), 0))]...)
}

// Hidden returns the fields that explanations do not show.
func (d *Dispatch) Hidden() cel.Hidden {
	hidden := cel.Hidden{Object: d.explainer.hidden}
	if d.Input != nil && d.Input.Params != nil && d.param != nil {
		hidden.Params = recording.SecretFields(d.param.Get("kind").String(), false)
	}
	return hidden
}

// ExplainConditions returns the values of match conditions. why is empty if all are true.
func (d *Dispatch) ExplainConditions(c *cel.Compiler, conditions []*cel.Expression) (why string, all []admission.ExpressionExplanation) {
	d.Input.HidesNamespace = true
	evaluation := c.Begin(d.Input, celconfig.RuntimeCELCostBudgetMatchConditions)
	defer evaluation.End()
	hidden := d.Hidden()
	for i, condition := range conditions {
		x := evaluation.Explain(condition, fmt.Sprintf("matchConditions[%d].expression", i), hidden)
		all = append(all, x)
		if x.Value != "true" && (why == "" || x.Value == "false") { // a false one decides, whatever others are
			why = fmt.Sprintf("matchConditions[%d] %s is %s", i, condition.Name, x.Value)
		}
	}
	return why, all
}

// explain adds the policies that are not evaluated, and remembers why the others are.
func (x *Index[E]) explain(d *Dispatch) {
	e := d.explainer
	if e.pass++; e.pass > 1 {
		return
	}
	for place, p := range x.all {
		e.places[p] = place
		p.explain(d, place)
	}
}

// explain is Index.explain for a policy.
func (p *Policy[E]) explain(d *Dispatch, place int) {
	e := d.explainer
	leftOut := func(b *Binding, why string) {
		x := admission.PolicyExplanation{Policy: p.Name, Pass: 1, Why: why}
		if b != nil {
			x.Binding = b.Name
		}
		e.all = append(e.all, explained{place, x})
	}
	failed := func(b *Binding, what string, err error) {
		leftOut(b, "it failed to configure the "+what)
		last := &e.all[len(e.all)-1]
		last.Asked, last.Outcome, last.Message = true, admission.OutcomeErrored.String(), strings.Clone(err.Error())
		if p.Ignores {
			last.Message += " (ignored, as its failurePolicy says)"
		}
	}
	if len(p.bindings()) == 0 {
		leftOut(nil, "no binding names it")
		return
	}
	matches, why := p.matcher.Explain(d)
	if _, err := p.matcher.Matches(d.Ctx, &d.Request, d); err != nil {
		failed(nil, "policy", err)
		return
	}
	switch {
	case !matches:
		leftOut(nil, "matchConstraints: "+why)
		return
	case p.err != nil:
		failed(nil, "policy", p.err)
		return
	}
	for _, b := range p.bindings() {
		params, matched, err := b.collect(d, p.params, p.paramKind)
		if err != nil {
			failed(b, "binding", err)
			continue
		}
		switch _, bound := b.matcher.Explain(d); {
		case !matched:
			leftOut(b, "the binding's matchResources: "+bound)
		case len(params) == 0:
			leftOut(b, "the binding's paramRef finds no parameter, and its parameterNotFoundAction is Allow")
		case bound != "":
			e.whys[selectedBy{p, b}] = why + "; the binding's matchResources: " + bound
		default:
			e.whys[selectedBy{p, b}] = why
		}
	}
}

// Explain returns what Matches does, except errors, and which rule or selector decided.
func (m *Matcher) Explain(d *Dispatch) (matches bool, why string) {
	r := &d.Request
	for i := range m.excludes {
		if e := &m.excludes[i]; e.matches(r, &r.original) || !m.exact && e.matches(r, &r.sent) {
			return false, fmt.Sprintf("excludeResourceRules[%d] %s excludes %s", i, e, &r.sent)
		}
	}
	matches, err := m.matchesRules(r)
	switch {
	case err != nil:
		return false, err.Error()
	case !matches:
		return false, fmt.Sprintf("none of its rules selects %s; they are: %s", r.described(), admission.ListRules(m.rules))
	}
	for i := range m.rules {
		if rule := &m.rules[i]; rule.matches(r, &r.sent) {
			why = fmt.Sprintf("its rule %s selects %s", rule, r.described())
			break
		}
	}
	selected, reason := m.selectors.Explain(d.Ctx, d.Review, &r.sent, d)
	if !selected || why == "" {
		return selected, reason
	}
	return true, strings.TrimSuffix(why+"; "+reason, "; ")
}

// String returns the rule for messages.
func (r *rule) String() string {
	if len(r.names) == 0 {
		return r.Rule.String()
	}
	return r.Rule.String() + " named " + admission.ShownValue(strings.Join(r.names, ", "))
}

// described returns the attributes of a review for messages.
func (r *Request) described() string {
	text := r.sent.String()
	if r.original.Resource != r.sent.Resource {
		text += ", sent as " + resourceName(r.original.Resource)
	}
	if name := r.Name(); name != "" {
		text += " " + name
	}
	return text
}
