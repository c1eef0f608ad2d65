// Package persistentvolumeclaimresize is the admission plugin
// PersistentVolumeClaimResize.
//
// It denies updates that make a PersistentVolumeClaim larger whose volume cannot
// grow. Without it, the claim would ask for what it never gets, and could not be
// made smaller again.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/storage/persistentvolume/resize.
package persistentvolumeclaimresize

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// What the user is told, as in-tree.
var (
	errNotBound = errors.New("Only bound persistent volume claims can be expanded")
	errClass    = errors.New("only dynamically provisioned pvc can be resized and " +
		"the storageclass that provisions the pvc must support resize")
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "PersistentVolumeClaimResize",
		Summary:     "denies enlarging a claim unless its storage class allows it",
		Rules:       []admission.Rule{admission.NewRule("", "v1", "persistentvolumeclaims", codec.Update)},
		Validates:   true,
		Needs:       []cluster.Need{cluster.StorageClasses.Watched()},
		OnByDefault: true,
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{classes: cluster.StorageClasses.In(setup.Cluster)}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	classes *cluster.Objects[*storagev1.StorageClass]
}

func (p *plugin) validate(_ context.Context, review *codec.Review) admission.Result {
	was, is := review.OldObject.Root(), review.Object.Root()
	if !was.IsSet() || !is.IsSet() { // what is no claim is left alone, as in-tree
		return admission.Allowed()
	}
	switch grows, err := grows(was, is); {
	case err != nil:
		return admission.Errored(err)
	case !grows:
		return admission.Allowed()
	}
	if !was.Get("status", "phase").EqualString(string(corev1.ClaimBound)) {
		return admission.Denied(admission.Forbidden(review, errNotBound))
	}
	if !p.mayGrow(was, is) {
		return admission.Denied(admission.Forbidden(review, errClass))
	}
	return admission.Allowed()
}

// grows reports whether the claim asks for more than it did. Nearly all updates
// leave the size as it is written.
func grows(was, is codec.Value) (bool, error) {
	old := was.Get("spec", "resources", "requests", "storage")
	now := is.Get("spec", "resources", "requests", "storage")
	if old.Scalar() == now.Scalar() {
		return false, nil
	}
	before, err := size(old)
	if err != nil {
		return false, fmt.Errorf("oldObject: %w", err)
	}
	after, err := size(now)
	if err != nil {
		return false, fmt.Errorf("object: %w", err)
	}
	return after.Cmp(before) > 0, nil
}

// size reads a quantity. A claim without one asks for nothing.
func size(v codec.Value) (resource.Quantity, error) {
	if !v.IsSet() {
		return resource.Quantity{}, nil
	}
	q, err := quantity.Parse(v)
	if err != nil {
		return q, fmt.Errorf("spec.resources.requests.storage: got %s: %w", v.JSON(), err)
	}
	return q, nil
}

// mayGrow reports whether the class of the claim, which must not change at the
// same time, lets its volumes grow.
func (p *plugin) mayGrow(was, is codec.Value) bool {
	name := className(is)
	if name != className(was) {
		return false
	}
	class, ok := p.classes.Cached("", name)
	return ok && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
}

// className is the class that a claim names; empty for none, and for the class of
// volumes that are made by hand. The annotation of old goes before the field
// (k8s.io/kubernetes pkg/apis/core/helper GetPersistentVolumeClaimClass).
func className(claim codec.Value) string {
	if old := claim.Get("metadata", "annotations", corev1.BetaStorageClassAnnotation); old.Exists() {
		return old.String()
	}
	return claim.Get("spec", "storageClassName").String()
}
