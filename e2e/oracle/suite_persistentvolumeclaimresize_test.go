package oracle_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func persistentVolumeClaimResize() suite {
	return suite{
		name: "PersistentVolumeClaimResize", generate: (*generator).resize, denies: true,
		variants: []variant{{options: handlers.DefaultOptions(), world: (*generator).storageClasses}},
	}
}

// resize generates a request about claims, mostly an update of the size.
func (g *generator) resize() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	operation := admission.Update
	if g.in(12) {
		operation = admission.Create
	}
	c := g.request(operation, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), claims)
	if g.in(12) {
		c.Subresource = "status"
	}
	claim := g.claim()
	return g.write(c, claim, func() runtime.Object {
		if g.in(6) {
			return g.claim()
		}
		old := claim.DeepCopy()
		old.Spec.Resources.Requests = g.size()
		if g.in(6) {
			old.Status.Phase = corev1.ClaimPending
		}
		return old
	})
}
