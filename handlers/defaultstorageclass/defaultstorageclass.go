// Package defaultstorageclass is the admission plugin DefaultStorageClass.
//
// It sets the cluster's default class in every new PersistentVolumeClaim without a class, so
// that authors of claims need not know the classes of the cluster. Without it, such a claim
// waits until somebody creates a volume for it, or until kube-controller-manager sets the
// class.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/storage/storageclass/setdefault
// and pkg/volume/util/storageclass.go.
package defaultstorageclass

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// The annotations with which the value "true" makes a class the default (k8s.io/kubernetes
// pkg/volume/util/storageclass.go).
const (
	annotationDefault     = "storageclass.kubernetes.io/is-default-class"
	annotationDefaultBeta = "storageclass.beta.kubernetes.io/is-default-class"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "DefaultStorageClass",
		Summary:     "sets the default storage class in claims without one",
		Rules:       []admission.Rule{admission.NewRule("", "v1", "persistentvolumeclaims", codec.Create)},
		Mutates:     true,
		Needs:       []cluster.Need{cluster.StorageClasses.Watched()},
		OnByDefault: true,
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{classes: cluster.StorageClasses.In(setup.Cluster)}
			return admission.Handler{Admit: p.admit}, nil
		},
	}
}

type plugin struct {
	classes *cluster.Objects[*storagev1.StorageClass]
}

// admit sets the class unless the claim has one. The empty class counts as one: such a claim
// wants a volume without dynamic provisioning.
func (p *plugin) admit(_ context.Context, review *codec.Review) admission.Result {
	claim := &review.Object
	if !claim.Root().IsSet() || // as in-tree, objects that are not claims are ignored
		claim.Get("metadata", "annotations", corev1.BetaStorageClassAnnotation).Exists() ||
		claim.Get("spec", "storageClassName").IsSet() {
		return admission.Allowed()
	}
	classes, err := p.classes.List("")
	if err != nil {
		return admission.Errored(err)
	}
	if class, ok := cluster.Newest(classes, isDefault); ok {
		claim.SetString(class.Name, "spec", "storageClassName")
	}
	return admission.Allowed()
}

func isDefault(class *storagev1.StorageClass) bool {
	return class.Annotations[annotationDefault] == "true" || class.Annotations[annotationDefaultBeta] == "true"
}
