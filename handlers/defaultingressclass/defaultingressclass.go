// Package defaultingressclass is the admission plugin DefaultIngressClass.
//
// It sets the cluster's default class in every new Ingress without a class, so that exactly
// one ingress controller serves it. Without it, every controller that serves Ingresses
// without a class serves it, or none does.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/network/defaultingressclass.
package defaultingressclass

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "DefaultIngressClass",
		Summary:     "sets the default class in Ingresses without one",
		Rules:       []admission.Rule{admission.NewRule("networking.k8s.io", "v1", "ingresses", codec.Create)},
		Mutates:     true,
		Needs:       []cluster.Need{cluster.IngressClasses.Watched()},
		OnByDefault: true,
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{classes: cluster.IngressClasses.In(setup.Cluster)}
			return admission.Handler{Admit: p.admit}, nil
		},
	}
}

type plugin struct {
	classes *cluster.Objects[*networkingv1.IngressClass]
}

// admit sets the class unless the Ingress has one, in its spec or in the deprecated
// annotation. An empty class counts as one.
func (p *plugin) admit(_ context.Context, review *codec.Review) admission.Result {
	ingress := &review.Object
	if ingress.Get("spec", "ingressClassName").IsSet() ||
		ingress.Get("metadata", "annotations", networkingv1beta1.AnnotationIngressClass).Exists() {
		return admission.Allowed()
	}
	classes, err := p.classes.List("")
	if err != nil {
		return admission.Errored(err)
	}
	if class, ok := cluster.Newest(classes, isDefault); ok {
		ingress.SetString(class.Name, "spec", "ingressClassName")
	}
	return admission.Allowed()
}

func isDefault(class *networkingv1.IngressClass) bool {
	return class.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"
}
