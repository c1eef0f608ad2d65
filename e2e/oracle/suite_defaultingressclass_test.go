package oracle_test

import (
	networkingv1 "k8s.io/api/networking/v1"
	networkingv1beta1 "k8s.io/api/networking/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/handlers"
)

func defaultIngressClass() suite {
	return suite{
		name: "DefaultIngressClass", generate: (*generator).ingress, changes: true,
		variants: []variant{{options: handlers.DefaultOptions(), world: (*generator).ingressClasses}},
	}
}

// ingressClasses generates a world with a few classes.
func (g *generator) ingressClasses() oracle.World {
	var world oracle.World
	for _, name := range []string{"a", "b", "nginx", `q"\<`} {
		if g.in(3) {
			continue
		}
		world.Objects = append(world.Objects, &networkingv1.IngressClass{
			ObjectMeta: g.class(name, networkingv1.AnnotationIsDefaultIngressClass, "ingressclass.beta.kubernetes.io/is-default-class"),
		})
	}
	return world
}

// ingress generates a request about Ingresses, mostly a creation.
func (g *generator) ingress() *oracle.Case {
	if g.in(10) {
		return g.other()
	}
	operation := admission.Create
	if g.in(5) {
		operation = admission.Update
	}
	kind, resource := networkingv1.SchemeGroupVersion.WithKind("Ingress"), networkingv1.SchemeGroupVersion.WithResource("ingresses")
	if g.in(6) { // written in an old version, and converted for the webhook
		c := g.request(operation, networkingv1beta1.SchemeGroupVersion.WithKind("Ingress"),
			networkingv1beta1.SchemeGroupVersion.WithResource("ingresses"))
		c.AsKind, c.AsResource = kind, resource
		old := func() runtime.Object {
			v1 := g.anIngress()
			return &networkingv1beta1.Ingress{ObjectMeta: v1.ObjectMeta,
				Spec: networkingv1beta1.IngressSpec{IngressClassName: v1.Spec.IngressClassName}}
		}
		return g.write(c, old(), old)
	}
	c := g.request(operation, kind, resource)
	if g.in(12) {
		c.Subresource = "status"
	}
	return g.write(c, g.anIngress(), func() runtime.Object { return g.anIngress() })
}

func (g *generator) anIngress() *networkingv1.Ingress {
	ingress := new(networkingv1.Ingress)
	if g.in(16) {
		ingress = fuzzed[*networkingv1.Ingress](g, networkingv1.SchemeGroupVersion.WithKind("Ingress"))
	}
	if g.in(2) || ingress.Kind == "" {
		ingress.ObjectMeta = g.metadata()
	}
	if g.in(4) {
		metav1.SetMetaDataAnnotation(&ingress.ObjectMeta,
			pick(g, networkingv1beta1.AnnotationIngressClass, networkingv1.AnnotationIsDefaultIngressClass), g.className())
	}
	ingress.Spec.IngressClassName = maybe(g, g.className)
	if g.in(4) {
		ingress.Spec.Rules = []networkingv1.IngressRule{{Host: g.word()}}
	}
	return ingress
}
