// Package persistentvolumeclaimresize is the admission plugin
// PersistentVolumeClaimResize.
//
// It denies updates that increase the size of a PersistentVolumeClaim whose volume cannot
// grow. Without it, the claim would request a size that it never gets, and that cannot be
// reduced again.
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

// Messages of denials, as in-tree.
var (
	errNotBound = errors.New("Only bound persistent volume claims can be expanded")
	errClass    = errors.New("only dynamically provisioned pvc can be resized and " +
		"the storageclass that provisions the pvc must support resize")
)

// Plugin returns the plugin, for the table of package handlers.
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
	if !was.IsSet() || !is.IsSet() { // as in-tree, objects that are not claims are ignored
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

// grows reports whether the claim requests more than before. Nearly all updates leave the
// text of the size unchanged.
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

// size parses a quantity. A claim without one requests nothing.
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

// mayGrow reports whether the class of the claim lets its volumes grow. The class must not
// change in the same update.
func (p *plugin) mayGrow(was, is codec.Value) bool {
	name := className(is)
	if name != className(was) {
		return false
	}
	class, ok := p.classes.Cached("", name)
	return ok && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion
}

// className returns the class of a claim; empty if it has none, or the class without dynamic
// provisioning. The deprecated annotation takes precedence over the field (k8s.io/kubernetes
// pkg/apis/core/helper GetPersistentVolumeClaimClass).
func className(claim codec.Value) string {
	if old := claim.Get("metadata", "annotations", corev1.BetaStorageClassAnnotation); old.Exists() {
		return old.String()
	}
	return claim.Get("spec", "storageClassName").String()
}
