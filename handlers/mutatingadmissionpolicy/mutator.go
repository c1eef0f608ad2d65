package mutatingadmissionpolicy

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/cel"
)

// A mutator has the compiled expressions of a policy (upstream's compilation.go).
type mutator struct {
	compiler        *cel.Compiler
	reinvokes       bool
	matchConditions []*cel.Expression
	mutations       []mutation
}

// A mutation changes an object.
type mutation struct {
	expression *cel.Expression
	patch      func(p *patch, value ref.Val) error
}

// A patch is what a mutation does to an object.
type patch struct {
	ctx    context.Context
	kind   codec.GroupVersionKind
	before []byte // the object, as JSON
	after  []byte // the object then; nil if nothing changes
}

// newMutator compiles a policy. The error joins what is wrong with its expressions.
func newMutator(p *admissionregistrationv1.MutatingAdmissionPolicy) (*mutator, error) {
	spec := &p.Spec
	m := &mutator{
		compiler:  cel.NewCompiler(len(spec.Variables) > 0),
		reinvokes: spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy,
	}
	var errs []error
	check := func(x *cel.Expression, format string, args ...any) *cel.Expression {
		if x.Err != nil {
			path := field.NewPath("spec", fmt.Sprintf(format, args...))
			errs = append(errs, field.Invalid(path, x.Text, x.Err.Error()))
		}
		return x
	}
	all := cel.Declarations{Params: spec.ParamKind != nil, Authorizer: true}
	for i, variable := range spec.Variables {
		check(m.compiler.AddVariable(variable.Name, variable.Expression, all), "variables[%d].expression", i)
	}
	for i, condition := range spec.MatchConditions {
		m.matchConditions = append(m.matchConditions,
			check(m.compiler.Compile(condition.Expression, all, cel.Bool), "matchConditions[%d].expression", i))
	}
	all.PatchTypes = true
	for i, given := range spec.Mutations {
		switch {
		case given.PatchType == admissionregistrationv1.PatchTypeJSONPatch && given.JSONPatch != nil:
			m.mutations = append(m.mutations, mutation{
				check(m.compiler.Compile(given.JSONPatch.Expression, all, cel.JSONPatches), "mutations[%d].jsonPatch.expression", i), applyJSONPatch,
			})
		case given.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && given.ApplyConfiguration != nil:
			m.mutations = append(m.mutations, mutation{
				check(m.compiler.Compile(given.ApplyConfiguration.Expression, all, cel.Object), "mutations[%d].applyConfiguration.expression", i), applyConfiguration,
			})
		}
	}
	return m, errors.Join(errs...)
}
