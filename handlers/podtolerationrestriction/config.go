package podtolerationrestriction

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
)

const (
	configAPIVersion = "podtolerationrestriction.admission.k8s.io/v1alpha1"
	configKind       = "Configuration"
)

// configuration is the plugin's configuration file (upstream's
// apis/podtolerationrestriction/v1alpha1/types.go).
type configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Default are the tolerations for pods of namespaces without an annotation for them.
	Default []corev1.Toleration `json:"default"`
	// Whitelist are the allowed tolerations of pods in namespaces without an annotation for
	// them.
	Whitelist []corev1.Toleration `json:"whitelist"`
}

// loadConfiguration reads a configuration file, nil for none. The error joins all errors.
func loadConfiguration(content []byte) (*configuration, error) {
	c := new(configuration)
	if content == nil {
		return c, nil
	}
	return c, admission.DecodeConfig(content, c, func() field.ErrorList {
		errs := admission.ValidateConfigType(c.APIVersion, configAPIVersion, c.Kind, configKind)
		errs = append(errs, validateTolerations(c.Default, field.NewPath("default"))...)
		return append(errs, validateTolerations(c.Whitelist, field.NewPath("whitelist"))...)
	})
}

// validateTolerations makes the checks of ValidateTolerations in k8s.io/kubernetes
// pkg/apis/core/validation without options, with its messages.
func validateTolerations(tolerations []corev1.Toleration, path *field.Path) (errs field.ErrorList) {
	for i := range tolerations {
		t, at := &tolerations[i], path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		} else if t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
				"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect,
				"effect must be 'NoExecute' when `tolerationSeconds` is set"))
		}
		errs = append(errs, validateOperator(t, at.Child("operator"))...)
		switch t.Effect {
		case "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			errs = append(errs, field.NotSupported(at.Child("effect"), t.Effect, []corev1.TaintEffect{
				corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute,
			}))
		}
	}
	return errs
}

func validateOperator(t *corev1.Toleration, at *field.Path) field.ErrorList {
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if faults := validation.IsValidLabelValue(t.Value); len(faults) > 0 {
			return field.ErrorList{field.Invalid(at, t.Value, strings.Join(faults, ";"))}
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			return field.ErrorList{field.Invalid(at, t.Value, "value must be empty when `operator` is 'Exists'")}
		}
	default:
		return field.ErrorList{field.NotSupported(at, t.Operator, []corev1.TolerationOperator{
			corev1.TolerationOpEqual, corev1.TolerationOpExists,
		})}
	}
	return nil
}
