package policy

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var notFoundActions = []admissionregistrationv1.ParameterNotFoundActionType{admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction}

func checkParamKind(kind *admissionregistrationv1.ParamKind, path *field.Path) (errs field.ErrorList) {
	at := path.Child("apiVersion")
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	switch {
	case kind.APIVersion == "":
		errs = append(errs, field.Required(at, ""))
	case err != nil:
		errs = append(errs, field.Invalid(at, kind.APIVersion, err.Error()))
	default:
		if wrong := utilvalidation.IsDNS1123Subdomain(gv.Group); gv.Group != "" && wrong != nil {
			errs = append(errs, field.Invalid(at, gv.Group, strings.Join(wrong, ",")))
		}
		if gv.Version == "" {
			errs = append(errs, field.Invalid(at, kind.APIVersion, "version must be specified"))
		} else if wrong := utilvalidation.IsDNS1035Label(gv.Version); wrong != nil {
			errs = append(errs, field.Invalid(at, gv.Version, strings.Join(wrong, ",")))
		}
	}
	if kind.Kind == "" {
		return append(errs, field.Required(path.Child("kind"), ""))
	}
	if wrong := utilvalidation.IsDNS1035Label(strings.ToLower(kind.Kind)); wrong != nil {
		errs = append(errs, field.Invalid(path.Child("kind"), kind.Kind, "may have mixed case, but should otherwise match: "+strings.Join(wrong, ",")))
	}
	return errs
}

func checkParamRef(ref *admissionregistrationv1.ParamRef, path *field.Path) (errs field.ErrorList) {
	const exclusive = "name and selector are mutually exclusive"
	if ref.Name != "" {
		for _, wrong := range content.IsPathSegmentName(ref.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), ref.Name, wrong))
		}
		if ref.Selector != nil {
			errs = append(errs, field.Forbidden(path.Child("name"), exclusive))
		}
	}
	if ref.Selector != nil {
		var strict metav1validation.LabelSelectorValidationOptions
		errs = append(errs, metav1validation.ValidateLabelSelector(ref.Selector, strict, path.Child("selector"))...)
		if ref.Name != "" {
			errs = append(errs, field.Forbidden(path.Child("selector"), exclusive))
		}
	}
	if ref.Name == "" && ref.Selector == nil {
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	at := path.Child("parameterNotFoundAction")
	if ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction == "" {
		return append(errs, field.Required(at, ""))
	}
	return append(errs, oneOf(at, *ref.ParameterNotFoundAction, notFoundActions)...)
}
