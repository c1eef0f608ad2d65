// Package webhook calls other admission webhooks, as the plugins MutatingAdmissionWebhook
// and ValidatingAdmissionWebhook of kube-apiserver do (k8s.io/apiserver
// pkg/admission/plugin/webhook and pkg/util/webhook).
//
// It does not use these packages because they depend on most of an API server, decode
// whole objects, and limit neither the size of answers nor the number of calls.
package webhook

import (
	"fmt"
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/customresource"
)

const configKind = "WebhookAdmissionConfiguration"

// Config is the configuration file of the plugins for webhooks (k8s.io/apiserver
// pkg/admission/plugin/webhook/config/apis/webhookadmission/v1). Package config reads the
// files that it names into admission.Setup.
type Config struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	KubeConfigFile     string `json:"kubeConfigFile"`
	StaticManifestsDir string `json:"staticManifestsDir"`
	// CustomResources also enables the webhook configurations that are custom resources
	// of the group webhooks.fastadmit.io.
	CustomResources bool `json:"customResources"`
	// AuditPatches writes the patches of webhooks to the audit log at every audit level.
	AuditPatches bool `json:"auditPatches"`
	// Circuit configures the circuit breaker, nil for none.
	Circuit *Circuit `json:"circuit"`
}

// Circuit configures the circuit breaker of webhooks with failurePolicy Ignore. A webhook
// that always fails is not called for some time, so requests do not wait for its timeout.
type Circuit struct {
	// Failures is the number of consecutive failed calls that opens the circuit. Calls that
	// cannot connect open it for all users. Other failed calls open it only for their user in
	// their namespace.
	Failures int `json:"failures"`
	// Pause is how long the webhook is not called while the circuit is open, from 1 ms to
	// 10 min. After the pause, one call is made. If it fails, another pause begins.
	Pause metav1.Duration `json:"pause"`
}

// readConfig reads the configuration file, nil for none.
func readConfig(content []byte) (*Config, error) {
	c := new(Config)
	if content == nil {
		return c, nil // without a file, there are no webhooks
	}
	return c, admission.DecodeConfig(content, c, c.check)
}

func (c *Config) check() (errs field.ErrorList) {
	errs = customresource.ValidateConfig(c.APIVersion, c.Kind, configKind, customresource.ConfigField{Name: "customResources", IsSet: c.CustomResources},
		customresource.ConfigField{Name: "auditPatches", IsSet: c.AuditPatches}, customresource.ConfigField{Name: "circuit", IsSet: c.Circuit != nil})
	if c.KubeConfigFile != "" && !path.IsAbs(c.KubeConfigFile) {
		errs = append(errs, field.Invalid(field.NewPath("kubeConfigFile"), c.KubeConfigFile, "must be an absolute file path"))
	}
	if c.Circuit != nil {
		at := field.NewPath("circuit")
		if c.Circuit.Failures < 1 {
			errs = append(errs, field.Invalid(at.Child("failures"), c.Circuit.Failures, "must be positive"))
		}
		if c.Circuit.Pause.Duration < time.Millisecond || c.Circuit.Pause.Duration > circuitPauseMax {
			errs = append(errs, field.Invalid(at.Child("pause"), c.Circuit.Pause.Duration.String(), fmt.Sprintf("must be from 1ms to %s", circuitPauseMax)))
		}
	}
	return errs
}

// NeedsOf returns the needs of the plugin for k that depend on its configuration file; see
// admission.Plugin. With fastadmit's own apiVersion, the plugin reads Services. If the file
// enables custom resources, it also watches them and writes their status.
func (k *Kind) NeedsOf(config []byte) []cluster.Need {
	c := new(Config)
	if err := yaml.Unmarshal(config, c); err != nil || c.APIVersion != customresource.OwnVersion {
		return nil // New returns the error
	}
	needs := []cluster.Need{cluster.Services.Called("get")}
	if c.CustomResources {
		needs = append(needs, k.resources.Watched(), k.resources.CalledStatus("update").InBackground())
	}
	return needs
}
