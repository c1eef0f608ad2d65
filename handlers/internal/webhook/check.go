package webhook

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/internal/customresource"
	"github.com/fastadmit/fastadmit/internal/registration"
)

// The values that kube-apiserver accepts in a webhook configuration (k8s.io/kubernetes
// pkg/apis/admissionregistration/validation and v1/defaults.go). The lists are in the order
// of the messages.
var (
	failurePolicies      = []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}
	matchPolicies        = []admissionregistrationv1.MatchPolicyType{admissionregistrationv1.Equivalent, admissionregistrationv1.Exact}
	reinvocationPolicies = []admissionregistrationv1.ReinvocationPolicyType{
		admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy,
	}
	sideEffects = []admissionregistrationv1.SideEffectClass{
		admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun,
	}
)

const (
	defaultTimeoutSeconds = 10
	timeoutSecondsMax     = 30
	defaultServicePort    = 443
)

// check sets the defaults of a configuration and returns all errors in it.
func (c *configuration) check(services bool) field.ErrorList {
	errs := validation.ValidateObjectMeta(&c.ObjectMeta, false, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	seen := make(map[string]bool)
	for i := range c.webhooks {
		w, path := &c.webhooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, checkWebhook(w, services, path)...)
		if seen[w.Name] && w.Name != "" {
			errs = append(errs, field.Duplicate(path.Child("name"), w.Name))
		}
		seen[w.Name] = true
	}
	return errs
}

func setDefaults(w *admissionregistrationv1.MutatingWebhook) {
	setDefault(&w.FailurePolicy, admissionregistrationv1.Fail)
	setDefault(&w.MatchPolicy, admissionregistrationv1.Equivalent)
	setDefault(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	setDefault(&w.TimeoutSeconds, defaultTimeoutSeconds)
	if s := w.ClientConfig.Service; s != nil {
		setDefault(&s.Port, defaultServicePort)
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func checkWebhook(w *admissionregistrationv1.MutatingWebhook, services bool, path *field.Path) field.ErrorList {
	setDefaults(w)
	errs := utilvalidation.IsFullyQualifiedName(path.Child("name"), w.Name)
	for i := range w.Rules {
		errs = append(errs, match.ValidateRule(&w.Rules[i], path.Child("rules").Index(i))...)
	}
	errs = append(errs, oneOf(path.Child("failurePolicy"), *w.FailurePolicy, failurePolicies)...)
	errs = append(errs, oneOf(path.Child("matchPolicy"), *w.MatchPolicy, matchPolicies)...)
	errs = append(errs, oneOf(path.Child("reinvocationPolicy"), *w.ReinvocationPolicy, reinvocationPolicies)...)
	if w.SideEffects == nil {
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	} else {
		errs = append(errs, oneOf(path.Child("sideEffects"), *w.SideEffects, sideEffects)...)
	}
	if s := *w.TimeoutSeconds; s < 1 || s > timeoutSecondsMax {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), s, fmt.Sprintf("the timeout value must be between 1 and %d seconds", timeoutSecondsMax)))
	}
	var strict metav1validation.LabelSelectorValidationOptions
	errs = append(errs, metav1validation.ValidateLabelSelector(w.NamespaceSelector, strict, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(w.ObjectSelector, strict, path.Child("objectSelector"))...)
	errs = append(errs, checkClient(&w.ClientConfig, services, path.Child("clientConfig"))...)
	errs = append(errs, match.ValidateConditions(w.MatchConditions, path.Child("matchConditions"))...)
	return append(errs, registration.ValidateReviewVersions(w.AdmissionReviewVersions, path.Child("admissionReviewVersions"))...)
}

func checkClient(c *admissionregistrationv1.WebhookClientConfig, services bool, path *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.URL != nil:
		return registration.ValidateURL(*c.URL, path.Child("url"))
	case !services:
		return field.ErrorList{field.Forbidden(path.Child("service"),
			"clientConfig.service is not supported for static manifests; use clientConfig.url instead, or apiVersion "+customresource.OwnVersion+" of the plugin's configuration")}
	}
	return registration.ValidateService(c.Service, path.Child("service"))
}

func oneOf[T ~string](path *field.Path, got T, want []T) field.ErrorList {
	if slices.Contains(want, got) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, got, want)}
}

// servicePath returns the path of a webhook of a Service.
func servicePath(s *admissionregistrationv1.ServiceReference) string {
	if s.Path == nil {
		return ""
	}
	return *s.Path
}
