package cel

import (
	"github.com/google/cel-go/common/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Matches reports whether all match conditions are true. c must have compiled them. If
// one condition is false, the result is false even if others fail, as in kube-apiserver
// (k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions). Otherwise the error
// joins those of all conditions. With ignoresErrors, the result is false without an error.
//
// Matches sets in.HidesNamespace, so the variable namespaceObject is null.
func (c *Compiler) Matches(conditions []*Expression, in *Input, ignoresErrors bool) (bool, error) {
	if len(conditions) == 0 {
		return true, nil
	}
	failed := func(err error) error {
		if c.ConditionFailed != nil && in.review.Err() == nil { // otherwise the review fails, not the condition
			c.ConditionFailed(err)
		}
		if ignoresErrors {
			in.IgnoredCondition = err
			return nil
		}
		return err
	}
	in.HidesNamespace, in.IgnoredCondition = true, nil
	evaluation := c.Begin(in, celconfig.RuntimeCELCostBudgetMatchConditions)
	defer evaluation.End()
	var errs []error
	matches := true
	for _, condition := range conditions {
		value, err, fatal := evaluation.Evaluate(condition)
		if fatal != nil {
			return false, failed(fatal)
		}
		if err != nil {
			errs = append(errs, err)
		}
		matches = matches && value != types.False
	}
	if matches && len(errs) > 0 {
		return false, failed(utilerrors.NewAggregate(errs))
	}
	return matches, nil
}
