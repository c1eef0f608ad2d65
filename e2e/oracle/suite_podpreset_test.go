package oracle_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/podpreset"
)

func podPreset() suite {
	return suite{
		name: "PodPreset", generate: (*generator).podOfPresets, changes: true, warns: true, removed: "../.cache/kubernetes-v1.19",
		variants: []variant{{options: handlers.DefaultOptions(), world: (*generator).podPresets}},
	}
}

// podPresets generates a cluster with presets that often conflict.
func (g *generator) podPresets() oracle.World {
	var world oracle.World
	for _, namespace := range []string{"shop", "kube-system"} {
		for i := range g.IntN(4) {
			p := &podpreset.PodPreset{
				TypeMeta: metav1.TypeMeta{APIVersion: "settings.k8s.io/v1alpha1", Kind: "PodPreset"},
				ObjectMeta: metav1.ObjectMeta{
					Namespace: namespace, Name: fmt.Sprint("p", i), ResourceVersion: pick(g, "7", "1234567"),
				},
			}
			if !g.in(3) {
				p.Spec.Selector = g.labelSelector()
			}
			p.Spec.Env, p.Spec.EnvFrom = some(g, 2, g.env), some(g, 2, g.envFrom)
			p.Spec.Volumes, p.Spec.VolumeMounts = some(g, 2, g.presetVolume), some(g, 1, g.mount)
			world.Objects = append(world.Objects, p)
		}
	}
	return world
}

func (g *generator) labelSelector() metav1.LabelSelector {
	return pick(g,
		metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}},
		metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn,
			Values: []string{"a", ""}}}},
	)
}

func (g *generator) env() corev1.EnvVar {
	e := corev1.EnvVar{Name: pick(g, "A", "B", "C", "D", "E", "F"), Value: pick(g, "", "1", "1", "1")}
	if g.in(4) {
		e.Value = ""
		e.ValueFrom = pick(g,
			&corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
			&corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}},
			&corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k",
				LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}})
	}
	return e
}

// envFrom generates sources that do not conflict: after a conflict, in-tree drops all
// sources of the container, as the plugin's README.md says.
func (g *generator) envFrom() corev1.EnvFromSource {
	name := corev1.LocalObjectReference{Name: pick(g, "a", "b", "c")}
	if g.in(2) {
		return corev1.EnvFromSource{Prefix: pick(g, "", "P_"), SecretRef: &corev1.SecretEnvSource{LocalObjectReference: name}}
	}
	return corev1.EnvFromSource{Prefix: pick(g, "", "P_"), ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: name}}
}

func (g *generator) mount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: pick(g, "v", "w", "x", "y"), MountPath: pick(g, "/v", "/w", "/x", "/y"), ReadOnly: g.in(4)}
}

func (g *generator) presetVolume() corev1.Volume {
	v := corev1.Volume{Name: pick(g, "v", "w", "x", "y", "z")}
	switch g.IntN(6) {
	case 0:
		v.HostPath = &corev1.HostPathVolumeSource{Path: "/"}
	case 1:
		v.Secret = &corev1.SecretVolumeSource{SecretName: pick(g, "a", "b")}
	case 2:
		v.Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "p",
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
		}}
	case 3:
		v.RBD = &corev1.RBDVolumeSource{CephMonitors: []string{"m"}, RBDImage: "i"}
	}
	return v
}

// podOfPresets generates a request about a pod that presets may select.
func (g *generator) podOfPresets() *oracle.Case {
	c := g.pod()
	c.Namespace = pick(g, "shop", "kube-system")
	pod, ok := c.Object.(*corev1.Pod)
	if !ok {
		return c
	}
	if pod.Labels == nil && !g.in(3) {
		pod.Labels = map[string]string{"app": pick(g, "a", "b", "")}
	}
	if g.in(8) {
		pod.Annotations = pick(g, map[string]string{corev1.MirrorPodAnnotationKey: ""},
			map[string]string{"podpreset.admission.kubernetes.io/exclude": "true"},
			map[string]string{"podpreset.admission.kubernetes.io/exclude": "false", "podpreset.admission.kubernetes.io/podpreset-p0": "1"})
	}
	if g.in(2) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, g.presetVolume())
	}
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			containers[i].EnvFrom = some(g, 2, g.envFrom)
			if g.in(3) {
				containers[i].Env, containers[i].VolumeMounts = some(g, 2, g.env), some(g, 1, g.mount)
			}
		}
	}
	return c
}
