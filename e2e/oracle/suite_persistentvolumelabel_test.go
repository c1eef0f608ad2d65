package oracle_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

// volumesOf is a configuration of PersistentVolumeLabel, in JSON, which the command of the
// older release can read, too.
const volumesOf = `{"apiVersion":"fastadmit.io/v1alpha1","kind":"PersistentVolumeLabelConfiguration","volumes":[
{"provider":"aws","id":"123","labels":{"a":"1","b":"2","topology.kubernetes.io/zone":"1__3__2"}},
{"provider":"gce","id":"123","labels":{"a":"1","b":"2","topology.kubernetes.io/zone":"1__2__3"}},
{"provider":"azure","id":"123","labels":{"a":"1","b":"2","failure-domain.beta.kubernetes.io/zone":"1__2__3"}},
{"provider":"vsphere","id":"123","labels":{"topology.kubernetes.io/zone":"domain1","topology.kubernetes.io/region":"region1"}},
{"provider":"vsphere","id":"456","labels":{"d":"1","e":"2","f":"3"}},
{"provider":"gce","id":"placeholder-for-provisioning","labels":{"a":"1"}},
{"provider":"vsphere","id":"placeholder-for-provisioning","labels":{"a":""}},
{"provider":"azure","id":"456","labels":{"topology.kubernetes.io/zone":"a__a"}},
{"provider":"aws","id":"456","labels":{"topology.kubernetes.io/zone":"a____b","k":"v"}}]}`

func persistentVolumeLabel() suite {
	return suite{
		name: "PersistentVolumeLabel", generate: (*generator).diskVolume, denies: true, changes: true,
		removed: "../.cache/kubernetes-v1.26", getsConfig: true,
		variants: []variant{{options: handlers.DefaultOptions(), config: volumesOf}},
	}
}

// diskVolume generates a request about a PersistentVolume on a disk of a cloud.
func (g *generator) diskVolume() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	operation := admission.Create
	if g.in(8) {
		operation = admission.Update
	}
	c := g.request(operation, schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolume"},
		schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"})
	object := func() runtime.Object { return g.aDiskVolume() }
	return g.write(c, object(), object)
}

func (g *generator) aDiskVolume() *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: g.metadata()}
	id := func() string {
		return pick(g, "123", "123", "123", "456", "456", "placeholder-for-provisioning", "", ".", "..", "a/b", "%2F", "é", `q"\`)
	}
	if !g.in(4) {
		v.Spec.AWSElasticBlockStore = maybe(g, func() corev1.AWSElasticBlockStoreVolumeSource {
			return corev1.AWSElasticBlockStoreVolumeSource{VolumeID: id()}
		})
		v.Spec.GCEPersistentDisk = maybe(g, func() corev1.GCEPersistentDiskVolumeSource {
			return corev1.GCEPersistentDiskVolumeSource{PDName: id()}
		})
		v.Spec.AzureDisk = maybe(g, func() corev1.AzureDiskVolumeSource {
			return corev1.AzureDiskVolumeSource{DiskName: id(), DataDiskURI: id()}
		})
	}
	v.Spec.VsphereVolume = maybe(g, func() corev1.VsphereVirtualDiskVolumeSource {
		return corev1.VsphereVirtualDiskVolumeSource{VolumePath: id()}
	})
	if g.in(3) {
		v.Annotations = map[string]string{pick(g, "pv.kubernetes.io/provisioned-by", "pv.kubernetes.io/provisioned-by",
			"PV.kubernetes.io/provisioned-by"): g.word()}
	}
	if g.in(2) {
		v.Labels = map[string]string{}
		for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
			corev1.LabelFailureDomainBetaRegion, "a"} {
			if !g.in(3) {
				v.Labels[key] = pick(g, "", "z", "z1__z2", "z2__z1__z2", "z__", " z __ y ", "é")
			}
		}
	}
	v.Spec.NodeAffinity = maybe(g, func() corev1.VolumeNodeAffinity {
		return corev1.VolumeNodeAffinity{Required: maybe(g, func() corev1.NodeSelector {
			return corev1.NodeSelector{NodeSelectorTerms: some(g, 3, g.volumeTerm)}
		})}
	})
	return v
}

func (g *generator) volumeTerm() corev1.NodeSelectorTerm {
	requirement := func() corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{
			Key:      pick(g, "x", "y", "y", "a", "d", corev1.LabelTopologyZone, ""),
			Operator: corev1.NodeSelectorOpIn, Values: some(g, 2, g.word),
		}
	}
	t := corev1.NodeSelectorTerm{MatchExpressions: some(g, 2, requirement)}
	if g.in(4) {
		t.MatchFields = some(g, 2, requirement)
	}
	return t
}
