package defaults

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// accessKinds are the kinds that say who may do what, and what reaches Pods (pkg/apis/rbac/v1,
// networking/v1, discovery/v1, admissionregistration/v1: defaults.go).
func accessKinds() map[string]kind {
	validating := under("webhooks[]", webhook())
	mutating := append(under("webhooks[]", webhook()), set("webhooks[]", "reinvocationPolicy", "Never"))
	policy, binding := policySpec(), under("spec.matchResources", matchResources())
	const rbac, networking, registration = "rbac.authorization.k8s.io/v1 ", "networking.k8s.io/v1 ", "admissionregistration.k8s.io/v1 "
	return map[string]kind{
		rbac + "Role":               {typed[rbacv1.Role], nil},
		rbac + "ClusterRole":        {typed[rbacv1.ClusterRole], nil},
		rbac + "RoleBinding":        {typed[rbacv1.RoleBinding], roleBinding},
		rbac + "ClusterRoleBinding": {typed[rbacv1.ClusterRoleBinding], roleBinding},

		networking + "NetworkPolicy":           {typed[networkingv1.NetworkPolicy], networkPolicy},
		networking + "Ingress":                 {typed[networkingv1.Ingress], nil},
		networking + "IngressClass":            {typed[networkingv1.IngressClass], []rule{set("spec.parameters", "scope", "Cluster")}},
		"discovery.k8s.io/v1 EndpointSlice":    {typed[discoveryv1.EndpointSlice], endpointSlice},
		"apiregistration.k8s.io/v1 APIService": {nil, []rule{set("spec.service", "port", 443)}},

		registration + "ValidatingWebhookConfiguration":   {typed[admissionregistrationv1.ValidatingWebhookConfiguration], validating},
		registration + "MutatingWebhookConfiguration":     {typed[admissionregistrationv1.MutatingWebhookConfiguration], mutating},
		registration + "ValidatingAdmissionPolicy":        {typed[admissionregistrationv1.ValidatingAdmissionPolicy], policy},
		registration + "ValidatingAdmissionPolicyBinding": {typed[admissionregistrationv1.ValidatingAdmissionPolicyBinding], binding},
		registration + "MutatingAdmissionPolicy":          {typed[admissionregistrationv1.MutatingAdmissionPolicy], policy},
		registration + "MutatingAdmissionPolicyBinding":   {typed[admissionregistrationv1.MutatingAdmissionPolicyBinding], binding},
	}
}

// roleBinding is SetDefaults_RoleBinding, SetDefaults_ClusterRoleBinding and SetDefaults_Subject.
var roleBinding = []rule{
	fill("roleRef", "apiGroup", rbacv1.GroupName),
	fill("subjects[]", "apiGroup", rbacv1.GroupName, is("kind", rbacv1.UserKind, rbacv1.GroupKind)),
}

// networkPolicy is SetDefaults_NetworkPolicy and SetDefaults_NetworkPolicyPort.
var networkPolicy = []rule{
	edit("spec", func(spec object) {
		if types, _ := spec["policyTypes"].([]any); len(types) > 0 {
			return
		}
		spec["policyTypes"] = []any{"Ingress"}
		if egress, _ := spec["egress"].([]any); len(egress) > 0 {
			spec["policyTypes"] = []any{"Ingress", "Egress"}
		}
	}),
	set("spec.ingress[].ports[]", "protocol", "TCP"),
	set("spec.egress[].ports[]", "protocol", "TCP"),
}

// endpointSlice is SetDefaults_EndpointPort.
var endpointSlice = []rule{set("ports[]", "name", ""), set("ports[]", "protocol", "TCP")}

// webhook is SetDefaults_ValidatingWebhook, SetDefaults_ServiceReference and SetDefaults_Rule.
func webhook() []rule {
	return slices.Concat([]rule{
		set("", "failurePolicy", "Fail"),
		set("", "timeoutSeconds", 10),
		set("clientConfig.service", "port", 443),
		set("rules[]", "scope", "*"),
	}, selection())
}

// selection selects all objects.
func selection() []rule {
	return []rule{
		set("", "matchPolicy", "Equivalent"),
		set("", "namespaceSelector", object{}),
		set("", "objectSelector", object{}),
	}
}

// matchResources is SetDefaults_MatchResources.
func matchResources() []rule {
	return append(selection(), set("resourceRules[]", "scope", "*"), set("excludeResourceRules[]", "scope", "*"))
}

// policySpec is SetDefaults_ValidatingAdmissionPolicySpec and SetDefaults_MutatingAdmissionPolicySpec.
func policySpec() []rule {
	return append(under("spec.matchConstraints", matchResources()), set("spec", "failurePolicy", "Fail"))
}
