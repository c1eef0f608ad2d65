package validatingadmissionpolicy

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy"
)

// explain adds the outcome of a policy with a binding and a parameter, and the values that made it so.
func (d *dispatch) explain(p *boundPolicy, b *policy.Binding, param *policy.Param, o *evaluation) {
	x := admission.PolicyExplanation{Outcome: admission.OutcomeAllowed.String()}
	x.Why, x.Expressions = d.explainExpressions(p.Evaluator)
	x.Asked = x.Why == ""
	var messages []string
	denies, errs := false, false
	for i := range o.decisions {
		if found := &o.decisions[i]; found.message != "" {
			messages = append(messages, found.message)
			if found.denies {
				x.Messages = append(x.Messages, strings.Clone(found.message))
			}
			denies, errs = denies || found.denies, errs || found.reason == ""
		}
	}
	for _, a := range o.audited {
		if a.err != "" {
			messages, denies = append(messages, a.err), true
		}
	}
	switch x.Message = strings.Join(messages, "; "); {
	case denies && slices.Contains(b.Actions, admissionregistrationv1.Deny):
		x.Outcome = admission.OutcomeDenied.String()
	case denies && slices.Contains(b.Actions, admissionregistrationv1.Warn):
		x.Outcome = admission.OutcomeWarned.String()
	case denies:
		x.Outcome = admission.OutcomeAudited.String()
	case errs:
		x.Outcome = admission.OutcomeErrored.String()
	}
	if denies {
		if x.Exception = d.Excepted(p.Name); x.Exception != "" {
			x.Outcome = admission.OutcomeAllowed.String()
		}
	}
	if !x.Asked && x.Message == "" {
		x.Outcome = ""
	}
	policy.Explained(&d.Dispatch, p, b, param, x)
}

// explainExpressions returns the values of the match conditions and validations. If a match condition leaves the review
// out, why says so.
func (d *dispatch) explainExpressions(v *validator) (why string, all []admission.ExpressionExplanation) {
	spent := d.Input.Spent
	defer func() { d.Input.HidesNamespace, d.Input.Spent = false, spent }()
	if why, all = d.ExplainConditions(v.compiler, v.matchConditions); why != "" {
		return why, all
	}
	d.Input.HidesNamespace = false
	evaluation := v.compiler.Begin(d.Input, celconfig.RuntimeCELCostBudget)
	defer evaluation.End()
	hidden := d.Hidden()
	for i := range v.validations {
		all = append(all, evaluation.Explain(v.validations[i].Expression, fmt.Sprintf("validations[%d].expression", i), hidden))
	}
	return "", all
}
