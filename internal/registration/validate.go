package registration

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
)

// Limits of kube-apiserver (k8s.io/kubernetes
// pkg/apis/admissionregistration/validation/validation.go).
const (
	timeoutSecondsMin = 1
	timeoutSecondsMax = 30
)

// staticSuffix is the suffix of the names of configurations in files. Others must not have
// it (k8s.io/apiserver pkg/admission/plugin/manifest/validation.go).
const staticSuffix = ".static.k8s.io"

// Allowed values, in the order in messages.
var (
	knownReviewVersions = []string{"v1", "v1beta1"}
	knownMatchPolicies  = []admissionregistrationv1.MatchPolicyType{
		admissionregistrationv1.Equivalent, admissionregistrationv1.Exact,
	}
	knownFailurePolicies = []admissionregistrationv1.FailurePolicyType{
		admissionregistrationv1.Fail, admissionregistrationv1.Ignore,
	}
	knownSideEffects = []admissionregistrationv1.SideEffectClass{
		admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun,
	}
)

// Validate returns the errors that kube-apiserver would report for configurations with
// these options, mostly with the same messages. It also checks caBundle and the namespace,
// because kube-apiserver accepts some values with which it cannot call the webhook. It does
// not compile expressions. path is the path of the options. The error joins all errors, as
// that of New.
func (o *Options) Validate(path *field.Path) error {
	filled := o.WithDefaults()
	errs := filled.validateNames(path)
	errs = append(errs, filled.validateClientConfig(path.Child("clientConfig"))...)
	if s := *filled.TimeoutSeconds; s < timeoutSecondsMin || s > timeoutSecondsMax {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), s,
			fmt.Sprintf("the timeout value must be between %d and %d seconds", timeoutSecondsMin, timeoutSecondsMax)))
	}
	if !slices.Contains(knownMatchPolicies, *filled.MatchPolicy) {
		errs = append(errs, field.NotSupported(path.Child("matchPolicy"), *filled.MatchPolicy, knownMatchPolicies))
	}
	errs = append(errs, match.ValidateConditions(o.MatchConditions, path.Child("matchConditions"))...)
	errs = append(errs, ValidateReviewVersions(filled.AdmissionReviewVersions, path.Child("admissionReviewVersions"))...)
	_, err := match.New(&match.Criteria{NamespaceSelector: o.NamespaceSelector, ObjectSelector: o.ObjectSelector}, path)
	return join(errs.ToAggregate(), err)
}

// join returns an error with all errors in errs, nil if there are none.
func join(errs ...error) error {
	if all := utilerrors.Flatten(utilerrors.NewAggregate(errs)); all != nil {
		return all
	}
	return nil
}

// validateNames checks the names in the metadata, the names of webhooks, and the namespace.
func (o *Options) validateNames(path *field.Path) field.ErrorList {
	meta := o.objectMeta()
	errs := apivalidation.ValidateObjectMeta(&meta, false, apivalidation.NameIsDNSSubdomain, path)
	name := path.Child("name")
	if !o.Static && strings.HasSuffix(o.Name, staticSuffix) {
		errs = append(errs, field.Invalid(name, o.Name, fmt.Sprintf(
			"names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", staticSuffix)))
	}
	if len(errs) == 0 { // the name is valid
		longest := webhookName(admission.Validate, admissionregistrationv1.Ignore, o.domain())
		for _, err := range validation.IsFullyQualifiedName(name, longest) {
			errs = append(errs, field.Invalid(name, o.Name, fmt.Sprintf("it ends the names of webhooks, as in %q: %s", longest, err.Detail)))
		}
	}
	return append(errs, validateNamespace(o.Namespace, path.Child("namespace"))...)
}

// validateNamespace checks the name of a namespace, which may be empty. It becomes a value
// in a selector.
func validateNamespace(name string, path *field.Path) (errs field.ErrorList) {
	if name == "" {
		return nil
	}
	for _, message := range apivalidation.ValidateNamespaceName(name, false) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}

