package oracle_test

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func serviceAccount() suite {
	return suite{
		name: "ServiceAccount", generate: (*generator).podOfAccount, denies: true, changes: true,
		variants: []variant{{options: handlers.DefaultOptions(), world: (*generator).accounts}},
	}
}

func (g *generator) secretName() string { return pick(g, "", "a", "b", "c") }

// accounts generates a cluster with some of the accounts in pods.
func (g *generator) accounts() oracle.World {
	var world oracle.World
	for _, namespace := range []string{"shop", "kube-system"} {
		for _, name := range []string{"default", "web", `q"`} {
			if g.in(5) {
				continue
			}
			account := &corev1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Secrets:    some(g, 2, func() corev1.ObjectReference { return corev1.ObjectReference{Name: g.secretName()} }),
			}
			if !g.in(3) {
				account.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": pick(g, "true", "T", "1", "false",
					"yes", "")}
			}
			if g.in(2) {
				account.ImagePullSecrets = some(g, 2, g.localReference)
			}
			if g.in(3) {
				account.AutomountServiceAccountToken = new(g.in(2))
			}
			world.Objects = append(world.Objects, runtime.Object(account))
		}
	}
	return world
}

func (g *generator) localReference() corev1.LocalObjectReference {
	return corev1.LocalObjectReference{Name: g.secretName()}
}

// podOfAccount generates a request about pods that ServiceAccount handles.
func (g *generator) podOfAccount() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	c := g.request(admission.Create, podKind, pods)
	switch g.IntN(10) {
	case 0:
		c = g.request(admission.Update, podKind, pods)
		c.Subresource = pick(g, "", "status", "resize")
	case 1, 2:
		c = g.request(admission.Update, podKind, pods)
		c.Subresource = "ephemeralcontainers"
	}
	c.Namespace = pick(g, "shop", "shop", "kube-system", "other")
	pod := g.aPodOfAccount()
	return g.write(c, pod, func() runtime.Object { return g.aPodOfAccount() })
}

func (g *generator) aPodOfAccount() *corev1.Pod {
	pod := g.aPod()
	spec := &pod.Spec
	spec.ServiceAccountName = pick(g, "", "", "default", "web", `q"`, "none")
	spec.DeprecatedServiceAccount = pick(g, "", "", "", "default", "none")
	spec.AutomountServiceAccountToken = nil
	if g.in(4) {
		spec.AutomountServiceAccountToken = new(g.in(2))
	}
	spec.ImagePullSecrets = nil
	if g.in(3) {
		spec.ImagePullSecrets = some(g, 2, g.localReference)
	}
	spec.Volumes = append(spec.Volumes, some(g, 2, g.secretVolume)...)
	for i := range spec.InitContainers {
		g.useSecrets(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		g.useSecrets(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		g.useSecrets((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	if g.in(6) {
		pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: pick(g, "", "1")}
		if !g.in(4) {
			spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
		}
	}
	return pod
}

// useSecrets adds environment variables from secrets, and mounts, some at the token's path.
func (g *generator) useSecrets(c *corev1.Container) {
	c.Env = some(g, 2, func() corev1.EnvVar {
		env := corev1.EnvVar{Name: g.word()}
		switch g.IntN(4) {
		case 0:
			env.ValueFrom = &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: g.localReference()}}
		case 1:
			env.ValueFrom = &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: g.localReference()}}
		}
		return env
	})
	if g.in(4) {
		c.EnvFrom = some(g, 2, func() corev1.EnvFromSource {
			if g.in(2) {
				return corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: g.localReference()}}
			}
			return corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: g.localReference()}}
		})
	}
	c.VolumeMounts = some(g, 2, func() corev1.VolumeMount {
		return corev1.VolumeMount{Name: g.volumeName(), MountPath: pick(g, "", "/v",
			"/var/run/secrets/kubernetes.io/serviceaccount", "/var/run/secrets/kubernetes.io/serviceaccount/")}
	})
}

func (g *generator) volumeName() string {
	return pick(g, "v", "v", "v", "kube-api-access", "kube-api-access-", "kube-api-access-abcde", `kube-api-access-"`)
}

// secretVolume generates a volume with a source that can name a secret, and sometimes with
// two sources, which no API server stores.
func (g *generator) secretVolume() corev1.Volume {
	v := corev1.Volume{Name: g.volumeName()}
	reference := func() *corev1.LocalObjectReference { return maybe(g, g.localReference) }
	for range pick(g, 1, 1, 1, 2) {
		switch g.IntN(12) {
		case 0:
			v.AzureFile = &corev1.AzureFileVolumeSource{SecretName: g.secretName()}
		case 1:
			v.CephFS = &corev1.CephFSVolumeSource{SecretRef: reference()}
		case 2:
			v.Cinder = &corev1.CinderVolumeSource{SecretRef: reference()}
		case 3:
			v.FlexVolume = &corev1.FlexVolumeSource{SecretRef: reference()}
		case 4, 5:
			v.Projected = &corev1.ProjectedVolumeSource{Sources: some(g, 2, g.projection)}
		case 6:
			v.RBD = &corev1.RBDVolumeSource{SecretRef: reference()}
		case 7:
			v.Secret = &corev1.SecretVolumeSource{SecretName: g.secretName()}
		case 8:
			v.ScaleIO = &corev1.ScaleIOVolumeSource{SecretRef: reference()}
		case 9:
			v.ISCSI = &corev1.ISCSIVolumeSource{SecretRef: reference()}
		case 10:
			v.StorageOS = &corev1.StorageOSVolumeSource{SecretRef: reference()}
		case 11:
			v.CSI = &corev1.CSIVolumeSource{NodePublishSecretRef: reference()}
		}
	}
	return v
}

func (g *generator) projection() corev1.VolumeProjection {
	var p corev1.VolumeProjection
	switch g.IntN(3) {
	case 0:
		p.Secret = &corev1.SecretProjection{LocalObjectReference: g.localReference()}
	case 1:
		p.ServiceAccountToken = &corev1.ServiceAccountTokenProjection{Path: "token"}
	}
	return p
}
