package policy

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The lists are in the order in which messages show them.
var (
	mutatingOperations = []admissionregistrationv1.OperationType{
		admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update,
	}
	patchTypes           = []admissionregistrationv1.PatchType{admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch}
	reinvocationPolicies = []admissionregistrationv1.ReinvocationPolicyType{
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy,
	}
)

// CheckMutating sets the defaults of a policy and returns all errors in it, except errors
// in expressions.
func CheckMutating(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	common := policySpec{&spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints, spec.MatchConditions, spec.Variables}
	errs := common.check(&p.ObjectMeta, path)
	errs = append(errs, checkMutatingOperations(spec.MatchConstraints, path.Child("matchConstraints"))...)
	if len(spec.Mutations) == 0 {
		errs = append(errs, field.Required(path.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range spec.Mutations {
		errs = append(errs, checkMutation(&spec.Mutations[i], path.Child("mutations").Index(i))...)
	}
	if spec.ReinvocationPolicy == "" {
		return append(errs, field.Required(path.Child("reinvocationPolicy"), ""))
	}
	return append(errs, oneOf(path.Child("reinvocationPolicy"), spec.ReinvocationPolicy, reinvocationPolicies)...)
}

// CheckMutatingBinding sets the defaults of a binding and returns all errors in it.
func CheckMutatingBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	spec := &b.Spec
	errs := checkBinding(&b.ObjectMeta, spec.PolicyName, spec.ParamRef, spec.MatchResources)
	return append(errs, checkMutatingOperations(spec.MatchResources, field.NewPath("spec", "matchResources"))...)
}

// checkMutatingOperations refuses rules for DELETE, which has no object to change.
func checkMutatingOperations(m *admissionregistrationv1.MatchResources, path *field.Path) (errs field.ErrorList) {
	if m == nil {
		return nil
	}
	for i := range m.ResourceRules {
		for _, operation := range m.ResourceRules[i].Operations {
			errs = append(errs, oneOf(path.Child("resourceRules", "operations"), operation, mutatingOperations)...)
		}
	}
	return errs
}

func checkMutation(m *admissionregistrationv1.Mutation, path *field.Path) (errs field.ErrorList) {
	switch m.PatchType {
	case "":
		return field.ErrorList{field.Required(path.Child("patchType"), "")}
	case admissionregistrationv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			errs = append(errs, field.Required(path.Child("jsonPatch"), "must be specified when patchType is JSONPatch"))
		} else {
			errs = append(errs, checkExpression(m.JSONPatch.Expression, path.Child("jsonPatch"))...)
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(path.Child("applyConfiguration"), "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			errs = append(errs, field.Required(path.Child("applyConfiguration"), "must be specified when patchType is ApplyConfiguration"))
		} else {
			errs = append(errs, checkExpression(m.ApplyConfiguration.Expression, path.Child("applyConfiguration"))...)
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(path.Child("jsonPatch"), "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
	default:
		return oneOf(path.Child("patchType"), m.PatchType, patchTypes)
	}
	return errs
}

func checkExpression(expression string, path *field.Path) field.ErrorList {
	if strings.TrimSpace(expression) == "" {
		return field.ErrorList{field.Required(path.Child("expression"), "")}
	}
	return nil
}
