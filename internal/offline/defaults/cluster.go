package defaults

import (
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// clusterKinds are the kinds for whoever runs a cluster, and claims of devices (pkg/apis/storage/v1, scheduling/v1,
// flowcontrol/v1, resource/v1: defaults.go; k8s.io/apiextensions-apiserver pkg/apis/apiextensions/v1/defaults.go).
func clusterKinds() map[string]kind {
	const resource, flowcontrol = "resource.k8s.io/v1 ", "flowcontrol.apiserver.k8s.io/v1 "
	claims, templates := under("spec.devices.requests[]", deviceRequest()), under("spec.spec.devices.requests[]", deviceRequest())
	return map[string]kind{
		"storage.k8s.io/v1 StorageClass":                   {typed[storagev1.StorageClass], storageClass},
		"storage.k8s.io/v1 CSIDriver":                      {typed[storagev1.CSIDriver], csiDriver},
		"scheduling.k8s.io/v1 PriorityClass":               {typed[schedulingv1.PriorityClass], priorityClass},
		"node.k8s.io/v1 RuntimeClass":                      {typed[nodev1.RuntimeClass], nil},
		resource + "ResourceClaim":                         {typed[resourcev1.ResourceClaim], claims},
		resource + "ResourceClaimTemplate":                 {typed[resourcev1.ResourceClaimTemplate], templates},
		flowcontrol + "FlowSchema":                         {typed[flowcontrolv1.FlowSchema], flowSchema},
		flowcontrol + "PriorityLevelConfiguration":         {typed[flowcontrolv1.PriorityLevelConfiguration], priorityLevel},
		"apiextensions.k8s.io/v1 CustomResourceDefinition": {nil, definition},
	}
}

// priorityClass is SetDefaults_PriorityClass.
var priorityClass = []rule{set("", "preemptionPolicy", "PreemptLowerPriority")}

// flowSchema is SetDefaults_FlowSchemaSpec.
var flowSchema = []rule{fill("spec", "matchingPrecedence", 1000)}

// storageClass is SetDefaults_StorageClass.
var storageClass = []rule{
	set("", "reclaimPolicy", "Delete"),
	set("", "volumeBindingMode", "Immediate"),
}

// csiDriver is SetDefaults_CSIDriver.
var csiDriver = []rule{
	set("spec", "attachRequired", true),
	set("spec", "podInfoOnMount", false),
	set("spec", "storageCapacity", false),
	set("spec", "fsGroupPolicy", "ReadWriteOnceWithFSType"),
	set("spec", "volumeLifecycleModes", []any{"Persistent"}),
	set("spec", "requiresRepublish", false),
	set("spec", "seLinuxMount", false),
	set("spec", "preventPodSchedulingIfMissing", false, since(37)),
}

// priorityLevel is SetDefaults_ExemptPriorityLevelConfiguration, SetDefaults_LimitedPriorityLevelConfiguration
// and SetDefaults_QueuingConfiguration.
var priorityLevel = []rule{
	set("spec.exempt", "nominalConcurrencyShares", 0),
	set("spec.exempt", "lendablePercent", 0),
	set("spec.limited", "nominalConcurrencyShares", 30),
	set("spec.limited", "lendablePercent", 0),
	fill("spec.limited.limitResponse.queuing", "handSize", 8),
	fill("spec.limited.limitResponse.queuing", "queues", 64),
	fill("spec.limited.limitResponse.queuing", "queueLengthLimit", 50),
}

// deviceRequest is SetDefaults_ExactDeviceRequest and SetDefaults_DeviceSubRequest.
func deviceRequest() []rule {
	request := []rule{
		set("", "allocationMode", "ExactCount"),
		set("", "count", 1, is("allocationMode", "ExactCount")),
		set("tolerations[]", "operator", "Equal"),
	}
	return append(under("exactly", request), under("firstAvailable[]", request)...)
}

// definition is SetDefaults_CustomResourceDefinitionSpec and SetDefaults_ServiceReference.
var definition = []rule{
	edit("spec.names", func(names object) {
		kind, _ := names["kind"].(string)
		if kind == "" {
			return
		}
		for field, value := range map[string]string{"singular": strings.ToLower(kind), "listKind": kind + "List"} {
			if is, _ := names[field].(string); is == "" {
				names[field] = value
			}
		}
	}),
	set("spec", "conversion", object{"strategy": "None"}),
	edit("spec", func(spec object) { delete(spec, "preserveUnknownFields") }, is("preserveUnknownFields", false)),
	set("spec.conversion.webhook.clientConfig.service", "port", 443),
}
