// Package matchconditions evaluates the match conditions of plugins. These CEL
// expressions select the reviews that a plugin gets. They work as in a webhook
// configuration (k8s.io/apiserver pkg/admission/plugin/webhook/matchconditions).
package matchconditions

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// Conditions are the compiled match conditions of one plugin. They implement
// admission.Selector. Several goroutines may use them at the same time.
type Conditions struct {
	compiler       *cel.Compiler
	expressions    []*cel.Expression
	ignoresErrors  bool
	usesAuthorizer bool
	access         *atomic.Pointer[cluster.Access]
}

// Compile compiles match conditions. failurePolicy decides what happens if an expression
// cannot be evaluated: with Ignore the plugin does not get the review, otherwise the
// review is denied. If UsesAuthorizer returns true, access must be set before the first
// review; expressions check permissions with it. interpretCEL makes cel-go's interpreter
// evaluate all expressions. The errors list all expressions that do not compile, with paths
// that start with path.
func Compile(conditions []admissionregistrationv1.MatchCondition, failurePolicy admissionregistrationv1.FailurePolicyType,
	access *atomic.Pointer[cluster.Access], interpretCEL bool, path *field.Path,
) (*Conditions, field.ErrorList) {
	c := &Conditions{
		compiler: cel.NewCompiler(false), access: access,
		ignoresErrors: failurePolicy == admissionregistrationv1.Ignore,
	}
	c.compiler.InterpreterOnly = interpretCEL
	var errs field.ErrorList
	for i, condition := range conditions {
		compiled := c.compiler.Compile(condition.Expression, cel.Declarations{}, cel.Bool)
		if compiled.Err != nil {
			compiled = c.compiler.Compile(condition.Expression, cel.Declarations{Authorizer: true}, cel.Bool)
			c.usesAuthorizer = c.usesAuthorizer || compiled.Err == nil
		}
		if compiled.Err != nil {
			errs = append(errs, field.Invalid(path.Index(i).Child("expression"), condition.Expression, compiled.Err.Error()))
		}
		compiled.Name = condition.Name
		c.expressions = append(c.expressions, compiled)
	}
	return c, errs
}

// CountErrors counts the conditions of a plugin that cannot be evaluated.
func (c *Conditions) CountErrors(plugin string, set *metrics.Set) {
	policy.CountConditionErrors(c.compiler, plugin, set)
}

// UsesAuthorizer reports whether an expression uses the variable authorizer. Such an
// expression sends SubjectAccessReviews to the API server.
func (c *Conditions) UsesAuthorizer() bool { return c.usesAuthorizer }

// Matches implements admission.Selector. The error is an admission.RefusalError. It has the
// status with which kube-apiserver denies a request if the match conditions of a webhook
// fail.
func (c *Conditions) Matches(ctx context.Context, review *codec.Review, _ admission.Attributes) (bool, error) {
	in := policy.NewInput(ctx, review, c.access.Load())
	defer in.Release()
	matches, err := c.compiler.Matches(c.expressions, in, c.ignoresErrors)
	if err != nil {
		r := review.Resource()
		err = &admission.RefusalError{
			Err: apierrors.NewForbidden(schema.GroupResource{Group: r.Group, Resource: r.Resource}, review.Name(), err),
		}
	}
	return matches, err
}

// Explain implements admission.Explainer.
func (c *Conditions) Explain(ctx context.Context, review *codec.Review, _ admission.Attributes) string {
	in := policy.NewInput(ctx, review, c.access.Load())
	defer in.Release()
	in.HidesNamespace = true
	evaluation := c.compiler.Begin(in, celconfig.RuntimeCELCostBudgetMatchConditions)
	defer evaluation.End()
	hidden := cel.Hidden{Object: admission.HiddenFields(review)}
	decides := ""
	for i, x := range c.expressions {
		explained := evaluation.Explain(x, fmt.Sprintf("matchConditions[%d] %s", i, x.Name), hidden)
		if explained.Value == "true" || decides != "" && explained.Value != "false" {
			continue
		}
		text := fmt.Sprintf("%s is %s: %s", explained.Field, explained.Value, admission.ShownValue(x.Text))
		for _, v := range explained.Values[:min(len(explained.Values), valuesShown)] {
			text += fmt.Sprintf("; %s => %s", v.Expression, v.Value)
		}
		if decides = text; explained.Value == "false" { // which decides, whatever the others are
			return decides
		}
	}
	return cmp.Or(decides, "its matchConditions are true")
}

// valuesShown is how many values of sub-expressions are in the text of Explain, which is one line.
const valuesShown = 5
