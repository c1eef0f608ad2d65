package policy

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission/match"
)

// The conditions under which kube-apiserver accepts a policy and a binding, with its
// messages (k8s.io/kubernetes pkg/apis/admissionregistration/validation). Expressions are
// checked where they are compiled.

// The lists are in the order in which messages show them.
var (
	failurePolicies = []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}
	matchPolicies   = []admissionregistrationv1.MatchPolicyType{admissionregistrationv1.Equivalent, admissionregistrationv1.Exact}
	actions         = []admissionregistrationv1.ValidationAction{
		admissionregistrationv1.Audit, admissionregistrationv1.Deny, admissionregistrationv1.Warn,
	}
	reasons = []metav1.StatusReason{
		metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge,
	}
)

const (
	auditAnnotationsMax     = 20
	valueExpressionBytesMax = 5 << 10
)

// policySpec is what the two kinds of policies have in common.
type policySpec struct {
	failurePolicy    **admissionregistrationv1.FailurePolicyType
	paramKind        *admissionregistrationv1.ParamKind
	matchConstraints *admissionregistrationv1.MatchResources
	matchConditions  []admissionregistrationv1.MatchCondition
	variables        []admissionregistrationv1.Variable
}

// check sets the defaults of a policy and returns its errors.
func (spec *policySpec) check(meta *metav1.ObjectMeta, path *field.Path) field.ErrorList {
	if *spec.failurePolicy == nil {
		*spec.failurePolicy = new(admissionregistrationv1.Fail)
	}
	errs := validation.ValidateObjectMeta(meta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, checkWorkloadPods(meta)...)
	errs = append(errs, oneOf(path.Child("failurePolicy"), **spec.failurePolicy, failurePolicies)...)
	if spec.paramKind != nil {
		errs = append(errs, checkParamKind(spec.paramKind, path.Child("paramKind"))...)
	}
	if spec.matchConstraints == nil {
		errs = append(errs, field.Required(path.Child("matchConstraints"), ""))
	} else {
		errs = append(errs, checkMatchResources(spec.matchConstraints, path.Child("matchConstraints"))...)
		if len(spec.matchConstraints.ResourceRules) == 0 {
			errs = append(errs, field.Required(path.Child("matchConstraints", "resourceRules"), ""))
		}
	}
	errs = append(errs, match.ValidateConditions(spec.matchConditions, path.Child("matchConditions"))...)
	for i := range spec.variables {
		errs = append(errs, checkVariable(&spec.variables[i], path.Child("variables").Index(i))...)
	}
	return errs
}

// CheckValidating sets the defaults of a policy and returns all errors in it, except errors
// in expressions.
func CheckValidating(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	spec, path := &p.Spec, field.NewPath("spec")
	common := policySpec{&spec.FailurePolicy, spec.ParamKind, spec.MatchConstraints, spec.MatchConditions, spec.Variables}
	errs := common.check(&p.ObjectMeta, path)
	if len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 {
		const want = "validations or auditAnnotations must contain at least one item"
		errs = append(errs, field.Required(path.Child("validations"), want), field.Required(path.Child("auditAnnotations"), want))
	}
	for i := range spec.Validations {
		errs = append(errs, checkValidation(&spec.Validations[i], path.Child("validations").Index(i))...)
	}
	return append(errs, checkAuditAnnotations(p.Name, spec.AuditAnnotations, path.Child("auditAnnotations"))...)
}

// CheckValidatingBinding sets the defaults of a binding and returns all errors in it.
func CheckValidatingBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	spec := &b.Spec
	errs := checkBinding(&b.ObjectMeta, spec.PolicyName, spec.ParamRef, spec.MatchResources)
	return append(errs, checkActions(spec.ValidationActions, field.NewPath("spec", "validationActions"))...)
}

// checkBinding checks what the two kinds of bindings have in common.
func checkBinding(meta *metav1.ObjectMeta, policyName string, ref *admissionregistrationv1.ParamRef,
	resources *admissionregistrationv1.MatchResources,
) field.ErrorList {
	path := field.NewPath("spec")
	errs := validation.ValidateObjectMeta(meta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if policyName == "" {
		errs = append(errs, field.Required(path.Child("policyName"), ""))
	} else {
		for _, wrong := range validation.NameIsDNSSubdomain(policyName, false) {
			errs = append(errs, field.Invalid(path.Child("policyName"), policyName, wrong))
		}
	}
	if ref != nil {
		errs = append(errs, checkParamRef(ref, path.Child("paramRef"))...)
	}
	if resources != nil {
		errs = append(errs, checkMatchResources(resources, path.Child("matchResources"))...)
	}
	return errs
}

func oneOf[T ~string](path *field.Path, got T, want []T) field.ErrorList {
	if slices.Contains(want, got) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, got, want)}
}

