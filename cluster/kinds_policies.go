package cluster

import corev1 "k8s.io/api/core/v1"

// PolicyGroup is the group of the custom resources for policies. Policies and bindings have the same
// spec as the kinds with the same names in admissionregistration.k8s.io/v1.
const PolicyGroup = "policies.fastadmit.io"

// The kinds of policies and their bindings as custom resources.
var (
	ValidatingAdmissionPolicies       = policyKind("ValidatingAdmissionPolicy", "validatingadmissionpolicies")
	ValidatingAdmissionPolicyBindings = policyKind("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
	MutatingAdmissionPolicies         = policyKind("MutatingAdmissionPolicy", "mutatingadmissionpolicies")
	MutatingAdmissionPolicyBindings   = policyKind("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings")
)

// PolicyExceptions are the exceptions of policies and plugins. A cluster may lack their CustomResourceDefinition: it is younger than
// those of policies.
var PolicyExceptions = DefineJSON(Definition{
	Group: PolicyGroup, Version: "v1", Resource: "policyexceptions", Kind: "PolicyException", Optional: true,
})

// PolicyReplicas are the reports of the replicas of fastadmit on the policies that they
// evaluate. Like policies, they are cluster-scoped.
var PolicyReplicas = DefineJSON(Definition{
	Group: PolicyGroup, Version: "v1", Resource: "policyreplicas", Kind: "PolicyReplica", Optional: true,
}, "status")

func policyKind(kind, resource string) KindOf[*JSON] {
	return DefineJSON(Definition{Group: PolicyGroup, Version: "v1", Resource: resource, Kind: kind})
}

// Events are Events about other objects. They are only created.
var Events = Define(Definition{
	Version: "v1", Resource: "events", Kind: "Event", Namespaced: true, NotStored: true,
}, Type[*corev1.Event]{})
