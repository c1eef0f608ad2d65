package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// wirePod returns a pod as a Deployment makes it, with the volume that the admission
// plugin ServiceAccount adds. One in ten has a claim, too.
func wirePod(i int) *corev1.Pod {
	container := corev1.Container{
		Name: "server", Image: "registry.example.com/team/server:v1.2.3",
		VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-abcde", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true}},
	}
	for variable := range 20 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", variable), Value: "some value or other"})
	}
	pod := &corev1.Pod{
		ObjectMeta: wireMeta(fmt.Sprintf("team-%d", i/20), fmt.Sprintf("server-%d-abcde", i)),
		Spec: corev1.PodSpec{
			NodeName:           wireNodeName(i / 10),
			ServiceAccountName: "server", DeprecatedServiceAccount: "server",
			Containers: []corev1.Container{container, container},
			Volumes: []corev1.Volume{
				{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
						{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
					},
				}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
	}
	if i%10 == 0 {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("data-server-%d", i)},
		}})
	}
	return pod
}

func wireNodeName(i int) string {
	return fmt.Sprintf("ip-10-%d-%d-%d.eu-west-1.compute.internal", i>>16, i>>8&255, i&255)
}

func wireClaim(i int) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: wireMeta(fmt.Sprintf("team-%d", i/2), fmt.Sprintf("data-server-%d", i)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: wireVolumeName(i), StorageClassName: new("gold"),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}},
		},
	}
}

func wireVolume(i int) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: wireMeta("", wireVolumeName(i)), Spec: corev1.PersistentVolumeSpec{
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: "ebs.csi.aws.com", VolumeHandle: fmt.Sprintf("vol-%017x", i), FSType: "ext4",
			VolumeAttributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "1700000000000-8081-ebs.csi.aws.com"},
		}},
		ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "team", Name: "data", UID: "0b6f0c63-0d5c-4a2c-8a3b-000000000000"},
	}}
}

func wireVolumeName(i int) string { return fmt.Sprintf("pvc-0b6f0c63-0d5c-4a2c-8a3b-%012x", i) }
