package admission

import (
	"fmt"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/alike"
)

// DecodeConfig decodes a plugin's configuration file into the struct that into
// points to. The file is YAML, or JSON if it begins with a brace, as in Kubernetes.
// Then it calls validate, unless it is nil. The returned error joins all errors.
//
// In contrast to kube-apiserver, unknown and duplicate fields are errors, because a
// misspelled field would have no effect.
func DecodeConfig(content []byte, into any, validate func() field.ErrorList) (err error) {
	if !utilyaml.IsJSONBuffer(content) {
		if content, err = yaml.YAMLToJSONStrict(content); err != nil {
			return fmt.Errorf("cannot decode configuration: %w", err)
		}
	}
	errs, err := alike.UnmarshalStrict(content, into)
	if err != nil {
		return fmt.Errorf("cannot decode configuration: %w", err)
	}
	if validate != nil {
		if invalid := validate().ToAggregate(); invalid != nil {
			errs = append(errs, invalid.Errors()...)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// ValidateConfigType checks apiVersion and kind of a configuration file.
func ValidateConfigType(apiVersion, wantAPIVersion, kind, wantKind string) (errs field.ErrorList) {
	if apiVersion != wantAPIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), apiVersion, []string{wantAPIVersion}))
	}
	if kind != wantKind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), kind, []string{wantKind}))
	}
	return errs
}
