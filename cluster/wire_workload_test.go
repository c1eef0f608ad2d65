package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func wireClaim(i int) *corev1.PersistentVolumeClaim {
	requests := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: wireMeta(fmt.Sprintf("team-%d", i/2), fmt.Sprintf("data-server-%d", i)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: wireVolumeName(i),
			StorageClassName: new("gold"),
			Resources:        corev1.VolumeResourceRequirements{Requests: requests},
		},
	}
}

func wireVolume(i int) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: wireMeta("", wireVolumeName(i)), Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "ebs.csi.aws.com", VolumeHandle: fmt.Sprintf("vol-%017x", i), FSType: "ext4",
			VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-ebs.csi.aws.com"},
		}},
		ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "team", Name: "data",
			UID: "0b6f0c63-0d5c-4a2c-8a3b-000000000000"},
	}}
}

func wireVolumeName(i int) string { return fmt.Sprintf("pvc-0b6f0c63-0d5c-4a2c-8a3b-%012x", i) }
