package imagepolicywebhook

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Upstream's bounds and defaults (plugin/pkg/admission/imagepolicy/config.go).
const (
	retryBackoffDefault = 500 * time.Millisecond
	retryBackoffMin     = time.Nanosecond
	retryBackoffMax     = 5 * time.Minute
	allowTTLDefault     = 5 * time.Minute
	denyTTLDefault      = 30 * time.Second
	ttlMin              = time.Second
	ttlMax              = 30 * time.Minute

	useDefault = 0
	disabled   = -1
)

// configuration is the plugin's configuration file.
type configuration struct {
	ImagePolicy imagePolicy `json:"imagePolicy"`
}

type imagePolicy struct {
	// KubeConfigFile says how to reach the backend.
	KubeConfigFile string `json:"kubeConfigFile"`
	// AllowTTL and DenyTTL are the seconds for which an answer that allows or denies is cached;
	// 0 for the default, -1 to cache none.
	AllowTTL time.Duration `json:"allowTTL"`
	DenyTTL  time.Duration `json:"denyTTL"`
	// RetryBackoff is the time to wait before the first retry, in milliseconds; 0 for the
	// default, -1 to not wait.
	RetryBackoff time.Duration `json:"retryBackoff"`
	// DefaultAllow allows pods if the backend does not answer; otherwise they are denied.
	DefaultAllow bool `json:"defaultAllow"`
}

// normalize converts the numbers of the file to durations. The errors have upstream's texts.
func (c *imagePolicy) normalize() (errs field.ErrorList) {
	at := field.NewPath("imagePolicy")
	if c.KubeConfigFile == "" {
		errs = append(errs, field.Required(at.Child("kubeConfigFile"), "want the kubeconfig file for the backend"))
	}
	f := func(name string, value *time.Duration, scale, least, most, standard time.Duration) {
		switch *value {
		case disabled:
			*value = 0
			return
		case useDefault:
			*value = standard
			return
		}
		got := int64(*value)
		if *value *= scale; *value < least || *value > most {
			errs = append(errs,
				field.Invalid(at.Child(name), got, fmt.Sprintf("valid value is between %v and %v, got %v", least, most, *value)))
		}
	}
	f("retryBackoff", &c.RetryBackoff, time.Millisecond, retryBackoffMin, retryBackoffMax, retryBackoffDefault)
	f("allowTTL", &c.AllowTTL, time.Second, ttlMin, ttlMax, allowTTLDefault)
	f("denyTTL", &c.DenyTTL, time.Second, ttlMin, ttlMax, denyTTLDefault)
	return errs
}
