package mutatingadmissionpolicy

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// A dispatch is one review on its way through the policies (upstream's
// dispatcher.go).
type dispatch struct {
	policy.Dispatch
	schemas     *schemas.Schemas
	invocations []invocation // of the pass

	failures []string // the messages of what denies
	reason   metav1.StatusReason
}

type boundPolicy = policy.Policy[*mutator]

// An invocation is the evaluation of a policy for a binding and with a parameter.
type invocation struct {
	policy  *boundPolicy
	binding *policy.Binding
	param   *policy.Param // nil for none
}

// is reports whether that is the same invocation in another pass.
func (i *invocation) is(other invocation) bool {
	if i.policy != other.policy || i.binding != other.binding || (i.param == nil) != (other.param == nil) {
		return false
	}
	return i.param == nil || i.param.Namespace == other.param.Namespace && i.param.Name == other.param.Name
}

var dispatches = sync.Pool{New: func() any { return new(dispatch) }}

// release gives d back, which nothing holds then.
func (d *dispatch) release() {
	d.End()
	clear(d.invocations)
	*d = dispatch{invocations: d.invocations[:0]}
	dispatches.Put(d)
}

// admit evaluates policies, and those with reinvocationPolicy IfNeeded again, once.
// kube-apiserver calls all mutating plugins again if one of them asks for it, and
// this one does when it has evaluated a mutation. Of the policies that are not
// evaluated again, the match conditions are: one that fails then denies.
func (d *dispatch) admit(policies policy.Set[*mutator]) admission.Result {
	ended := d.collect(policies)
	if ended != nil {
		return *ended
	}
	var again []invocation
	mutated, ended := d.pass(func(i *invocation) bool {
		if i.policy.Evaluator.reinvokes {
			again = append(again, *i)
		}
		return true
	})
	if ended == nil && mutated && len(d.failures) == 0 {
		if ended = d.collect(policies); ended == nil {
			_, ended = d.pass(func(i *invocation) bool { return slices.ContainsFunc(again, i.is) })
		}
	}
	if ended != nil {
		return *ended
	}
	return d.result()
}

// collect finds out which policies are for the review, all of them before the first
// is evaluated.
func (d *dispatch) collect(policies policy.Set[*mutator]) *admission.Result {
	d.invocations = d.invocations[:0]
	for _, p := range policies {
		if ended := p.Dispatch(&d.Dispatch, d); ended != nil {
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

// pass evaluates the invocations whose match conditions hold and that wanted wants.
// It reports whether a mutation was evaluated, also one that changed nothing.
func (d *dispatch) pass(wanted func(*invocation) bool) (mutated bool, ended *admission.Result) {
	for i := range d.invocations { // one for each parameter, of which users may write any number
		if err := d.Ctx.Err(); err != nil {
			return false, new(admission.Errored(err))
		}
		invocation := &d.invocations[i]
		p, before := invocation.policy, d.Input.Spent
		d.SetParam(invocation.param)
		matches, err := p.Evaluator.compiler.Matches(p.Evaluator.matchConditions, d.Input, p.Ignores)
		if err != nil {
			p.CountError(invocation.binding, policy.ActionDeny, err.Error())
			d.fail(p, invocation.binding, metav1.StatusReasonInvalid, err)
			continue
		}
		if !matches || !wanted(invocation) || d.Object.Root().Kind() != codec.KindObject {
			continue
		}
		d.Input.HidesNamespace = false
		for m := range p.Evaluator.mutations {
			err := d.mutate(p.Evaluator.compiler, &p.Evaluator.mutations[m])
			switch unserved, isUnserved := errors.AsType[*unservedError](err); {
			case d.Err() != nil:
				return false, new(admission.Allowed()) // which the chain makes a denial or a failure of
			case err == nil:
				mutated = true
			case d.Ctx.Err() != nil:
				return false, new(admission.Errored(d.Ctx.Err()))
			case isUnserved:
				p.CountError(invocation.binding, policy.ActionDeny, err.Error())
				return false, new(admission.Denied(unserved.Denial()))
			case !p.Ignores:
				p.CountError(invocation.binding, policy.ActionDeny, err.Error())
				d.fail(p, invocation.binding, metav1.StatusReasonInvalid, err)
			default:
				p.CountError(invocation.binding, policy.ActionAllow, err.Error())
			}
		}
		p.CountCost(d.Input.Spent - before)
	}
	return mutated, nil
}

// mutate evaluates a mutation and does to the object what it says. An error leaves
// the object as it is.
func (d *dispatch) mutate(compiler *cel.Compiler, m *mutation) error {
	if m.expression.Err != nil {
		return m.expression.Err
	}
	evaluation := compiler.Begin(d.Input, celconfig.RuntimeCELCostBudget)
	defer evaluation.End()
	value, err, fatal := evaluation.Evaluate(m.expression)
	if err = errors.Join(err, fatal); err != nil {
		return err
	}
	root := d.Object.Root()
	if !root.FitsDecoded() {
		return d.Err()
	}
	p := patch{ctx: d.Ctx, memory: evaluation, schemas: d.schemas, kind: d.Kind(), before: root.AppendJSON(nil)}
	if err := m.patch(&p, value); err != nil || p.after == nil {
		return err
	}
	return diff.Change(&d.Object, p.before, p.after)
}

// fail remembers what denies the request: the first failure, and others as long as there is memory.
// Users may write any number of parameters.
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

// result returns what the plugin says when all policies were evaluated.
func (d *dispatch) result() admission.Result {
	if len(d.failures) == 0 {
		return admission.Allowed()
	}
	result := admission.Denied(admission.Forbidden(d.Review, errors.New(d.failures[0])))
	status := result.Denial
	status.Message = d.failures[0]
	if d.reason != "" {
		status.Reason = string(d.reason) // and the code of Forbidden, as there
	}
	for _, message := range d.failures {
		status.Details.Causes = append(status.Details.Causes, codec.Cause{Message: message})
	}
	return result
}
