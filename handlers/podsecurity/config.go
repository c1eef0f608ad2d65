package podsecurity

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	admissionapi "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/admission/api/scheme"
	apiv1 "k8s.io/pod-security-admission/admission/api/v1"
	"k8s.io/pod-security-admission/admission/api/v1alpha1"
	"k8s.io/pod-security-admission/admission/api/v1beta1"
	"k8s.io/pod-security-admission/admission/api/validation"

	"github.com/fastadmit/fastadmit/admission"
)

// apiVersions have the same fields and defaults.
var apiVersions = []string{apiv1.SchemeGroupVersion.String(), v1beta1.SchemeGroupVersion.String(), v1alpha1.SchemeGroupVersion.String()}

const configurationKind = "PodSecurityConfiguration"

// newConfiguration returns the plugin's configuration. It reports more than upstream's loader does, which stops at the
// first field that is unknown.
func newConfiguration(content []byte) (*admissionapi.PodSecurityConfiguration, error) {
	if len(content) == 0 {
		return load.LoadFromData(nil)
	}
	var given apiv1.PodSecurityConfiguration
	configuration := new(admissionapi.PodSecurityConfiguration)
	err := admission.DecodeConfig(content, &given, func() (errs field.ErrorList) {
		if !slices.Contains(apiVersions, given.APIVersion) {
			errs = field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), given.APIVersion, apiVersions)}
		}
		if given.Kind != configurationKind {
			errs = append(errs, field.NotSupported(field.NewPath("kind"), given.Kind, []string{configurationKind}))
		}
		scheme.Scheme.Default(&given)
		if err := scheme.Scheme.Convert(&given, configuration, nil); err != nil {
			return append(errs, field.InternalError(nil, err))
		}
		return append(errs, validation.ValidatePodSecurityConfiguration(configuration)...)
	})
	return configuration, err
}
