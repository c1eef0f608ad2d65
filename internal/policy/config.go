package policy

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/internal/customresource"
)

// Config is the configuration file of a plugin for policies (k8s.io/apiserver
// pkg/admission/plugin/policy/config/apis/policyconfig/v1).
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// StaticManifestsDir is a folder with policies and bindings. Package config reads it
	// into admission.Setup.Manifests.
	StaticManifestsDir string `json:"staticManifestsDir"`
	// CustomResources also enables the policies and bindings that are custom resources
	// of the group policies.fastadmit.io.
	CustomResources bool `json:"customResources"`
	// Read has the names of other engines whose custom resources are translated and evaluated, too:
	// kyverno, gatekeeper.
	Read []string `json:"read"`
	// ExceptionsNamespace is the namespace in which Kyverno's PolicyExceptions count, "*" for all. If
	// it is empty, none counts.
	ExceptionsNamespace string `json:"exceptionsNamespace"`
}

// ReadConfig reads the configuration file of the plugin for k. content is nil if there is
// no file. The error joins all errors in the file.
func (k *Kind[P, B]) ReadConfig(content []byte) (*Config, error) {
	c := new(Config)
	if content == nil {
		return c, nil // as in kube-apiserver, there are no policies
	}
	return c, admission.DecodeConfig(content, c, func() field.ErrorList {
		errs := customresource.ValidateConfig(c.APIVersion, c.Kind, k.Name+"Configuration",
			customresource.ConfigField{Name: "customResources", IsSet: c.CustomResources},
			customresource.ConfigField{Name: "read", IsSet: c.Read != nil},
			customresource.ConfigField{Name: "exceptionsNamespace", IsSet: c.ExceptionsNamespace != ""})
		for i, name := range c.Read {
			at := field.NewPath("read").Index(i)
			if errs = append(errs, oneOf(at, name, engineNames)...); slices.Contains(c.Read[:i], name) {
				errs = append(errs, field.Duplicate(at, name))
			}
		}
		return errs
	})
}

// NeedsOf returns the needs of the plugin for k that depend on its configuration file; see
// admission.Plugin. If the file enables custom resources, the plugin watches them, writes
// their status, and records the policies that this replica enforces. It also watches the
// kinds of parameters and reads schemas.
func (k *Kind[P, B]) NeedsOf(config []byte) []cluster.Need {
	c := new(Config)
	if err := yaml.Unmarshal(config, c); err != nil {
		return nil // ReadConfig reports the error
	}
	needs := needsOf(c.Read)
	if !c.CustomResources {
		return needs
	}
	if k.hasExceptions {
		needs = append(needs, cluster.PolicyExceptions.Watched(), cluster.PolicyExceptions.CalledStatus("update").InBackground())
	}
	return append([]cluster.Need{
		k.policies.Watched(), k.bindings.Watched(), k.policies.CalledStatus("update").InBackground(),
		cluster.PolicyReplicas.Watched(), cluster.PolicyReplicas.Called("create", "delete").InBackground(),
		cluster.PolicyReplicas.CalledStatus("update").InBackground(),
		cluster.Discovered(), cluster.DiscoveredSchemas(), cluster.Dynamic(),
	}, needs...)
}
