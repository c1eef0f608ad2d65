package patching

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// templateGeneration is the place of an annotation of DaemonSets. kube-apiserver keeps it as a field of the internal
// object (k8s.io/kubernetes pkg/apis/apps/v1/conversion.go).
var templateGeneration = []string{"metadata", "annotations", appsv1.DeprecatedTemplateGeneration}

// Generation returns what KeepGeneration needs of an object before mutations: "" if it is no DaemonSet.
func Generation(object *codec.Object, kind codec.GroupVersionKind) string {
	if kind.Kind != "DaemonSet" || kind.Group != appsv1.GroupName {
		return ""
	}
	return strings.Clone(object.Root().Get(templateGeneration...).String())
}

// KeepGeneration gives a DaemonSet the annotation back if mutations removed it, as kube-apiserver does when a plugin
// has run all mutations: the conversion of an object without the annotation leaves the field of the internal object.
func KeepGeneration(object *codec.Object, generation string) {
	root := object.Root()
	if generation == "" || root.Kind() != codec.KindObject {
		return
	}
	for _, above := range []codec.Value{root.Get("metadata"), root.Get("metadata", "annotations")} {
		if above.IsSet() && above.Kind() != codec.KindObject {
			return // a patch made it, and kube-apiserver refuses it
		}
	}
	now := root.Get(templateGeneration...)
	if now.Exists() {
		generation = now.String()
	}
	if n, err := strconv.ParseInt(generation, 10, 64); err == nil {
		object.SetString(strconv.FormatInt(n, 10), templateGeneration...)
	}
}
