package cel

import (
	"github.com/google/cel-go/common/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Matches reports whether match conditions hold, which c compiled: all of them, and
// one that is false decides whatever else fails (k8s.io/apiserver
// pkg/admission/plugin/webhook/matchconditions). The error joins those of the
// conditions; with ignoresErrors there is none, and they do not hold.
//
// The variable namespaceObject is null in them. in.HidesNamespace is true afterwards.
func (c *Compiler) Matches(conditions []*Expression, in *Input, ignoresErrors bool) (bool, error) {
	if len(conditions) == 0 {
		return true, nil
	}
	unlessIgnored := func(err error) error {
		if ignoresErrors {
			return nil
		}
		return err
	}
	in.HidesNamespace = true
	evaluation := c.Begin(in, celconfig.RuntimeCELCostBudgetMatchConditions)
	defer evaluation.End()
	var errs []error
	matches := true
	for _, condition := range conditions {
		value, err, fatal := evaluation.Evaluate(condition)
		if fatal != nil {
			return false, unlessIgnored(fatal)
		}
		if err != nil {
			errs = append(errs, err)
		}
		matches = matches && value != types.False
	}
	if matches && len(errs) > 0 {
		return false, unlessIgnored(utilerrors.NewAggregate(errs))
	}
	return matches, nil
}
