// Package spread is the admission plugin SpreadReplicas, an example.
//
// It spreads the replicas of a Deployment over zones, unless the Deployment has
// its own topologySpreadConstraints. Use it if services must survive the loss of a
// zone.
package spread

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for app.WithPlugin.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "SpreadReplicas",
		Summary: "spreads the replicas of Deployments over zones",
		Rules:   []admission.Rule{admission.NewRule("apps", "v1", "deployments", codec.Create, codec.Update)},
		Mutates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: admission.AdmitTyped(admit)}, nil
		},
	}
}

func admit(_ context.Context, _ *codec.Review, deployment, _ *appsv1.Deployment) admission.Result {
	replicas, spec := deployment.Spec.Replicas, &deployment.Spec.Template.Spec
	if replicas == nil || *replicas < 2 || len(spec.TopologySpreadConstraints) > 0 {
		return admission.Allowed()
	}
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelTopologyZone,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     deployment.Spec.Selector,
	}}
	return admission.Allowed()
}
