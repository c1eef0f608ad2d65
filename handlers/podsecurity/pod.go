package podsecurity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// templateOf returns the template for the pods of a controller.
func templateOf(resource string, object *codec.Object) codec.Value {
	switch resource {
	case "podtemplates":
		return object.Get("template")
	case "cronjobs":
		return object.Get("spec", "jobTemplate", "spec", "template")
	}
	return object.Get("spec", "template")
}

// unread are long fields of a PodSpec and of its containers that no check reads. Without
// them decoding takes a third of the time. All other fields are decoded, because each
// release of Kubernetes may add checks of them.
var unread = map[string]bool{
	// of a PodSpec
	"affinity": true, "tolerations": true, "topologySpreadConstraints": true,
	// of a container
	"args": true, "command": true, "env": true, "envFrom": true, "resources": true, "volumeMounts": true,
}

// specOf decodes the spec of a Pod or of a template without the fields in unread. If it is
// too large, nothing is decoded, and the review is denied.
func specOf(pod codec.Value) (*corev1.PodSpec, error) {
	spec := new(corev1.PodSpec)
	value := pod.Get("spec")
	if !value.IsSet() || !value.FitsDecoded() || quantity.CheckDecoded[corev1.PodSpec](value) != nil {
		return spec, nil
	}
	return spec, json.UnmarshalCaseSensitivePreserveInts(appendRead(nil, value), spec)
}

// appendRead appends the JSON of a PodSpec or a container without the fields in unread.
func appendRead(dst []byte, value codec.Value) []byte {
	if value.Kind() != codec.KindObject {
		return value.AppendJSON(dst)
	}
	dst = append(dst, '{')
	for name, member := range value.Members() {
		if unread[name] {
			continue
		}
		dst = append(codec.AppendString(separate(dst), name), ':')
		if member.Kind() != codec.KindArray || !slices.Contains(podspec.ContainerLists[:], name) {
			dst = member.AppendJSON(dst)
			continue
		}
		dst = append(dst, '[')
		for _, container := range member.Elements() {
			dst = appendRead(separate(dst), container)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// separate appends a comma, except before the first element.
func separate(dst []byte) []byte {
	if last := dst[len(dst)-1]; last == '{' || last == '[' {
		return dst
	}
	return append(dst, ',')
}

// metaOf returns the metadata of a Pod or of a template that the checks read.
func metaOf(pod codec.Value) *metav1.ObjectMeta {
	meta := new(metav1.ObjectMeta)
	for key, value := range pod.Get("metadata", "annotations").Members() {
		if meta.Annotations == nil {
			meta.Annotations = make(map[string]string)
		}
		meta.Annotations[key] = value.String()
	}
	return meta
}

// changesImages reports whether an update of a Pod changes fields that matter to the checks,
// as upstream's isSignificantPodUpdate does: the images and the number of containers.
func changesImages(spec, was codec.Value) bool {
	if !spec.FitsDecoded() || !was.FitsDecoded() {
		return true // the review is denied
	}
	for _, list := range [...]string{"containers", "initContainers"} {
		if !slices.Equal(imagesOf(spec.Get(list)), imagesOf(was.Get(list))) {
			return true
		}
	}
	return changesEphemeral(spec.Get("ephemeralContainers"), was.Get("ephemeralContainers"))
}

func imagesOf(containers codec.Value) []string {
	images := make([]string, 0, containers.Len())
	for _, container := range containers.Elements() {
		images = append(images, container.Get("image").String())
	}
	return images
}

// changesEphemeral is changesImages for ephemeral containers, which are compared by name.
// They may be removed.
func changesEphemeral(containers, before codec.Value) bool {
	if containers.Len() == 0 {
		return false
	}
	images := make(map[string]string, before.Len())
	for _, container := range before.Elements() {
		name := container.Get("name").String()
		if _, twice := images[name]; !twice {
			images[name] = container.Get("image").String()
		}
	}
	for _, container := range containers.Elements() {
		if image, known := images[container.Get("name").String()]; !known || container.Get("image").String() != image {
			return true
		}
	}
	return false
}
