// Package podgroupprotection is the admission plugin PodGroupProtection.
//
// It gives every new PodGroup a finalizer, so that it is not deleted while pods belong to
// it. Without it, the scheduler would lose the group of pods that run or wait.
// kube-controller-manager removes the finalizer.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/scheduling/podgroupprotection.
package podgroupprotection

import (
	"context"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// finalizer: k8s.io/kubernetes pkg/apis/scheduling PodGroupProtectionFinalizer.
const finalizer = "scheduling.k8s.io/podgroup-protection"

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "PodGroupProtection",
		Summary: "keeps PodGroups from being deleted while pods belong to them",
		Rules: []admission.Rule{{ // v1alpha2 in v1.36, the others since v1.37
			Operations: []codec.Operation{codec.Create}, Groups: []string{"scheduling.k8s.io"},
			Versions: []string{"v1beta1", "v1alpha3", "v1alpha2"}, Resources: []string{"podgroups"},
		}},
		Mutates:      true,
		OnByDefault:  true,
		FirstRelease: "1.36",
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: admit}, nil
		},
	}
}

// admit ignores values that are not objects, as in-tree.
func admit(_ context.Context, review *codec.Review) admission.Result {
	if !review.Object.Root().IsSet() {
		return admission.Allowed()
	}
	for _, f := range review.Object.Get("metadata", "finalizers").Elements() {
		if f.EqualString(finalizer) {
			return admission.Allowed()
		}
	}
	review.Object.AppendString(finalizer, "metadata", "finalizers")
	return admission.Allowed()
}
