package resourcequota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/alike"
)

// configuration is the plugin's configuration file (k8s.io/apiserver
// pkg/admission/plugin/resourcequota/apis/resourcequota, whose versions have the
// same fields).
type configuration struct {
	APIVersion       string            `json:"apiVersion"`
	Kind             string            `json:"kind"`
	LimitedResources []limitedResource `json:"limitedResources"`
}

// A limitedResource may only be used if a quota covers the use.
type limitedResource struct {
	// APIGroup and Resource select the objects to which MatchContains applies.
	APIGroup string `json:"apiGroup"`
	Resource string `json:"resource"`
	// MatchContains are substrings of the names of resources in quotas.
	MatchContains []string `json:"matchContains"`
	// MatchScopes are scopes of objects, of any Resource.
	MatchScopes []corev1.ScopedResourceSelectorRequirement `json:"matchScopes"`
}

// configurationTypes are the allowed apiVersions and kinds of a file.
var configurationTypes = []string{
	"apiserver.config.k8s.io/v1 ResourceQuotaConfiguration",
	"resourcequota.admission.k8s.io/v1beta1 Configuration",
	"resourcequota.admission.k8s.io/v1alpha1 Configuration",
}

// loadConfiguration reads a configuration file, nil for none. As upstream, unknown and
// duplicate fields are errors.
func loadConfiguration(content []byte) (*configuration, error) {
	c := new(configuration)
	if content == nil {
		return c, nil
	}
	faults, err := c.decode(content)
	if err != nil {
		return nil, fmt.Errorf("cannot decode configuration: %w", err)
	}
	if got := c.APIVersion + " " + c.Kind; !slices.Contains(configurationTypes, got) {
		faults = append(faults, fmt.Errorf("got apiVersion and kind %q, want one of %s", got, strings.Join(configurationTypes, ", ")))
	}
	for i := range c.LimitedResources {
		if c.LimitedResources[i].Resource == "" {
			faults = append(faults, field.Required(field.NewPath("limitedResources").Index(i).Child("resource"), ""))
		}
	}
	if err := utilerrors.NewAggregate(faults); err != nil {
		return nil, err
	}
	return c, nil
}

// decode reads YAML, or JSON if the text begins with a brace, as Kubernetes does. Unknown
// are errors about unknown and duplicate fields.
func (c *configuration) decode(content []byte) (unknown []error, err error) {
	if !utilyaml.IsJSONBuffer(content) {
		if content, err = yaml.YAMLToJSONStrict(content); err != nil {
			return nil, err
		}
	}
	return alike.UnmarshalStrict(content, c)
}