func checkMatchResources(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if m.MatchPolicy == nil {
		m.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	errs := oneOf(path.Child("matchPolicy"), *m.MatchPolicy, matchPolicies)
	var strict metav1validation.LabelSelectorValidationOptions
	errs = append(errs, metav1validation.ValidateLabelSelector(m.NamespaceSelector, strict, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(m.ObjectSelector, strict, path.Child("objectSelector"))...)
	for i := range m.ResourceRules {
		errs = append(errs, checkRule(&m.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, checkRule(&m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func checkRule(r *admissionregistrationv1.NamedRuleWithOperations, path *field.Path) (errs field.ErrorList) {
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		for _, wrong := range content.IsPathSegmentName(name) {
			errs = append(errs, field.Invalid(at, name, wrong))
		}
		if slices.Contains(r.ResourceNames[:i], name) {
			errs = append(errs, field.Duplicate(at, name))
		}
	}
	return append(errs, match.ValidateRule(&r.RuleWithOperations, path)...)
}

func qualified(path *field.Path, name string) (errs field.ErrorList) {
	for _, wrong := range utilvalidation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(path, name, wrong))
	}
	return errs
}

func checkVariable(v *admissionregistrationv1.Variable, path *field.Path) (errs field.ErrorList) {
	if strings.TrimSpace(v.Name) == "" {
		errs = append(errs, field.Required(path.Child("name"), "name is not specified"))
	} else if !isIdentifier(v.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), v.Name, "must be a valid CEL identifier"))
	}
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(path.Child("expression"), "expression is not specified"))
	}
	return errs
}

// reserved are the words that no CEL identifier can be.
var reserved = strings.Fields("true false null in as break const continue else for function if import let loop package namespace return var void while")

func isIdentifier(name string) bool {
	for i, c := range name {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return !slices.Contains(reserved, name)
}

func checkValidation(v *admissionregistrationv1.Validation, path *field.Path) (errs field.ErrorList) {
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(path.Child("expression"), "expression is not specified"))
	}
	if v.MessageExpression != "" && strings.TrimSpace(v.MessageExpression) == "" {
		errs = append(errs, field.Invalid(path.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	}
	switch message := strings.TrimSpace(v.Message); {
	case v.Message != "" && message == "":
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must be non-empty if specified"))
	case strings.ContainsAny(message, "\r\n"):
		errs = append(errs, field.Invalid(path.Child("message"), v.Message, "must not contain line breaks"))
	}
	if v.Reason != nil {
		errs = append(errs, oneOf(path.Child("reason"), *v.Reason, reasons)...)
	}
	return errs
}

func checkAuditAnnotations(policy string, annotations []admissionregistrationv1.AuditAnnotation, path *field.Path) (errs field.ErrorList) {
	if len(annotations) > auditAnnotationsMax {
		errs = append(errs, field.Invalid(path, annotations, fmt.Sprintf("must not have more than %d auditAnnotations", auditAnnotationsMax)))
	}
	known := make(map[string]bool)
	for i, a := range annotations {
		at := path.Index(i)
		errs = append(errs, qualified(at.Child("key"), policy+"/"+a.Key)...)
		switch expression := strings.TrimSpace(a.ValueExpression); {
		case expression == "":
			errs = append(errs, field.Required(at.Child("valueExpression"), "valueExpression is not specified"))
		case len(expression) > valueExpressionBytesMax:
			errs = append(errs, field.Required(at.Child("valueExpression"), fmt.Sprintf("must not exceed %d bytes in length", valueExpressionBytesMax)))
		}
		if known[a.Key] {
			errs = append(errs, field.Duplicate(at.Child("key"), a.Key))
		}
		known[a.Key] = true
	}
	return errs
}

func checkActions(given []admissionregistrationv1.ValidationAction, path *field.Path) (errs field.ErrorList) {
	for i, action := range given {
		errs = append(errs, oneOf(path.Index(i), action, actions)...)
		if slices.Contains(given[:i], action) {
			errs = append(errs, field.Duplicate(path.Index(i), action))
		}
	}
	if slices.Contains(given, admissionregistrationv1.Deny) && slices.Contains(given, admissionregistrationv1.Warn) {
		errs = append(errs, field.Invalid(path, given, "must not contain both Deny and Warn "+
			"(repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	if len(given) == 0 {
		errs = append(errs, field.Required(path, "at least one validation action is required"))
	}
	return errs
}