func (o *Options) validateClientConfig(path *field.Path) (errs field.ErrorList) {
	c := &o.ClientConfig
	switch {
	case o.Static && c.Service != nil:
		errs = append(errs, field.Forbidden(path.Child("service"), "is not supported for static manifests; use url instead"))
	case o.Static && c.URL == nil:
		errs = append(errs, field.Required(path.Child("url"), "is required for static manifests"))
	case c.URL != nil && c.Service != nil:
		errs = append(errs, field.Required(path, "exactly one of url or service is required"))
	case c.URL != nil:
		errs = append(errs, ValidateURL(*c.URL, path.Child("url"))...)
	default:
		errs = append(errs, ValidateService(c.Service, path.Child("service"))...)
		if c.Service.Namespace != o.Namespace {
			errs = append(errs, validateNamespace(c.Service.Namespace, path.Child("service", "namespace"))...)
		}
	}
	if len(c.CABundle) > 0 {
		errs = append(errs, validateCABundle(c.CABundle, path.Child("caBundle"))...)
	}
	return errs
}

// ValidateURL returns the errors of ValidateWebhookURL (k8s.io/apiserver
// pkg/util/webhook/validation.go) for the URL of a webhook.
func ValidateURL(text string, path *field.Path) (errs field.ErrorList) {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(path, "url must be a valid URL: "+err.Error()+form)}
	}
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(path, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(path, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(path, u.User.Username(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(path, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(path, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

// ValidateService returns the errors of ValidateWebhookService (k8s.io/apiserver
// pkg/util/webhook/validation.go) for the service of a webhook.
func ValidateService(s *admissionregistrationv1.ServiceReference, path *field.Path) (errs field.ErrorList) {
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if s.Namespace == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	for _, message := range validation.IsValidPortNum(int(*s.Port)) {
		errs = append(errs, field.Invalid(path.Child("port"), *s.Port, "port is not valid: "+message))
	}
	if s.Path != nil {
		errs = append(errs, validatePath(*s.Path, path.Child("path"))...)
	}
	return errs
}

func validatePath(text string, path *field.Path) (errs field.ErrorList) {
	if text == "" || text == "/" {
		return nil
	}
	if !strings.HasPrefix(text, "/") {
		errs = append(errs, field.Invalid(path, text, "must start with a '/'"))
	}
	for i, segment := range strings.Split(strings.TrimSuffix(text[1:], "/"), "/") {
		if segment == "" {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, message := range validation.IsDNS1123Subdomain(segment) {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d]: %s", i, message)))
		}
	}
	return errs
}

// validateCABundle accepts only certificates: everybody could read a private key.
// kube-apiserver accepts any text, and then fails to call the webhook.
func validateCABundle(bundle []byte, path *field.Path) (errs field.ErrorList) {
	refuse := func(what, why string) { errs = append(errs, field.Invalid(path, field.OmitValueType{}, what+why)) }
	found := 0
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		found++
		what := fmt.Sprintf("block %d: ", found)
		if block.Type != "CERTIFICATE" {
			refuse(what, fmt.Sprintf("got %s, want CERTIFICATE", block.Type))
		} else if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			refuse(what, err.Error())
		}
	}
	if found == 0 {
		refuse("got no PEM block", ", want at least one certificate")
	}
	return errs
}

// ValidateReviewVersions returns the errors that kube-apiserver reports for
// admissionReviewVersions.
func ValidateReviewVersions(versions []string, path *field.Path) (errs field.ErrorList) {
	known := strings.Join(knownReviewVersions, ", ")
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+known)}
	}
	for i, version := range versions {
		if slices.Contains(versions[:i], version) {
			errs = append(errs, field.Invalid(path.Index(i), version, "duplicate version"))
			continue
		}
		for _, message := range validation.IsDNS1035Label(version) {
			errs = append(errs, field.Invalid(path.Index(i), version, message))
		}
	}
	if !slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(knownReviewVersions, v) }) {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+known))
	}
	return errs
}

// validatePlugin checks the rules, the side effects and the failure policy of a plugin.
func validatePlugin(p *Plugin) error {
	path := field.NewPath("plugins").Key(p.Name)
	var own match.Criteria
	for i := range p.Rules {
		own.Rules = append(own.Rules, p.Rules[i].WithOperations())
	}
	var errs field.ErrorList
	if !slices.Contains(knownFailurePolicies, p.failurePolicy()) {
		errs = append(errs, field.NotSupported(path.Child("failurePolicy"), p.FailurePolicy, knownFailurePolicies))
	}
	if p.SideEffects != "" && !slices.Contains(knownSideEffects, p.SideEffects) {
		errs = append(errs, field.NotSupported(path.Child("sideEffects"), p.SideEffects, knownSideEffects))
	}
	_, err := match.New(&own, path)
	return join(errs.ToAggregate(), err)
}
