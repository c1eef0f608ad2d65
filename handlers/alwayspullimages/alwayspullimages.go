// Package alwayspullimages is the admission plugin AlwaysPullImages.
//
// It makes every new Pod pull its images each time it starts. Without it, every pod that
// knows the name of an image can use the copy on its node, without credentials for the
// registry. Enable it in clusters with several tenants.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/alwayspullimages.
package alwayspullimages

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/codec"
)

const pullAlways = "Always"

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "AlwaysPullImages",
		Summary:   "sets the image pull policy of every container and image volume to Always",
		Rules:     []admission.Rule{admission.CreateUpdate("pods")},
		Mutates:   true,
		Validates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: admit, Validate: validate}, nil
		},
	}
}

func admit(_ context.Context, review *codec.Review) admission.Result {
	if isUpdateWithoutNewImages(review) {
		return admission.Allowed()
	}
	spec := review.Object.Get("spec")
	for c := range podspec.Containers(spec) {
		if isObject(c.Value) {
			c.SetString(pullAlways, "imagePullPolicy")
		}
	}
	for _, volume := range spec.Get("volumes").Elements() {
		if image := volume.Get("image"); isObject(image) {
			image.SetString(pullAlways, "pullPolicy")
		}
	}
	return admission.Allowed()
}

func validate(_ context.Context, review *codec.Review) admission.Result {
	if isUpdateWithoutNewImages(review) {
		return admission.Allowed()
	}
	var denials []string
	length := 0
	check := func(policy codec.Value, at func() *field.Path) {
		if !policy.EqualString(pullAlways) && length <= admission.MessagesBytesMax {
			// A Forbidden error shows control characters as upstream's does.
			denials = append(denials, admission.Forbidden(review,
				field.NotSupported(at(), corev1.PullPolicy(policy.String()), []string{pullAlways})).Error())
			length += len(denials[len(denials)-1])
		}
	}
	for container := range podspec.Containers(review.Object.Get("spec")) {
		check(container.Get("imagePullPolicy"), func() *field.Path { return container.Path().Child("imagePullPolicy") })
	}
	for i, volume := range review.Object.Get("spec", "volumes").Elements() {
		if image := volume.Get("image"); isObject(image) {
			check(image.Get("pullPolicy"), func() *field.Path {
				return field.NewPath("spec", "volumes").Index(i).Child("image", "pullPolicy")
			})
		}
	}
	if len(denials) > 0 {
		return admission.Denied(aggregate(denials))
	}
	return admission.Allowed()
}

// aggregate returns an error with the text of the in-tree plugin's aggregate, and like that
// without a status. NewAggregate (k8s.io/apimachinery pkg/util/errors) would take quadratic
// time for the same text.
func aggregate(messages []string) error {
	if len(messages) == 1 {
		return errors.New(messages[0])
	}
	return errors.New("[" + strings.Join(messages, ", ") + "]")
}

func isObject(v codec.Value) bool { return v.Kind() == codec.KindObject }

// isUpdateWithoutNewImages reports whether an update adds no images to the pod. The plugin
// ignores these updates.
func isUpdateWithoutNewImages(review *codec.Review) bool {
	return review.Operation() == codec.Update &&
		podspec.UsesOnlyImagesOf(review.Object.Get("spec"), review.OldObject.Get("spec"))
}
