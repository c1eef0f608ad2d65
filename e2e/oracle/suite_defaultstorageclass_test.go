package oracle_test

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func defaultStorageClass() suite {
	return suite{
		name: "DefaultStorageClass", generate: (*generator).classlessClaim, changes: true,
		variants: []variant{{options: handlers.DefaultOptions(), world: (*generator).storageClasses}},
	}
}

// storageClasses generates a world with a few classes.
func (g *generator) storageClasses() oracle.World {
	var world oracle.World
	for _, name := range []string{"a", "b", "gold", "silver", `q"\<`} {
		if g.in(3) {
			continue
		}
		class := &storagev1.StorageClass{
			ObjectMeta: g.class(name, "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"),
		}
		class.AllowVolumeExpansion = maybe(g, func() bool { return !g.in(3) })
		world.Objects = append(world.Objects, class)
	}
	return world
}

// class generates the metadata of a class. Each of the annotations may make it a default
// one. Several classes have the same age.
func (g *generator) class(name string, defaults ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name}
	if !g.in(4) {
		m.CreationTimestamp = metav1.Unix(1_700_000_000+int64(g.IntN(3)), 0) // as an API server sends it
	}
	for _, annotation := range defaults {
		if g.in(2) {
			metav1.SetMetaDataAnnotation(&m, annotation, pick(g, "true", "true", "true", "false", "", "True", "yes"))
		}
	}
	return m
}

var claims = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")

// classlessClaim generates a request about claims, mostly the creation of one without a
// class.
func (g *generator) classlessClaim() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	operation := admission.Create
	if g.in(5) {
		operation = admission.Update
	}
	c := g.request(operation, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), claims)
	if g.in(12) {
		c.Subresource = "status"
	}
	claim := func() runtime.Object {
		claim := g.claim()
		if g.in(2) {
			claim.Spec.StorageClassName = nil
		}
		return claim
	}
	return g.write(c, claim(), claim)
}

// claim generates a claim with a class and a size in any form.
func (g *generator) claim() *corev1.PersistentVolumeClaim {
	claim := new(corev1.PersistentVolumeClaim)
	if g.in(16) {
		claim = fuzzed[*corev1.PersistentVolumeClaim](g, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	}
	if g.in(2) || claim.Kind == "" {
		claim.ObjectMeta = g.metadata()
	}
	if g.in(8) {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, pick(g, corev1.BetaStorageClassAnnotation, "volume.kubernetes.io/storage-class"),
			g.className())
	}
	claim.Spec.StorageClassName = maybe(g, g.className)
	claim.Spec.Resources.Requests = g.size()
	claim.Status.Phase = pick(g, "", corev1.ClaimPending, corev1.ClaimBound, corev1.ClaimBound, corev1.ClaimBound, corev1.ClaimLost,
		"bound")
	return claim
}

func (g *generator) className() string {
	return pick(g, "", "a", "b", "gold", "silver", "none", `q"\<`)
}

func (g *generator) size() corev1.ResourceList {
	if g.in(8) {
		return nil
	}
	list := make(corev1.ResourceList)
	if g.in(4) {
		list[corev1.ResourceCPU] = resource.MustParse(pick(g, "1", "2"))
	}
	if !g.in(8) {
		list[corev1.ResourceStorage] = resource.MustParse(pick(g, "0", "1Gi", "1024Mi", "1G", "2Gi", "1500Mi", "1.5Gi", "1e3", "1000",
			"100m", "-1Gi",
			"9223372036854775807", "9223372036854775808", "1e30", "8Ei", "9Ei", "0.5", "1u"))
	}
	return list
}
