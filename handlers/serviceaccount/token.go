package serviceaccount

import (
	"math/rand/v2"
	"strings"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

	// A volume with this prefix in its name is used as the token's volume.
	tokenVolumePrefix = "kube-api-access-"

	// The characters and the length of the random suffix of names (k8s.io/apimachinery
	// pkg/util/rand, k8s.io/apiserver pkg/storage/names).
	suffixCharacters = "bcdfghjklmnpqrstvwxz2456789"
	suffixLength     = 5

	// tokenSources is the rest of the volume after its name. Its token is valid for an hour
	// and seven seconds: kube-apiserver recognizes this value and may extend the lifetime of
	// such tokens (WarnOnlyBoundTokenExpirationSeconds).
	tokenSources = `,"projected":{"sources":[` +
		`{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},` +
		`{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},` +
		`{"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}` +
		`],"defaultMode":420}}`
)

// mountToken mounts the token into the containers that mount nothing at its path, except
// ephemeral containers. It adds the volume if the Pod has none.
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

// tokenVolume returns the name of the token's volume as JSON, and whether the volume has to
// be added to the Pod.
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
