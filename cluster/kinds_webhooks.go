package cluster

import corev1 "k8s.io/api/core/v1"

// WebhookGroup is the group of the custom resources for webhooks. They have the fields
// of the kinds with the same names in admissionregistration.k8s.io/v1.
const WebhookGroup = "webhooks.fastadmit.io"

// The kinds of webhook configurations as custom resources.
var (
	ValidatingWebhookConfigurations = webhookKind("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
	MutatingWebhookConfigurations   = webhookKind("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
)

func webhookKind(kind, resource string) KindOf[*JSON] {
	return DefineJSON(Definition{Group: WebhookGroup, Version: "v1", Resource: resource, Kind: kind})
}

// Services are the Services, with type, addresses and ports.
var Services = Define(Definition{
	Version: "v1", Resource: "services", Kind: "Service", Namespaced: true,
}, Type[*corev1.Service]{
	List:   &corev1.ServiceList{},
	Fields: []string{"spec.type", "spec.clusterIP", "spec.externalName", "spec.ports"},
	Keep: func(s *corev1.Service) *corev1.Service {
		return &corev1.Service{ObjectMeta: trimMeta(&s.ObjectMeta), Spec: corev1.ServiceSpec{
			Type: s.Spec.Type, ClusterIP: s.Spec.ClusterIP, ExternalName: s.Spec.ExternalName, Ports: s.Spec.Ports,
		}}
	},
})
