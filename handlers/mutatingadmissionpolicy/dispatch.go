package mutatingadmissionpolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/patching"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// A dispatch evaluates the policies for one review (upstream's dispatcher.go).
type dispatch struct {
	policy.Dispatch
	schemas     *schemas.Schemas
	invocations []invocation // of the current pass

	failures []string // the messages of denials
	reason   metav1.StatusReason
}

type boundPolicy = policy.Policy[*mutator]

// An invocation is the evaluation of a policy with a binding and a parameter.
type invocation struct {
	policy  *boundPolicy
	binding *policy.Binding
	param   *policy.Param // nil for none
}

// is reports whether other is the same invocation in another pass.
func (i *invocation) is(other invocation) bool {
	if i.policy != other.policy || i.binding != other.binding || (i.param == nil) != (other.param == nil) {
		return false
	}
	return i.param == nil || i.param.Namespace == other.param.Namespace && i.param.Name == other.param.Name
}

var dispatches = sync.Pool{New: func() any { return new(dispatch) }}

// release returns d to the pool. The caller must not use it after that.
func (d *dispatch) release() {
	d.End()
	clear(d.invocations)
	*d = dispatch{invocations: d.invocations[:0]}
	dispatches.Put(d)
}

// admit evaluates all policies, and then once more those with the reinvocationPolicy
// IfNeeded. In-tree, the second pass runs if a plugin requests a reinvocation; this plugin
// does so after every mutation. The second pass evaluates the match conditions of all
// policies; one that fails denies the request.
func (d *dispatch) admit(policies *policy.Index[*mutator]) admission.Result {
	ended := d.collect(policies)
	if ended != nil {
		return *ended
	}
	if len(d.invocations)+len(d.failures) == 0 {
		return admission.Unchecked(admission.NotSelected)
	}
	generation := patching.Generation(&d.Object, d.Kind())
	var again []invocation
	mutated, ended := d.pass(func(i *invocation) bool {
		if i.policy.Evaluator.reinvokes {
			again = append(again, *i)
		}
		return true
	})
	if ended == nil && mutated && len(d.failures) == 0 {
		patching.KeepGeneration(&d.Object, generation)
		if ended = d.collect(policies); ended == nil {
			_, ended = d.pass(func(i *invocation) bool { return slices.ContainsFunc(again, i.is) })
			patching.KeepGeneration(&d.Object, generation)
		}
	}
	if ended != nil {
		return *ended
	}
	return d.result()
}

// collect determines the policies for the review, all of them before the first one is
// evaluated.
func (d *dispatch) collect(policies *policy.Index[*mutator]) *admission.Result {
	d.invocations = d.invocations[:0]
	found := policies.Find(&d.Dispatch)
	for i := range found {
		if ended := policy.Evaluate(&found[i], &d.Dispatch, d); ended != nil {
			return ended
		}
	}
	if len(d.invocations) == 0 {
		return nil
	}
	return d.Prepare()
}

// Evaluate implements policy.Handles.
func (d *dispatch) Evaluate(p *boundPolicy, b *policy.Binding, params []*policy.Param) *admission.Result {
	for _, param := range params {
		d.invocations = append(d.invocations, invocation{p, b, param})
	}
	return nil
}

// Misconfigured implements policy.Handles.
func (d *dispatch) Misconfigured(p *boundPolicy, b *policy.Binding, err error) {
	d.fail(p, b, "", err)
}

// Ignored implements policy.Handles.
func (d *dispatch) Ignored(p *boundPolicy, b *policy.Binding, err error) {
	d.note(p, b, "", err, false)
}

// note notes an error for reports, if somebody asks for them. rule is the field of the policy that failed, "" for none.
// denies is false if the failurePolicy ignores the error.
func (d *dispatch) note(p *boundPolicy, b *policy.Binding, rule string, err error, denies bool) {
	note := admission.NoteViolation(d.Ctx)
	if note == nil {
		return
	}
	v := admission.Violation{
		Plugin: policy.MutatingKind.Name, Policy: p.Name, Rule: rule, Message: strings.Clone(err.Error()), Denies: denies, Ignored: !denies,
	}
	if b != nil {
		v.Binding = b.Name
	}
	note(v)
}

// ruleOf returns the field of the m-th mutation of a policy.
func ruleOf(m int) string { return fmt.Sprintf("mutations[%d]", m) }

