package podspec

import "github.com/fastadmit/fastadmit/codec"

// volumeSecrets are the fields of volumes with names of secrets. If a volume has several
// sources, which is invalid, the first counts. Projected volumes may name several secrets.
var volumeSecrets = [...]struct {
	source string
	name   []string
}{
	{"azureFile", []string{"secretName"}},
	{"cephfs", []string{"secretRef", "name"}},
	{"cinder", []string{"secretRef", "name"}},
	{"flexVolume", []string{"secretRef", "name"}},
	{"projected", nil},
	{"rbd", []string{"secretRef", "name"}},
	{"secret", []string{"secretName"}},
	{"scaleIO", []string{"secretRef", "name"}},
	{"iscsi", []string{"secretRef", "name"}},
	{"storageos", []string{"secretRef", "name"}},
	{"csi", []string{"nodePublishSecretRef", "name"}},
}

// NamesSecret reports whether a PodSpec contains the name of a secret
// (k8s.io/kubernetes pkg/api/pod VisitPodSecretNames).
func NamesSecret(spec codec.Value) bool {
	for _, reference := range spec.Get("imagePullSecrets").Elements() {
		if isNamed(reference) {
			return true
		}
	}
	for container := range Containers(spec) {
		for _, from := range container.Get("envFrom").Elements() {
			if isNamed(from.Get("secretRef")) {
				return true
			}
		}
		for _, env := range container.Get("env").Elements() {
			if isNamed(env.Get("valueFrom", "secretKeyRef")) {
				return true
			}
		}
	}
	for _, volume := range spec.Get("volumes").Elements() {
		if volumeNamesSecret(volume) {
			return true
		}
	}
	return false
}

func volumeNamesSecret(volume codec.Value) bool {
	for _, kind := range volumeSecrets {
		source := volume.Get(kind.source)
		if source.Kind() != codec.KindObject {
			continue
		}
		if kind.name != nil {
			return source.Get(kind.name...).String() != ""
		}
		for _, projection := range source.Get("sources").Elements() {
			if isNamed(projection.Get("secret")) {
				return true
			}
		}
		return false
	}
	return false
}

func isNamed(reference codec.Value) bool { return reference.Get("name").String() != "" }
