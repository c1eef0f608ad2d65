package policy

import (
	"errors"
	"fmt"

	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/handlers/internal/cel"
)

// A SpecCompiler compiles the expressions of a policy's spec, and gathers what is
// wrong with them.
type SpecCompiler struct {
	*cel.Compiler
	hasVariables bool
	errs         []error
}

// NewSpecCompiler returns one that has compiled the variables.
func NewSpecCompiler(variables []admissionregistrationv1.Variable, declared cel.Declarations) *SpecCompiler {
	c := &SpecCompiler{Compiler: cel.NewCompiler(len(variables) > 0), hasVariables: len(variables) > 0}
	for i, v := range variables {
		c.check(c.AddVariable(v.Name, v.Expression, declared), "variables[%d].expression", i)
	}
	return c
}

// Conditions compiles match conditions. As in kube-apiserver, it is an error that one
// of a policy uses variables, although it can be evaluated.
func (c *SpecCompiler) Conditions(conditions []admissionregistrationv1.MatchCondition, declared cel.Declarations) (all []*cel.Expression) {
	const path = "matchConditions[%d].expression"
	withoutVariables := cel.NewCompiler(false)
	for i, condition := range conditions {
		x := c.Expression(condition.Expression, declared, cel.Bool, path, i)
		if x.Err == nil && c.hasVariables {
			c.check(withoutVariables.Compile(condition.Expression, declared, cel.Bool), path, i)
		}
		all = append(all, x)
	}
	return all
}

// Expression compiles an expression of the i-th of a list. The format is that of its
// path in the spec.
func (c *SpecCompiler) Expression(text string, declared cel.Declarations, returns []*celtypes.Type, format string, i int) *cel.Expression {
	return c.check(c.Compile(text, declared, returns), format, i)
}

func (c *SpecCompiler) check(x *cel.Expression, format string, i int) *cel.Expression {
	if x.Err != nil {
		c.errs = append(c.errs, field.Invalid(field.NewPath("spec", fmt.Sprintf(format, i)), x.Text, x.Err.Error()))
	}
	return x
}

// Err joins what is wrong with the expressions.
func (c *SpecCompiler) Err() error { return errors.Join(c.errs...) }
