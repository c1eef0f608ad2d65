// Package storageobjectinuseprotection is the admission plugin
// StorageObjectInUseProtection.
//
// It gives every new PersistentVolume, PersistentVolumeClaim and VolumeAttributesClass a
// finalizer. kube-controller-manager removes it when the object is being deleted and is no
// longer used. Without it, deleting a claim would delete the volume of a running pod, and
// its data.
//
// Behaviour: k8s.io/kubernetes
// plugin/pkg/admission/storage/storageobjectinuseprotection.
package storageobjectinuseprotection

import (
	"context"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "StorageObjectInUseProtection",
		Summary:     "keeps volumes, claims and volume attributes classes that are in use from being deleted",
		Rules:       rules(),
		Mutates:     true,
		OnByDefault: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: admit}, nil
		},
	}
}

func rules() []admission.Rule {
	create := []codec.Operation{codec.Create}
	return []admission.Rule{
		{
			Operations: create,
			Groups:     []string{""},
			Versions:   []string{"v1"},
			Resources:  []string{"persistentvolumes", "persistentvolumeclaims"},
		},
		// Version v1 is new in Kubernetes v1.34, which enables the feature gate
		// VolumeAttributesClass. Without the gate, nothing removes the finalizer, and such a
		// class could not be deleted.
		{
			Operations: create,
			Groups:     []string{"storage.k8s.io"},
			Versions:   []string{"v1"},
			Resources:  []string{"volumeattributesclasses"},
		},
	}
}

func admit(_ context.Context, review *codec.Review) admission.Result {
	// The finalizers: k8s.io/kubernetes pkg/volume/util/finalizer.go.
	switch review.Resource().Resource {
	case "persistentvolumes":
		protect(&review.Object, "kubernetes.io/pv-protection")
	case "persistentvolumeclaims":
		protect(&review.Object, "kubernetes.io/pvc-protection")
	case "volumeattributesclasses":
		protect(&review.Object, "kubernetes.io/vac-protection")
	}
	return admission.Allowed()
}

// protect appends the finalizer unless the object has it. As in-tree, it ignores values that
// are not objects.
func protect(object *codec.Object, finalizer string) {
	if !object.Root().Exists() {
		return
	}
	for _, f := range object.Get("metadata", "finalizers").Elements() {
		if f.EqualString(finalizer) {
			return
		}
	}
	object.AppendString(finalizer, "metadata", "finalizers")
}
