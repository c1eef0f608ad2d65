package customresource

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
)

// The versions of the configuration files of plugins that follow custom resources.
const (
	// UpstreamVersion is the version of kube-apiserver's kinds.
	UpstreamVersion = "apiserver.config.k8s.io/v1"
	// OwnVersion is the version of the same kinds with the fields that only fastadmit has.
	OwnVersion = "fastadmit.io/v1alpha1"
)

// A ConfigField is a field of a configuration file that UpstreamVersion does not have.
type ConfigField struct {
	Name  string
	IsSet bool
}

// ValidateConfig checks apiVersion and kind of a configuration file, and that own, the fields
// of OwnVersion, are not set in UpstreamVersion.
func ValidateConfig(apiVersion, kind, wantKind string, own ...ConfigField) field.ErrorList {
	if apiVersion == OwnVersion {
		return admission.ValidateConfigType(apiVersion, OwnVersion, kind, wantKind)
	}
	errs := admission.ValidateConfigType(apiVersion, UpstreamVersion, kind, wantKind)
	for _, f := range own {
		if f.IsSet && apiVersion == UpstreamVersion {
			errs = append(errs, field.Forbidden(field.NewPath(f.Name), fmt.Sprintf("wants apiVersion %s", OwnVersion)))
		}
	}
	return errs
}
