// Package limitpodhardantiaffinitytopology is the admission plugin
// LimitPodHardAntiAffinityTopology.
//
// It limits the required anti-affinity of Pods to the topology of single nodes. With a wider
// topology, such as a zone, one Pod could exclude all Pods that its selector matches from
// the whole zone. Enable it in clusters with several tenants.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/antiaffinity.
package limitpodhardantiaffinitytopology

import (
	"context"
	"fmt"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/codec"
)

const labelHostname = "kubernetes.io/hostname"

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "LimitPodHardAntiAffinityTopology",
		Summary:   "denies pods with required anti-affinity over any topology but the node",
		Rules:     []admission.Rule{admission.CreateUpdate("pods")},
		Validates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: validate}, nil
		},
	}
}

func validate(_ context.Context, review *codec.Review) admission.Result {
	terms := review.Object.Get("spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
	for _, term := range terms.Elements() {
		if key := term.Get("topologyKey"); !key.EqualString(labelHostname) {
			return deny(review, key.String())
		}
	}
	return admission.Allowed()
}

func deny(review *codec.Review, topologyKey string) admission.Result {
	return admission.Denied(podspec.Forbidden(review,
		fmt.Errorf("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed",
			topologyKey, labelHostname)))
}
