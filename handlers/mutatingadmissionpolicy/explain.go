package mutatingadmissionpolicy

import (
	"errors"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy"
)

// explainConditions adds a policy that is not evaluated because of its match conditions. err is why they cannot be
// evaluated, if that denies.
func (d *dispatch) explainConditions(i *invocation, err error) {
	spent := d.Input.Spent
	x := admission.PolicyExplanation{}
	x.Why, x.Expressions = d.ExplainConditions(i.policy.Evaluator.compiler, i.policy.Evaluator.matchConditions)
	if err != nil {
		x.Outcome, x.Message = admission.OutcomeDenied.String(), err.Error()
	}
	d.Input.Spent = spent
	policy.Explained(&d.Dispatch, i.policy, i.binding, i.param, x)
}

// explainMutation does what mutate does for the m-th mutation of a policy, and explains it.
func (d *dispatch) explainMutation(i *invocation, m int) error {
	by := i.policy.Evaluator
	mutation := &by.mutations[m]
	before, changes := d.Object.Root().AppendJSON(nil), d.Object.Changes()
	spent := d.Input.Spent
	evaluation := by.compiler.Begin(d.Input, celconfig.RuntimeCELCostBudget)
	expression := evaluation.Explain(mutation.expression, mutation.field, d.Hidden())
	evaluation.End()
	d.Input.Spent = spent
	err := d.mutate(by, mutation)
	x := admission.PolicyExplanation{
		Asked: true, Outcome: admission.OutcomeAllowed.String(), Expressions: []admission.ExpressionExplanation{expression},
	}
	_, refused := errors.AsType[*refusal](err)
	switch {
	case err != nil && i.policy.Ignores && !refused:
		x.Outcome, x.Message = admission.OutcomeErrored.String(), err.Error()+" (ignored, as its failurePolicy says)"
	case err != nil:
		x.Outcome, x.Message = admission.OutcomeDenied.String(), err.Error()
	case d.Object.Changes() > changes && d.Err() == nil:
		x.Outcome = admission.OutcomePatched.String()
		d.AddChanges(admission.Change{Policy: i.policy.Name}, before, d.Object.Root().AppendJSON(nil))
	}
	policy.Explained(&d.Dispatch, i.policy, i.binding, i.param, x)
	return err
}
