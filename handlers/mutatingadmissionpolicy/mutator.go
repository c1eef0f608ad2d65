package mutatingadmissionpolicy

import (
	"context"
	"fmt"

	"github.com/google/cel-go/common/types/ref"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/patching"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// A mutator has the compiled expressions of a policy (upstream's compilation.go).
type mutator struct {
	compiler        *cel.Compiler
	reinvokes       bool
	nullTimes       bool // see patching.Encode
	matchConditions []*cel.Expression
	mutations       []mutation
}

// A mutation changes an object.
type mutation struct {
	field      string // of the policy
	expression *cel.Expression
	patch      func(p *patch, value ref.Val) error
}

// A patch collects the change of an object by a mutation.
type patch struct {
	ctx     context.Context
	memory  memory
	schemas *schemas.Schemas
	kind    codec.GroupVersionKind
	before  []byte // the object, as JSON
	after   []byte // the object after the mutation; nil if nothing changes

	nullTimes bool // see patching.Encode
}

// encode encodes the object after the mutation as its Go type does, because in-tree, it is decoded
// into the type before the next mutation (upstream's dispatcher.go dispatchOne and patch/json_patch.go).
func (p *patch) encode() (unknown []string, err error) {
	p.after, unknown, err = patching.Encode(p.kind, p.before, p.after, p.nullTimes)
	return unknown, err
}

// A memory is the account of an evaluation; see cel.Evaluation.
type memory interface {
	Converts(v ref.Val) error
	Keeps(n int) error
}

// newMutator compiles a policy. If kyverno is true, its expressions have Kyverno's functions.
// The error joins the errors of all expressions.
func newMutator(p *admissionregistrationv1.MutatingAdmissionPolicy, kyverno bool, setup *admission.Setup) (*mutator, error) {
	spec := &p.Spec
	all := cel.Declarations{Params: spec.ParamKind != nil, Authorizer: true, Kyverno: kyverno}
	c := policy.NewSpecCompiler(spec.Variables, all, setup)
	policy.CountConditionErrors(c.Compiler, policy.MutatingKind.Name, setup.Metrics)
	m := &mutator{
		compiler:        c.Compiler,
		nullTimes:       !setup.Version.AtLeast(1, 34),
		reinvokes:       spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy,
		matchConditions: c.Conditions(spec.MatchConditions, all),
	}
	all.PatchTypes = true
	for i, given := range spec.Mutations {
		switch {
		case given.PatchType == admissionregistrationv1.PatchTypeJSONPatch && given.JSONPatch != nil:
			const field = "mutations[%d].jsonPatch.expression"
			m.mutations = append(m.mutations, mutation{
				fmt.Sprintf(field, i), c.Expression(given.JSONPatch.Expression, all, cel.JSONPatches, field, i), applyJSONPatch,
			})
		case given.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && given.ApplyConfiguration != nil:
			const field = "mutations[%d].applyConfiguration.expression"
			m.mutations = append(m.mutations, mutation{
				fmt.Sprintf(field, i), c.Expression(given.ApplyConfiguration.Expression, all, cel.Object, field, i), applyConfiguration,
			})
		}
	}
	return m, c.Err()
}
