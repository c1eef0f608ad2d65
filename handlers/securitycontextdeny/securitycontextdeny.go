// Package securitycontextdeny is the admission plugin SecurityContextDeny.
//
// It denies Pods that set their own user, SELinux options or groups, so that those of the
// image and the node apply. Kubernetes removed it in v1.30 in favour of PodSecurity. Enable
// it if you cannot use PodSecurity yet, or if your policies depend on it.
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

// Plugin returns the plugin, for the table of package handlers.
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

// A forbidden field of a security context, with its name in JSON and in messages.
type forbidden struct{ field, shown string }

// The fields are in the order of the in-tree plugin's checks: the message names the first
// one that is set.
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

// containerLists has no ephemeral containers, because the in-tree plugin ignores them.
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

// find returns the name in messages of the first of the fields that is set in the security
// context of a PodSpec or container. Zero and empty values are set, too.
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
