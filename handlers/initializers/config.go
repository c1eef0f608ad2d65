package initializers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

// Config is the plugin's configuration file.
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// StaticManifestsDir is a folder with files of InitializerConfigurations.
	StaticManifestsDir string `json:"staticManifestsDir"`
}

// configuration is an InitializerConfiguration (k8s.io/api
// admissionregistration/v1alpha1 of Kubernetes v1.13).
type configuration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Initializers      []initializer `json:"initializers"`
}

type initializer struct {
	// Name is qualified by a domain, as in add.example.com.
	Name string `json:"name"`
	// Rules must all match.
	Rules []rule `json:"rules"`
}

type rule struct {
	APIGroups   []string `json:"apiGroups"`
	APIVersions []string `json:"apiVersions"`
	Resources   []string `json:"resources"`
}

// load reads the configurations in the folder. It sorts the initializers by the name of
// their configuration, and then by their position in it.
func load(setup admission.Setup) ([]initializer, error) {
	if setup.Config != nil {
		var c Config
		if err := admission.DecodeConfig(setup.Config, &c, func() field.ErrorList {
			errs := admission.ValidateConfigType(c.APIVersion, "fastadmit.io/v1alpha1", c.Kind, "InitializersConfiguration")
			if c.StaticManifestsDir == "" {
				errs = append(errs, field.Required(field.NewPath("staticManifestsDir"), "the folder with InitializerConfigurations"))
			}
			return errs
		}); err != nil {
			return nil, err
		}
	}
	var all []*configuration
	known := make(map[string]bool)
	reader := documents.Reader{
		APIVersions: []string{"admissionregistration.k8s.io/v1alpha1"}, Kinds: []string{"InitializerConfiguration"},
		Add: func(_ *admission.File, _ string, content []byte) (errs []error) {
			one := new(configuration)
			if errs = documents.Decode(content, one); errs != nil {
				return errs
			}
			all = append(all, one)
			for _, err := range one.validate(known) {
				errs = append(errs, err)
			}
			return errs
		},
	}
	if errs := reader.Read(setup.Manifests); errs != nil {
		return nil, utilerrors.NewAggregate(errs)
	}
	slices.SortStableFunc(all, func(a, b *configuration) int { return cmp.Compare(a.Name, b.Name) })
	var list []initializer
	for _, one := range all {
		list = append(list, one.Initializers...)
	}
	return list, nil
}

// validate makes the checks of v1.13 (pkg/apis/admissionregistration/validation). It also
// checks that the name is valid in a scheduling gate, and that it is unique.
func (c *configuration) validate(known map[string]bool) (errs field.ErrorList) {
	if c.Name == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), "want a name, by which configurations are sorted"))
	}
	for i := range c.Initializers {
		one, at := &c.Initializers[i], field.NewPath("initializers").Index(i)
		errs = append(errs, validation.IsFullyQualifiedName(at.Child("name"), one.Name)...)
		for _, fault := range validation.IsQualifiedName(gatePrefix + one.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), one.Name, fault))
		}
		if known[one.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), one.Name))
		}
		known[one.Name] = true
		for j := range one.Rules {
			errs = append(errs, one.Rules[j].validate(at.Child("rules").Index(j))...)
		}
	}
	return errs
}

func (r *rule) validate(at *field.Path) (errs field.ErrorList) {
	for _, list := range []struct {
		name   string
		values []string
	}{{"apiGroups", r.APIGroups}, {"apiVersions", r.APIVersions}, {"resources", r.Resources}} {
		if len(list.values) == 0 {
			errs = append(errs, field.Required(at.Child(list.name), ""))
		}
		if len(list.values) > 1 && slices.Contains(list.values, "*") {
			errs = append(errs, field.Invalid(at.Child(list.name), list.values, "if '*' is present, must not specify others"))
		}
		for i, value := range list.values {
			if value == "" && list.name != "apiGroups" {
				errs = append(errs, field.Required(at.Child(list.name).Index(i), ""))
			}
			if list.name == "resources" && strings.Contains(value, "/") && value != "*/*" {
				errs = append(errs,
					field.Invalid(at.Child(list.name).Index(i), value,
						fmt.Sprintf("subresources have no initializers; want a resource, %q or %q", "*", "*/*")))
			}
		}
	}
	return errs
}

// matches reports whether there are rules and all of them match, as in v1.13.
func (i *initializer) matches(resource codec.GroupVersionResource) bool {
	for j := range i.Rules {
		r := &i.Rules[j]
		if !has(r.APIGroups, resource.Group) || !has(r.APIVersions, resource.Version) ||
			r.Resources[0] != "*/*" && !has(r.Resources, resource.Resource) {
			return false
		}
	}
	return len(i.Rules) > 0
}

func has(values []string, value string) bool {
	return values[0] == "*" || slices.Contains(values, value)
}
