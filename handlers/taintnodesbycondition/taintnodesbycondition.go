// Package taintnodesbycondition is the admission plugin TaintNodesByCondition.
//
// It gives every new node the taint of a node that is not ready. kube-controller-manager
// removes it when the node is ready. Without it, pods could be scheduled to the node before
// kube-controller-manager has checked it.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/nodetaint.
package taintnodesbycondition

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// taint is the taint to add, as JSON.
var taint = fmt.Sprintf(`{"key":%q,"effect":%q}`, corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "TaintNodesByCondition",
		Summary:     "taints new nodes as not ready, so that no pods are scheduled there before they are ready",
		Rules:       []admission.Rule{admission.NewRule("", "v1", "nodes", codec.Create)},
		Mutates:     true,
		OnByDefault: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: admit}, nil
		},
	}
}

// admit adds the taint unless there is one with the same key and effect, whatever its value.
func admit(_ context.Context, review *codec.Review) admission.Result {
	for _, has := range review.Object.Get("spec", "taints").Elements() {
		if has.Get("key").EqualString(corev1.TaintNodeNotReady) &&
			has.Get("effect").EqualString(string(corev1.TaintEffectNoSchedule)) {
			return admission.Allowed()
		}
	}
	review.Object.Append(taint, "spec", "taints")
	return admission.Allowed()
}
