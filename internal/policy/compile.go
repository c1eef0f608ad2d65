package policy

import (
	"errors"
	"fmt"

	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// A SpecCompiler compiles the expressions in the spec of a policy and collects the errors.
type SpecCompiler struct {
	*cel.Compiler
	hasVariables bool
	errs         []error
}

// NewSpecCompiler returns a SpecCompiler and compiles the variables. It takes InterpretCEL
// and Version of the plugin's Setup.
func NewSpecCompiler(variables []admissionregistrationv1.Variable, declared cel.Declarations, setup *admission.Setup) *SpecCompiler {
	c := &SpecCompiler{Compiler: cel.NewCompiler(len(variables) > 0), hasVariables: len(variables) > 0}
	c.InterpreterOnly, c.Version = setup.InterpretCEL, setup.Version
	for i, v := range variables {
		c.check(c.AddVariable(v.Name, v.Expression, declared), "variables[%d].expression", i)
	}
	return c
}

// Conditions compiles match conditions. As in kube-apiserver, a condition that uses
// variables of the policy is an error, but it can still be evaluated.
func (c *SpecCompiler) Conditions(conditions []admissionregistrationv1.MatchCondition, declared cel.Declarations) (all []*cel.Expression) {
	const path = "matchConditions[%d].expression"
	withoutVariables := cel.NewCompiler(false)
	withoutVariables.Version = c.Version
	for i, condition := range conditions {
		x := c.Expression(condition.Expression, declared, cel.Bool, path, i)
		if x.Err == nil && c.hasVariables {
			c.check(withoutVariables.Compile(condition.Expression, declared, cel.Bool), path, i)
		}
		x.Name = condition.Name
		all = append(all, x)
	}
	return all
}

// Expression compiles an expression. returns are the types that it may have. format and i
// make its path in the spec for errors, such as "validations[%d].expression".
func (c *SpecCompiler) Expression(text string, declared cel.Declarations, returns []*celtypes.Type, format string, i int) *cel.Expression {
	return c.check(c.Compile(text, declared, returns), format, i)
}

func (c *SpecCompiler) check(x *cel.Expression, format string, i int) *cel.Expression {
	if x.Err != nil {
		c.errs = append(c.errs, field.Invalid(field.NewPath("spec", fmt.Sprintf(format, i)), x.Text, x.Err.Error()))
	}
	return x
}

// Err returns all errors in the expressions, nil if there are none.
func (c *SpecCompiler) Err() error { return errors.Join(c.errs...) }
