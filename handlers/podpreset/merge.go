package podpreset

import (
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// added has the fields of a container after the presets were applied.
type added struct {
	env     []corev1.EnvVar
	envFrom []corev1.EnvFromSource
	mounts  []corev1.VolumeMount
}

// merge returns list with the items of the presets added. If an item has the key of one
// that exists, both must be equal; otherwise conflict describes the difference.
func merge[K comparable, T any](list []T, presets []*PodPreset, of func(*Spec) []T, key func(*T) K,
	conflict func(*PodPreset, *T) string) ([]T, string) {
	known := make(map[K]*T, len(list))
	for i := range list {
		known[key(&list[i])] = &list[i] // if there are several, the last one counts
	}
	merged := slices.Clip(list)
	for _, preset := range presets {
		items := of(&preset.Spec)
		for i := range items {
			item, k := &items[i], key(&items[i])
			found, ok := known[k]
			if !ok {
				known[k] = item
				merged = append(merged, *item)
			} else if !reflect.DeepEqual(found, item) {
				return nil, conflict(preset, item)
			}
		}
	}
	return merged, ""
}

func mergeVolumes(volumes []corev1.Volume, presets []*PodPreset) ([]corev1.Volume, string) {
	return merge(volumes, presets, func(s *Spec) []corev1.Volume { return s.Volumes },
		func(v *corev1.Volume) string { return v.Name },
		func(p *PodPreset, v *corev1.Volume) string {
			return fmt.Sprintf("merging volumes for %s has a conflict on %s", p.Name, v.Name)
		})
}

func mergeEnv(env []corev1.EnvVar, presets []*PodPreset) ([]corev1.EnvVar, string) {
	return merge(env, presets, func(s *Spec) []corev1.EnvVar { return s.Env },
		func(e *corev1.EnvVar) string { return e.Name },
		func(p *PodPreset, e *corev1.EnvVar) string {
			return fmt.Sprintf("merging env for %s has a conflict on %s", p.Name, e.Name)
		})
}

// mergeMounts merges by the names of the volumes. Two different mounts with the same path
// are a conflict.
func mergeMounts(mounts []corev1.VolumeMount, presets []*PodPreset) (merged []corev1.VolumeMount, conflict string) {
	byPath := make(map[string]*corev1.VolumeMount, len(mounts))
	for i := range mounts {
		byPath[mounts[i].MountPath] = &mounts[i]
	}
	byName := make(map[string]*corev1.VolumeMount, len(mounts))
	for i := range mounts {
		byName[mounts[i].Name] = &mounts[i]
	}
	merged = slices.Clip(mounts)
	for _, preset := range presets {
		for i := range preset.Spec.VolumeMounts {
			mount := &preset.Spec.VolumeMounts[i]
			if found, ok := byName[mount.Name]; !ok {
				byName[mount.Name] = mount
				merged = append(merged, *mount)
			} else if !reflect.DeepEqual(found, mount) {
				return nil, fmt.Sprintf("merging volume mounts for %s has a conflict on %s", preset.Name, mount.Name)
			}
			if found, ok := byPath[mount.MountPath]; !ok {
				byPath[mount.MountPath] = mount
			} else if !reflect.DeepEqual(found, mount) {
				return nil, fmt.Sprintf("merging volume mounts for %s has a conflict on mount path %s", preset.Name, mount.MountPath)
			}
		}
	}
	return merged, ""
}

// A source identifies a source of environment variables.
type source struct{ prefix, configMap, secret string }

func sourceOf(e *corev1.EnvFromSource) (s source) {
	s.prefix = e.Prefix
	if e.ConfigMapRef != nil {
		s.configMap = e.ConfigMapRef.Name
	}
	if e.SecretRef != nil {
		s.secret = e.SecretRef.Name
	}
	return s
}

// mergeEnvFrom compares the presets with the container, and not with each other, as there.
// If a preset differs from the container, all sources of the container are lost there; here
// it is a conflict like any other.
func mergeEnvFrom(from []corev1.EnvFromSource, presets []*PodPreset) (merged []corev1.EnvFromSource, conflict string) {
	known := make(map[source]*corev1.EnvFromSource, len(from))
	for i := range from {
		known[sourceOf(&from[i])] = &from[i]
	}
	merged = slices.Clip(from)
	for _, preset := range presets {
		for i := range preset.Spec.EnvFrom {
			e := &preset.Spec.EnvFrom[i]
			if found, ok := known[sourceOf(e)]; !ok {
				merged = append(merged, *e)
			} else if !reflect.DeepEqual(found, e) {
				return nil, fmt.Sprintf("merging envFrom for %s has a conflict on %s", preset.Name, describe(e))
			}
		}
	}
	return merged, ""
}

func describe(e *corev1.EnvFromSource) string {
	s := sourceOf(e)
	switch {
	case s.configMap != "":
		return fmt.Sprintf("ConfigMap %s with prefix %q", s.configMap, s.prefix)
	case s.secret != "":
		return fmt.Sprintf("Secret %s with prefix %q", s.secret, s.prefix)
	}
	return fmt.Sprintf("prefix %q", s.prefix)
}

func mergeContainer(c *corev1.Container, presets []*PodPreset) (a added, conflict string) {
	if a.env, conflict = mergeEnv(c.Env, presets); conflict != "" {
		return a, conflict
	}
	if a.mounts, conflict = mergeMounts(c.VolumeMounts, presets); conflict != "" {
		return a, conflict
	}
	a.envFrom, conflict = mergeEnvFrom(c.EnvFrom, presets)
	return a, conflict
}

// apply applies the presets to a pod. If there is a conflict, it returns it and does not
// change the pod.
func apply(pod *corev1.Pod, presets []*PodPreset) (conflict string) {
	volumes, conflict := mergeVolumes(pod.Spec.Volumes, presets)
	if conflict != "" {
		return conflict
	}
	var all []added
	lists := [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers}
	for _, containers := range lists {
		for i := range containers {
			a, conflict := mergeContainer(&containers[i], presets)
			if conflict != "" {
				return conflict
			}
			all = append(all, a)
		}
	}
	pod.Spec.Volumes = volumes
	for _, containers := range lists {
		for i := range containers {
			containers[i].Env, containers[i].EnvFrom, containers[i].VolumeMounts = all[0].env, all[0].envFrom, all[0].mounts
			all = all[1:]
		}
	}
	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string, len(presets))
	}
	for _, preset := range presets {
		pod.Annotations[annotationPrefix+"podpreset-"+preset.Name] = preset.ResourceVersion
	}
	return ""
}
