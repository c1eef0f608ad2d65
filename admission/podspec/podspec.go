// Package podspec reads PodSpecs: containers, images and names of secrets. It also
// creates the denials of in-tree plugins that handle only pods.
package podspec

import (
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/codec"
)

// ContainerLists are the fields of a PodSpec with containers, in the order in
// which Kubernetes visits them (k8s.io/kubernetes pkg/apis/core/pods
// VisitContainersWithPath).
var ContainerLists = [...]string{"initContainers", "containers", "ephemeralContainers"}

// Container is a container of a Pod, with the list that contains it and its index.
type Container struct {
	codec.Value
	List  string
	Index int
}

// Path returns the path of the container in the Pod, as in Kubernetes' messages.
func (c Container) Path() *field.Path {
	return field.NewPath("spec", c.List).Index(c.Index)
}

// Containers iterates over all containers of a PodSpec.
func Containers(spec codec.Value) iter.Seq[Container] {
	return func(yield func(Container) bool) { yieldContainers(spec, yield) }
}

func yieldContainers(spec codec.Value, yield func(Container) bool) {
	for _, list := range ContainerLists {
		for i, container := range spec.Get(list).Elements() {
			if !yield(Container{Value: container, List: list, Index: i}) {
				return
			}
		}
	}
}

// Forbidden is admission.Forbidden for in-tree plugins that handle only pods: the message
// contains metadata.name of the object, not the name of the request or generateName.
func Forbidden(review *codec.Review, err error) error {
	return apierrors.NewForbidden(
		schema.GroupResource{Resource: "pods"}, review.Object.Get("metadata", "name").String(), err)
}

// UsesOnlyImagesOf reports whether every image in spec is in the PodSpec was.
func UsesOnlyImagesOf(spec, was codec.Value) bool {
	var known map[string]bool
	for _, list := range ContainerLists {
		before := was.Get(list)
		for i, container := range spec.Get(list).Elements() {
			image := container.Get("image").String()
			if before.Get(codec.Index(i), "image").EqualString(image) {
				continue // the usual case: the image did not change
			}
			if known == nil {
				known = make(map[string]bool)
				for old := range Containers(was) {
					known[old.Get("image").String()] = true
				}
			}
			if !known[image] {
				return false
			}
		}
	}
	return true
}