// pass evaluates the invocations that wanted selects and whose match conditions are true. It
// reports whether a mutation was evaluated, even if it changed nothing.
func (d *dispatch) pass(wanted func(*invocation) bool) (mutated bool, ended *admission.Result) {
	for i := range d.invocations { // one per parameter; users may create any number of them
		if err := d.Ctx.Err(); err != nil {
			return false, new(admission.Errored(err))
		}
		invocation := &d.invocations[i]
		p, before := invocation.policy, d.Input.Spent
		begun := p.Begin()
		d.SetParam(invocation.param)
		matches, err := p.Evaluator.compiler.Matches(p.Evaluator.matchConditions, d.Input, p.Ignores)
		if d.Explains() && !matches {
			d.explainConditions(invocation, err)
		}
		if err != nil {
			p.CountError(invocation.binding, policy.ActionDeny, err.Error())
			d.fail(p, invocation.binding, metav1.StatusReasonInvalid, err)
			continue
		}
		if ignored := d.Input.IgnoredCondition; !matches && ignored != nil && len(p.Evaluator.matchConditions) > 0 {
			d.note(p, invocation.binding, "", ignored, false)
		}
		if !matches || !wanted(invocation) || d.Object.Root().Kind() != codec.KindObject {
			continue
		}
		d.Input.HidesNamespace = false
		for m := range p.Evaluator.mutations {
			var err error
			if d.Explains() {
				err = d.explainMutation(invocation, m)
			} else {
				err = d.mutate(p.Evaluator, &p.Evaluator.mutations[m])
			}
			switch refused, isRefused := errors.AsType[*refusal](err); {
			case d.Err() != nil:
				return false, new(admission.Allowed()) // the chain replaces it by a denial or a failure
			case err == nil:
				mutated = true
			case d.Ctx.Err() != nil:
				return false, new(admission.Errored(d.Ctx.Err()))
			case isRefused:
				p.CountError(invocation.binding, policy.ActionDeny, err.Error())
				d.note(p, invocation.binding, ruleOf(m), refused.error, true)
				return false, new(admission.Denied(refused.error))
			case !p.Ignores:
				p.CountError(invocation.binding, policy.ActionDeny, err.Error())
				d.note(p, invocation.binding, ruleOf(m), err, true)
				d.fail(p, invocation.binding, metav1.StatusReasonInvalid, err)
			default:
				p.CountError(invocation.binding, policy.ActionAllow, err.Error())
				d.note(p, invocation.binding, ruleOf(m), err, false)
			}
		}
		p.CountEvaluation(d.Input.Spent-before, begun)
	}
	return mutated, nil
}

// mutate evaluates a mutation and applies it to the object. After an error, the object is
// unchanged.
func (d *dispatch) mutate(by *mutator, m *mutation) error {
	if m.expression.Err != nil {
		return m.expression.Err
	}
	evaluation := by.compiler.Begin(d.Input, celconfig.RuntimeCELCostBudget)
	defer evaluation.End()
	value, err, fatal := evaluation.Evaluate(m.expression)
	if err = errors.Join(err, fatal); err != nil {
		return err
	}
	root := d.Object.Root()
	if !root.FitsDecoded() {
		return d.Err()
	}
	p := patch{ctx: d.Ctx, memory: evaluation, schemas: d.schemas, kind: d.Kind(), before: root.AppendJSON(nil),
		nullTimes: by.nullTimes}
	if err := m.patch(&p, value); err != nil || p.after == nil {
		return err
	}
	return diff.Change(&d.Object, p.before, p.after)
}

// fail records a denial: the first one, and others as long as there is memory, because users may write
// any number of parameters.
func (d *dispatch) fail(p *boundPolicy, b *policy.Binding, reason metav1.StatusReason, err error) {
	message := fmt.Sprintf("policy %q denied request: %s", p.Name, err)
	if b != nil {
		message = fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", p.Name, b.Name, err)
	}
	if len(d.failures) == 0 {
		d.reason = reason
	} else if d.Input != nil && d.Input.Retain(len(message)) != nil {
		return
	}
	d.failures = append(d.failures, message)
}

// result returns the result after all policies were evaluated.
func (d *dispatch) result() admission.Result {
	if len(d.failures) == 0 {
		return admission.Allowed()
	}
	result := admission.Denied(admission.Forbidden(d.Review, errors.New(d.failures[0])))
	status := result.Denial
	status.Message = d.failures[0]
	if d.reason != "" {
		status.Reason = string(d.reason) // with the code of Forbidden, as upstream
	}
	for _, message := range d.failures {
		status.Details.Causes = append(status.Details.Causes, codec.Cause{Message: message})
	}
	return result
}
