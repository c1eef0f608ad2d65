package eventratelimit

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
)

const (
	configAPIVersion = "eventratelimit.admission.k8s.io/v1alpha1"
	configKind       = "Configuration"
)

// configuration is the plugin's configuration file (upstream's
// apis/eventratelimit/v1alpha1/types.go).
type configuration struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Limits     []limit `json:"limits"`
}

// limit is a limit of one type. Two limits of the same type are both enforced.
type limit struct {
	Type limitType `json:"type"`
	// QPS is how many tokens a bucket gets per second. Each Event takes one.
	QPS int32 `json:"qps"`
	// Burst is the capacity of a bucket. It is full at first.
	Burst int32 `json:"burst"`
	// CacheSize is the number of cached buckets, 0 for the default.
	CacheSize int32 `json:"cacheSize"`
}

// limitType says which Events share a bucket.
type limitType string

const (
	serverLimit          limitType = "Server"
	namespaceLimit       limitType = "Namespace"
	userLimit            limitType = "User"
	sourceAndObjectLimit limitType = "SourceAndObject"
)

var limitTypes = []limitType{serverLimit, namespaceLimit, userLimit, sourceAndObjectLimit}

// loadConfiguration reads a configuration file, nil for none. The error joins all errors.
func loadConfiguration(content []byte) (*configuration, error) {
	c := new(configuration)
	if content == nil {
		return c, c.validate().ToAggregate()
	}
	return c, admission.DecodeConfig(content, c, func() field.ErrorList {
		errs := admission.ValidateConfigType(c.APIVersion, configAPIVersion, c.Kind, configKind)
		return append(errs, c.validate()...)
	})
}

// validate makes the checks of upstream's apis/eventratelimit/validation, with its messages.
func (c *configuration) validate() (errs field.ErrorList) {
	limits := field.NewPath("limits")
	if len(c.Limits) == 0 {
		errs = append(errs, field.Invalid(limits, c.Limits, "must not be empty"))
	}
	for i := range c.Limits {
		errs = append(errs, c.Limits[i].validate(limits.Index(i))...)
	}
	return errs
}

func (l *limit) validate(at *field.Path) (errs field.ErrorList) {
	if !slices.Contains(limitTypes, l.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), l.Type, limitTypes))
	}
	if l.Burst <= 0 {
		errs = append(errs, field.Invalid(at.Child("burst"), l.Burst, "must be positive"))
	}
	if l.QPS <= 0 {
		errs = append(errs, field.Invalid(at.Child("qps"), l.QPS, "must be positive"))
	}
	// Server has one bucket and ignores the field.
	if l.Type != serverLimit && l.CacheSize < 0 {
		errs = append(errs, field.Invalid(at.Child("cacheSize"), l.CacheSize, "must not be negative"))
	}
	return errs
}
