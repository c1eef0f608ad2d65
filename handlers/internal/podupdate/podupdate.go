// Package podupdate tells plugins which updates of pods concern them.
package podupdate

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// ChangesSpec reports whether an update changes the spec of a pod that has a node: the API
// server increases the generation then. If it does not, result is the result of the plugin.
func ChangesSpec(review *codec.Review) (changes bool, result admission.Result) {
	pod, old := &review.Object, &review.OldObject
	if pod.Get("spec", "nodeName").String() == "" {
		return false, admission.Allowed()
	}
	if !old.Root().IsSet() {
		return false, admission.Denied(apierrors.NewBadRequest("expected an old pod but got a <nil>"))
	}
	generation, _ := pod.Get("metadata", "generation").Int64()
	was, _ := old.Get("metadata", "generation").Int64()
	return generation != was, admission.Allowed()
}
