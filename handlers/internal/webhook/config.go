// Package webhook calls the admission webhooks of others, as kube-apiserver's plugins
// MutatingAdmissionWebhook and ValidatingAdmissionWebhook do (k8s.io/apiserver v0.36.3
// pkg/admission/plugin/webhook and pkg/util/webhook).
//
// These packages are not used: they come with most of an API server, decode whole
// objects, and bound neither answers nor calls.
package webhook

import (
	"fmt"
	"path"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
)

const (
	// upstreamVersion is that of kube-apiserver's kind (k8s.io/apiserver
	// pkg/admission/plugin/webhook/config/apis/webhookadmission/v1).
	upstreamVersion = "apiserver.config.k8s.io/v1"
	// ownVersion is that of the same kind with the fields that only fastadmit has.
	ownVersion = "fastadmit.io/v1alpha1"

	configKind = "WebhookAdmissionConfiguration"
)

// Config is the configuration file of the plugins for webhooks. The folder is read by
// whoever reads the file.
type Config struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	KubeConfigFile     string `json:"kubeConfigFile"`
	StaticManifestsDir string `json:"staticManifestsDir"`
	// CustomResources says that configurations are also taken from the custom resources
	// of webhooks.fastadmit.io.
	CustomResources bool `json:"customResources"`
	// AuditPatches writes the patches of webhooks into the audit log, whatever its level.
	AuditPatches bool `json:"auditPatches"`
	// Circuit is when webhooks whose failures are ignored are left alone; nil for never.
	Circuit *Circuit `json:"circuit"`
}

// Circuit is when a webhook is left alone for some time that fails again and again, and
// whose failures are ignored: then it does not cost its timeout on every request.
type Circuit struct {
	// Failures is how many calls fail one after the other until the circuit opens.
	Failures int `json:"failures"`
	// Pause is for how long the webhook is not called then. The next call decides for
	// how it goes on.
	Pause metav1.Duration `json:"pause"`
}

// readConfig reads the configuration file, nil for none.
func readConfig(content []byte) (*Config, error) {
	c := new(Config)
	if content == nil {
		return c, nil // and no webhook
	}
	return c, handlers.DecodeConfig(content, c, c.check)
}

func (c *Config) check() (errs field.ErrorList) {
	if c.APIVersion == ownVersion {
		errs = handlers.ValidateConfigType(c.APIVersion, ownVersion, c.Kind, configKind)
	} else {
		errs = handlers.ValidateConfigType(c.APIVersion, upstreamVersion, c.Kind, configKind)
	}
	for _, own := range []struct {
		name  string
		isSet bool
	}{{"customResources", c.CustomResources}, {"auditPatches", c.AuditPatches}, {"circuit", c.Circuit != nil}} {
		if own.isSet && c.APIVersion == upstreamVersion {
			errs = append(errs, field.Forbidden(field.NewPath(own.name), fmt.Sprintf("wants apiVersion %s", ownVersion)))
		}
	}
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

// NeedsOf returns what a plugin of kind k needs with a configuration beside what it
// always needs: to find Services, and with custom resources to watch them and to write
// their status.
func (k *Kind) NeedsOf(config []byte) []cluster.Need {
	c := new(Config)
	if err := yaml.Unmarshal(config, c); err != nil || c.APIVersion != ownVersion {
		return nil // New says what is wrong
	}
	needs := []cluster.Need{cluster.Services.Called("get")}
	if c.CustomResources {
		needs = append(needs, k.resources.Watched(), k.resources.CalledStatus("update").InBackground())
	}
	return needs
}
