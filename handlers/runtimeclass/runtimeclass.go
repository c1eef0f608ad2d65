// Package runtimeclass is the admission plugin RuntimeClass.
//
// It sets fields of every new pod that its runtime class defines: the resources that the
// runtime itself uses, and the nodes that support it. Without it, pods in sandboxes are
// scheduled as if the sandbox used no resources, and also to nodes that cannot run them.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/runtimeclass.
package runtimeclass

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/tolerations"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "RuntimeClass",
		Summary:     "sets the overhead, node selector and tolerations of a pod's runtime class",
		Rules:       []admission.Rule{admission.NewRule("", "v1", "pods", codec.Create)},
		Mutates:     true,
		Validates:   true,
		OnByDefault: true,
		Needs:       []cluster.Need{cluster.RuntimeClasses.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{classes: cluster.RuntimeClasses.In(setup.Cluster)}
			return admission.Handler{Admit: p.with(admit), Validate: p.with(validate)}, nil
		},
	}
}

type plugin struct {
	classes *cluster.Objects[*nodev1.RuntimeClass]
}

// with calls a function with a pod and its class, which is nil if the pod has none. A class
// that is not in the cache may be new, so the API server is asked, as in-tree.
func (p *plugin) with(do func(context.Context, *nodev1.RuntimeClass, *codec.Review) admission.Result) func(context.Context,
	*codec.Review) admission.Result {
	return func(ctx context.Context, review *codec.Review) admission.Result {
		name := review.Object.Get("spec", "runtimeClassName")
		if !name.IsSet() {
			return do(ctx, nil, review)
		}
		class, err := p.classes.Get(ctx, "", name.String())
		switch {
		case apierrors.IsNotFound(err):
			return deny(review, "pod rejected: RuntimeClass %q not found", name.String())
		case cluster.IsInvalidName(err):
			return admission.Denied(err)
		case err != nil:
			return admission.Errored(err)
		}
		return do(ctx, class, review)
	}
}

func deny(review *codec.Review, format string, arguments ...any) admission.Result {
	return admission.Denied(admission.Forbidden(review, fmt.Errorf(format, arguments...)))
}

// otherOverhead denies a pod whose overhead differs from that of its class.
func otherOverhead(review *codec.Review) admission.Result {
	return deny(review, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
}

func admit(ctx context.Context, class *nodev1.RuntimeClass, review *codec.Review) admission.Result {
	if class == nil {
		return admission.Allowed()
	}
	pod := &review.Object
	if class.Overhead != nil {
		if given := pod.Get("spec", "overhead"); given.Len() > 0 && !equals(given, class.Overhead.PodFixed) {
			return otherOverhead(review)
		}
		for _, name := range slices.Sorted(maps.Keys(class.Overhead.PodFixed)) { // so that the patch is always the same
			quantity := class.Overhead.PodFixed[name]
			pod.SetString(quantity.String(), "spec", "overhead", string(name))
		}
	}
	if class.Scheduling == nil {
		return admission.Allowed()
	}
	// Sorted, so that the message always names the same conflict.
	for _, key := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		value := class.Scheduling.NodeSelector[key]
		if given := pod.Get("spec", "nodeSelector", key); given.Exists() && !given.EqualString(value) {
			return deny(review, "conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s",
				key, value, key, given.String())
		}
		pod.SetString(value, "spec", "nodeSelector", key)
	}
	given, err := tolerations.NewGiven(class.Scheduling.Tolerations)
	if err != nil {
		return admission.Errored(err)
	}
	// Also without tolerations of the class, because a merge removes those of the pod that
	// others cover.
	if err := tolerations.Merge(ctx, pod, given); err != nil {
		return admission.Errored(err)
	}
	return admission.Allowed()
}

// equals reports whether the amounts are equal, whatever their format.
func equals(given codec.Value, want corev1.ResourceList) bool {
	if given.Len() != len(want) {
		return false
	}
	for name, amount := range want {
		got, err := quantity.Parse(given.Get(string(name)))
		if err != nil || got.Cmp(amount) != 0 {
			return false
		}
	}
	return true
}

// validate checks the pod as it will be stored, after other webhooks.
func validate(_ context.Context, class *nodev1.RuntimeClass, review *codec.Review) admission.Result {
	overhead := review.Object.Get("spec", "overhead")
	switch {
	case class != nil && class.Overhead != nil:
		if !equals(overhead, class.Overhead.PodFixed) {
			return otherOverhead(review)
		}
	case overhead.IsSet():
		return deny(review, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
	}
	return admission.Allowed()
}
