package serviceaccount

import (
	"math/rand/v2"
	"strings"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

	// A volume whose name begins like this is taken for the token's.
	tokenVolumePrefix = "kube-api-access-"

	// The characters that names are made unique with (k8s.io/apimachinery
	// pkg/util/rand), and how many (k8s.io/apiserver pkg/storage/names).
	suffixCharacters = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength     = 5

	// tokenSources are what the volume has, after its name: a token that is good
	// for an hour and seven seconds, by which kube-apiserver knows those it may
	// extend (WarnOnlyBoundTokenExpirationSeconds).
	tokenSources = `,"projected":{"sources":[` +
		`{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},` +
		`{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},` +
		`{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}` +
		`],"defaultMode":420}}`
)

// mountToken mounts the token where a container has nothing mounted in its
// place, from a volume that is made if there is none. Ephemeral containers get
// none.
func mountToken(pod *codec.Object) {
	spec := pod.Get("spec")
	volume, isNew, mount := "", false, ""
	for _, list := range [...]string{"initContainers", "containers"} {
		for _, container := range spec.Get(list).Elements() {
			if container.Kind() != codec.KindObject || container.Get("volumeMounts").Find("mountPath", tokenPath).Exists() {
				continue
			}
			if mount == "" {
				volume, isNew = tokenVolume(pod, spec)
				mount = pod.Compose(func(dst []byte) []byte {
					dst = append(append(dst, `{"name":`...), volume...)
					return append(dst, `,"readOnly":true,"mountPath":"`+tokenPath+`"}`...)
				})
			}
			container.Append(mount, "volumeMounts")
		}
	}
	if isNew {
		spec.Append(pod.Compose(func(dst []byte) []byte {
			dst = append(append(dst, `{"name":`...), volume...)
			return append(dst, tokenSources...)
		}), "volumes")
	}
}

// tokenVolume returns the name of the volume as JSON, and whether the Pod has
// no such volume yet.
func tokenVolume(pod *codec.Object, spec codec.Value) (name string, isNew bool) {
	for _, volume := range spec.Get("volumes").Elements() {
		if name := volume.Get("name"); strings.HasPrefix(name.String(), tokenVolumePrefix) {
			return name.JSON(), false
		}
	}
	return pod.Compose(func(dst []byte) []byte {
		dst = append(dst, `"`+tokenVolumePrefix...)
		for range suffixLength {
			dst = append(dst, suffixCharacters[rand.IntN(len(suffixCharacters))])
		}
		return append(dst, '"')
	}), true
}
