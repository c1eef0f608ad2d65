// Package securitycontextdeny is the admission plugin SecurityContextDeny.
//
// It denies Pods that choose their own user, SELinux options or groups, so
// that what the image and the node say holds. Kubernetes removed it in v1.30
// in favour of PodSecurity; one wants it where that is not an option yet, or
// where policies were written against it.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/securitycontext/scdeny
// v1.29.15, without its feature gate.
package securitycontextdeny

import (
	"context"
	"errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "SecurityContextDeny",
		Summary:     "denies pods that set their own user, SELinux options or groups",
		Rules:       []admission.Rule{admission.CreateUpdate("pods")},
		Validates:   true,
		LastRelease: "1.29",
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: validate}, nil
		},
	}
}

// A forbidden field of a security context: how JSON and how messages name it.
type forbidden struct{ field, shown string }

// The fields are in the order in which the in-tree plugin looks at them: the
// first one found is the one that the message names.
var (
	inPods = [...]forbidden{
		{"supplementalGroups", "pod.Spec.SecurityContext.SupplementalGroups"},
		{"seLinuxOptions", "pod.Spec.SecurityContext.SELinuxOptions"},
		{"runAsUser", "pod.Spec.SecurityContext.RunAsUser"},
		{"fsGroup", "pod.Spec.SecurityContext.FSGroup"},
	}
	inContainers = [...]forbidden{
		{"seLinuxOptions", "SecurityContext.SELinuxOptions"},
		{"runAsUser", "SecurityContext.RunAsUser"},
	}
)

// containerLists has no ephemeral containers: the in-tree plugin does not look
// at them.
var containerLists = [...]string{"initContainers", "containers"}

func validate(_ context.Context, review *codec.Review) admission.Result {
	spec := review.Object.Get("spec")
	if shown, ok := find(spec, inPods[:]); ok {
		return deny(review, shown)
	}
	for _, list := range containerLists {
		for _, container := range spec.Get(list).Elements() {
			if shown, ok := find(container, inContainers[:]); ok {
				return deny(review, shown)
			}
		}
	}
	return admission.Allowed()
}

// find returns how messages name the first of the fields that is set in the
// security context of a PodSpec or container. Being set is enough: zero and
// empty values are.
func find(in codec.Value, fields []forbidden) (shown string, ok bool) {
	securityContext := in.Get("securityContext")
	for _, f := range fields {
		if v := securityContext.Get(f.field); v.IsSet() {
			return f.shown, true
		}
	}
	return "", false
}

func deny(review *codec.Review, shown string) admission.Result {
	return admission.Denied(podspec.Forbidden(review, errors.New(shown+" is forbidden")))
}
