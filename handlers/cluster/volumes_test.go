package cluster

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTrimPod(t *testing.T) {
	f := func(volumes, want []corev1.Volume) {
		t.Helper()
		trimmed, err := Pods.trim(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "h", "k": "v"}},
			Spec:       corev1.PodSpec{NodeName: "n", ServiceAccountName: "s", HostNetwork: true, Volumes: volumes},
		})
		if err != nil {
			t.Fatal(err)
		}
		kept := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "h"}},
			Spec:       corev1.PodSpec{NodeName: "n", ServiceAccountName: "s", Volumes: want},
		}
		if !reflect.DeepEqual(trimmed, kept) {
			t.Errorf("%v: got %v, want %v", volumes, trimmed, kept)
		}
	}
	volume := func(source corev1.VolumeSource) []corev1.Volume {
		return []corev1.Volume{{Name: "v", VolumeSource: source}}
	}
	token := func(audience string) corev1.VolumeProjection {
		return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: "token", ExpirationSeconds: new(int64(60))}}
	}
	projected := func(sources ...corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: new(int32(1))}}
	}
	config := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{}}

	f(nil, nil)
	f(volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}), nil)
	f(volume(projected(config)), nil)
	f(volume(projected(config, token("vault"))), volume(corev1.VolumeSource{Projected: projectedTokens("vault")}))
	f(volume(projected(token("vault"), token(""))), volume(corev1.VolumeSource{Projected: projectedTokens("vault", "")}))
	f(volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", ReadOnly: new(true)}}),
		volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}))
	f(volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: true}}),
		volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}))
	f(volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), nil)
	f(volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "x"}}}}), volume(corev1.VolumeSource{Ephemeral: madeClaim}))
	disk := corev1.VolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}
	f(volume(disk), volume(disk))

	// Whatever else it mounts, a pod with a token for the API server shares that.
	plain := append(volume(projected(config, token(""))), volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})...)
	f(plain, plainVolumes)
	csi := volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}})
	f(append(volume(projected(token(""))), csi...), append(volume(corev1.VolumeSource{Projected: projectedTokens("")}), csi...))
	if got := trimVolumes(plain); &got[0] != &plainVolumes[0] {
		t.Error("got volumes of its own, want those that all pods share")
	}
}

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
	kept := spec
	spec.ClaimRef, kept.ClaimRef = &corev1.ObjectReference{Namespace: "n", Name: "c"}, &corev1.ObjectReference{Namespace: "n"}
	spec.StorageClassName = "gold"
	f(spec, kept, map[string]string{corev1.LabelTopologyZone: "z"})
}
