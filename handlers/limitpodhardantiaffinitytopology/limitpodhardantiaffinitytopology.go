// Package limitpodhardantiaffinitytopology is the admission plugin
// LimitPodHardAntiAffinityTopology.
//
// It lets a Pod's required anti-affinity keep other Pods off its node only. A
// wider topology, such as a zone, lets one Pod close all nodes in it to
// everybody whose Pods its selector matches; in a cluster with several tenants
// one wants it on.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/antiaffinity v1.36.3.
package limitpodhardantiaffinitytopology

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

const labelHostname = "kubernetes.io/hostname"

// Plugin is the plugin's line in the table.
func Plugin() handlers.Plugin {
	return handlers.Plugin{
		Name:      "LimitPodHardAntiAffinityTopology",
		Summary:   "denies pods with required anti-affinity over any topology but the node",
		Rules:     []handlers.Rule{handlers.PodsCreateUpdate()},
		Validates: true,
		New: func([]byte) (handlers.Handler, error) {
			return handlers.Handler{Validate: validate}, nil
		},
	}
}

func validate(_ context.Context, review *codec.Review) handlers.Result {
	terms := review.Object.Get("spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
	for _, term := range terms.Elements() {
		if key := term.Get("topologyKey"); !key.EqualString(labelHostname) {
			return deny(review, key.String())
		}
	}
	return handlers.Allowed()
}

// deny names the Pod as the in-tree plugin does, by the name that the object
// has: not by that of the request, and not by generateName.
func deny(review *codec.Review, topologyKey string) handlers.Result {
	return handlers.Denied(apierrors.NewForbidden(
		schema.GroupResource{Resource: "pods"}, review.Object.Get("metadata", "name").String(),
		fmt.Errorf("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed",
			topologyKey, labelHostname)))
}
