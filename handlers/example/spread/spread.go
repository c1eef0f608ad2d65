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

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// Plugin returns the plugin, for app.WithPlugin.
func Plugin() handlers.Plugin {
	return handlers.Plugin{
		Name:    "SpreadReplicas",
		Summary: "spreads the replicas of Deployments over zones",
		Rules:   []handlers.Rule{handlers.NewRule("apps", "v1", "deployments", codec.Create, codec.Update)},
		Mutates: true,
		New: func(handlers.Setup) (handlers.Handler, error) {
			return handlers.Handler{Admit: handlers.AdmitTyped(admit)}, nil
		},
	}
}

func admit(_ context.Context, _ *codec.Review, deployment, _ *appsv1.Deployment) handlers.Result {
	replicas, spec := deployment.Spec.Replicas, &deployment.Spec.Template.Spec
	if replicas == nil || *replicas < 2 || len(spec.TopologySpreadConstraints) > 0 {
		return handlers.Allowed()
	}
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew:           1,
		TopologyKey:       corev1.LabelTopologyZone,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     deployment.Spec.Selector,
	}}
	return handlers.Allowed()
}
