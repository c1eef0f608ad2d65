package defaults

import (
	"encoding/base64"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// coreKinds are the kinds of the core group (pkg/apis/core/v1/defaults.go and
// zz_generated.defaults.go).
func coreKinds() map[string]kind {
	return map[string]kind{
		"v1 Pod":         {typed[corev1.Pod], pods()},
		"v1 PodTemplate": {typed[corev1.PodTemplate], under("template.spec", podSpec())},
		"v1 ReplicationController": {
			typed[corev1.ReplicationController], slices.Concat(replicationController, under("spec.template.spec", podSpec())),
		},
		"v1 Service":               {typed[corev1.Service], service},
		"v1 Endpoints":             {typed[corev1.Endpoints], endpoints}, //nolint:staticcheck // kube-apiserver serves it
		"v1 Secret":                {typed[corev1.Secret], secret},
		"v1 ConfigMap":             {typed[corev1.ConfigMap], nil},
		"v1 ServiceAccount":        {typed[corev1.ServiceAccount], nil},
		"v1 Namespace":             {typed[corev1.Namespace], namespace},
		"v1 Node":                  {typed[corev1.Node], node},
		"v1 LimitRange":            {typed[corev1.LimitRange], limitRange},
		"v1 ResourceQuota":         {typed[corev1.ResourceQuota], []rule{edit("spec", roundUp("hard"))}},
		"v1 PersistentVolume":      {typed[corev1.PersistentVolume], persistentVolume()},
		"v1 PersistentVolumeClaim": {typed[corev1.PersistentVolumeClaim], claim()},
	}
}

// replicationController is SetDefaults_ReplicationController.
var replicationController = []rule{
	edit("", func(o object) {
		labels := templateLabels(o)
		if len(labels) == 0 {
			return
		}
		if spec := part(o, "spec"); len(part(spec, "selector")) == 0 {
			spec["selector"] = copied(labels)
		}
		label(o, labels)
	}),
	set("spec", "replicas", 1),
}

// templateLabels returns the labels of the template of Pods in an object.
func templateLabels(o object) object {
	spec, _ := o["spec"].(object)
	template, _ := spec["template"].(object)
	metadata, _ := template["metadata"].(object)
	labels, _ := metadata["labels"].(object)
	return labels
}

// label sets the labels of an object that has none.
func label(o, labels object) {
	if metadata := part(o, "metadata"); len(part(metadata, "labels")) == 0 {
		metadata["labels"] = copied(labels)
	}
}

// service is SetDefaults_Service.
var service = []rule{
	set("spec", "sessionAffinity", "None"),
	edit("spec", func(spec object) { delete(spec, "sessionAffinityConfig") }, is("sessionAffinity", "None")),
	edit("spec", func(spec object) {
		if clientIP := part(part(spec, "sessionAffinityConfig"), "clientIP"); clientIP["timeoutSeconds"] == nil {
			clientIP["timeoutSeconds"] = int64(corev1.DefaultClientIPServiceAffinitySeconds)
		}
	}, is("sessionAffinity", "ClientIP")),
	set("spec", "type", "ClusterIP"),
	set("spec.ports[]", "protocol", "TCP"),
	edit("spec.ports[]", func(port object) {
		if target := port["targetPort"]; target == nil || target == int64(0) || target == "" {
			port["targetPort"] = port["port"]
		}
	}),
	set("spec", "externalTrafficPolicy", "Cluster", func(spec object, _ int) bool {
		addresses, _ := spec["externalIPs"].([]any)
		return spec["type"] == "LoadBalancer" || spec["type"] == "NodePort" || spec["type"] == "ClusterIP" && len(addresses) > 0
	}),
	set("spec", "internalTrafficPolicy", "Cluster", is("type", "NodePort", "LoadBalancer", "ClusterIP")),
	set("spec", "allocateLoadBalancerNodePorts", true, is("type", "LoadBalancer")),
}

// endpoints is SetDefaults_Endpoints.
var endpoints = []rule{set("subsets[].ports[]", "protocol", "TCP")}

// secret is SetDefaults_Secret and Convert_v1_Secret_To_core_Secret.
var secret = []rule{
	set("", "type", "Opaque"),
	edit("", func(o object) {
		texts, _ := o["stringData"].(object)
		for name, value := range texts {
			if text, ok := value.(string); ok {
				part(o, "data")[name] = base64.StdEncoding.EncodeToString([]byte(text))
			}
		}
		delete(o, "stringData")
	}),
}

// namespace is SetDefaults_Namespace and SetDefaults_NamespaceStatus.
var namespace = []rule{
	edit("metadata", func(metadata object) {
		if name, _ := metadata["name"].(string); name != "" {
			part(metadata, "labels")[corev1.LabelMetadataName] = name
		}
	}),
	set("status", "phase", "Active"),
}

// node is SetDefaults_NodeStatus.
var node = []rule{
	compute("status", "allocatable", func(status object) any {
		if capacity, ok := status["capacity"].(object); ok {
			return copied(capacity)
		}
		return nil
	}),
	edit("status", roundUp("capacity", "allocatable")),
}

// limitRange is SetDefaults_LimitRangeItem.
var limitRange = []rule{
	edit("spec.limits[]", func(item object) {
		for _, list := range [...]struct{ into, from string }{
			{"default", "max"}, {"defaultRequest", "default"}, {"defaultRequest", "min"},
		} {
			quantities, _ := item[list.from].(object)
			for name, quantity := range quantities {
				if into := part(item, list.into); into[name] == nil {
					into[name] = quantity
				}
			}
		}
	}, is("type", "Container")),
	edit("spec.limits[]", roundUp("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")),
}

// persistentVolume is SetDefaults_PersistentVolume.
func persistentVolume() []rule {
	return slices.Concat([]rule{
		set("status", "phase", "Pending"),
		set("spec", "persistentVolumeReclaimPolicy", "Retain"),
		set("spec", "volumeMode", "Filesystem"),
		edit("spec", roundUp("capacity")),
	}, under("spec", volumeSource()))
}

// claim is SetDefaults_PersistentVolumeClaim.
func claim() []rule {
	return slices.Concat([]rule{
		set("status", "phase", "Pending"),
		edit("status", roundUp("capacity", "allocatedResources")),
	}, under("spec", claimSpec()))
}
