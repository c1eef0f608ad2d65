package cluster

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTrimPersistentVolume(t *testing.T) {
	f := func(spec, want corev1.PersistentVolumeSpec, labels map[string]string) {
		t.Helper()
		meta := metav1.ObjectMeta{Name: "v", Labels: map[string]string{corev1.LabelTopologyZone: "z"}, Annotations: map[string]string{"k": "v"}}
		trimmed, err := PersistentVolumes.trim(&corev1.PersistentVolume{ObjectMeta: meta, Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		if kept := (&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: labels}, Spec: want}); !reflect.DeepEqual(trimmed, kept) {
			t.Errorf("%v: got %v, want %v", spec, trimmed, kept)
		}
	}
	source := func(source corev1.PersistentVolumeSource) corev1.PersistentVolumeSpec {
		return corev1.PersistentVolumeSpec{PersistentVolumeSource: source}
	}
	f(source(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}),
		source(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}), nil)
	f(source(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s"}}), corev1.PersistentVolumeSpec{}, nil)

	spec := source(corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{ShareName: "s"}})
	spec.NodeAffinity = &corev1.VolumeNodeAffinity{}
	f(spec, spec, map[string]string{corev1.LabelTopologyZone: "z"})
	kept := spec
	spec.ClaimRef, kept.ClaimRef = &corev1.ObjectReference{Namespace: "n", Name: "c"}, &corev1.ObjectReference{Namespace: "n"}
	spec.StorageClassName = "gold"
	f(spec, kept, map[string]string{corev1.LabelTopologyZone: "z"})
}
