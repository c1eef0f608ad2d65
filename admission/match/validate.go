package match

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The allowed values (k8s.io/api/admissionregistration/v1 types.go), in the order in which
// messages list them.
var (
	supportedOperations = []admissionregistrationv1.OperationType{
		admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create,
		admissionregistrationv1.Delete, admissionregistrationv1.Update,
	}
	supportedScopes = []admissionregistrationv1.ScopeType{
		admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope,
	}
)

// validate returns the errors that kube-apiserver reports for a webhook configuration,
// with the same messages (k8s.io/kubernetes
// pkg/apis/admissionregistration/validation/validation.go).
func validate(c *Criteria, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Rules != nil && len(c.Rules) == 0 {
		errs = append(errs, field.Required(path.Child("rules"), "omit it to match everything that the plugin handles"))
	}
	for i := range c.Rules {
		errs = append(errs, ValidateRule(&c.Rules[i], path.Child("rules").Index(i))...)
	}
	var strict metav1validation.LabelSelectorValidationOptions
	errs = append(errs, metav1validation.ValidateLabelSelector(c.NamespaceSelector, strict, path.Child("namespaceSelector"))...)
	return append(errs, metav1validation.ValidateLabelSelector(c.ObjectSelector, strict, path.Child("objectSelector"))...)
}

// ValidateRule returns the errors that kube-apiserver reports for a rule of a webhook
// configuration, with the same messages. path is the path of the rule.
func ValidateRule(r *admissionregistrationv1.RuleWithOperations, path *field.Path) field.ErrorList {
	errs := validateList(r.Operations, path.Child("operations"), "operations")
	for i, operation := range r.Operations {
		if !slices.Contains(supportedOperations, operation) {
			errs = append(errs, field.NotSupported(path.Child("operations").Index(i), operation, supportedOperations))
		}
	}
	errs = append(errs, validateList(r.APIGroups, path.Child("apiGroups"), "API groups")...)
	errs = append(errs, validateList(r.APIVersions, path.Child("apiVersions"), "API versions")...)
	errs = append(errs, validateFilled(r.APIVersions, path.Child("apiVersions"))...)
	errs = append(errs, validateResources(r.Resources, path.Child("resources"))...)
	if r.Scope != nil && !slices.Contains(supportedScopes, *r.Scope) {
		errs = append(errs, field.NotSupported(path.Child("scope"), *r.Scope, supportedScopes))
	}
	return errs
}

// validateList returns an error if a list is empty, or has "*" and other values.
func validateList[T ~string](list []T, path *field.Path, what string) field.ErrorList {
	switch {
	case len(list) == 0:
		return field.ErrorList{field.Required(path, "")}
	case len(list) > 1 && slices.Contains(list, "*"):
		return field.ErrorList{field.Invalid(path, list, "if '*' is present, must not specify other "+what)}
	}
	return nil
}

func validateFilled(list []string, path *field.Path) (errs field.ErrorList) {
	for i, s := range list {
		if s == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
		}
	}
	return errs
}

// validateResources returns errors for resources that a wildcard in the list includes.
// Like kube-apiserver, it finds wildcards like "pods/*" and "*/scale" only before the
// resource, and compares "*" only with the last resource without a subresource.
func validateResources(resources []string, path *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := validateFilled(resources, path)
	last := "*"
	for i, resource := range resources {
		name, sub, ok := strings.Cut(resource, "/")
		if !ok {
			if resource != "" {
				last = resource
			}
			continue
		}
		for _, wildcard := range [...]string{name + "/*", "*/" + sub} {
			if slices.Contains(resources[:i], wildcard) {
				errs = append(errs, field.Invalid(path.Index(i), resource,
					fmt.Sprintf("if '%s' is present, must not specify %s", wildcard, resource)))
			}
		}
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	if slices.Contains(resources, "*") && last != "*" {
		errs = append(errs, field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// conditionsMax is the maximum number of match conditions in kube-apiserver.
const conditionsMax = 64

// ValidateConditions returns the errors that kube-apiserver reports for match conditions,
// with the same messages. path is the path of the list. It does not compile expressions.
func ValidateConditions(conditions []admissionregistrationv1.MatchCondition, path *field.Path) (errs field.ErrorList) {
	if len(conditions) > conditionsMax {
		errs = append(errs, field.TooMany(path, len(conditions), conditionsMax))
	}
	seen := make(map[string]bool)
	for i, c := range conditions {
		path := path.Index(i)
		if strings.TrimSpace(c.Expression) == "" {
			errs = append(errs, field.Required(path.Child("expression"), ""))
		}
		if c.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
			continue
		}
		for _, message := range validation.IsQualifiedName(c.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), c.Name, message))
		}
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), c.Name))
		}
		seen[c.Name] = true
	}
	return errs
}
