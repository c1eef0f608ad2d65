package workload

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
)

// SetDefaults sets defaults that kube-apiserver sets before admission, if plugins or
// selectors read them (k8s.io/kubernetes pkg/apis/core/v1 defaults.go and conversion.go,
// pkg/apis/batch/v1/defaults.go):
//
//   - In a Pod: the requests of containers that have only limits, the hostPorts of
//     containers if the Pod uses the host network, and serviceAccountName if only
//     serviceAccount is set.
//   - In a Namespace: the label kubernetes.io/metadata.name.
//   - In a Job or ReplicationController without labels: the labels of its template.
//
// Plugins decide the same without the other defaults.
func SetDefaults(gvk schema.GroupVersionKind, o *codec.Object) {
	switch gvk.GroupKind() {
	case schema.GroupKind{Kind: "Pod"}:
		setPodDefaults(o)
	case schema.GroupKind{Kind: "Namespace"}:
		if name := o.Get("metadata", "name").String(); name != "" {
			o.SetString(name, "metadata", "labels", corev1.LabelMetadataName)
		}
	case schema.GroupKind{Group: "batch", Kind: "Job"}, schema.GroupKind{Kind: "ReplicationController"}:
		labels := o.Get("metadata", "labels")
		from := o.Get("spec", "template", "metadata", "labels")
		if from.Kind() == codec.KindObject && isEmpty(labels) {
			o.Set(from.JSON(), "metadata", "labels")
		}
	}
}

func isEmpty(object codec.Value) bool {
	for range object.Members() {
		return false
	}
	return true
}

func setPodDefaults(o *codec.Object) {
	spec := o.Get("spec")
	if spec.Kind() != codec.KindObject {
		return
	}
	name, alias := spec.Get("serviceAccountName").String(), spec.Get("serviceAccount").String()
	if name == "" && alias != "" {
		spec.SetString(alias, "serviceAccountName")
	}
	if name != "" && alias != "" && alias != name { // an API server writes both, and reads the first
		spec.SetString(name, "serviceAccount")
	}
	onNode := spec.Get("hostNetwork").Bool()
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range spec.Get(list).Elements() {
			if limits := container.Get("resources", "limits"); limits.Kind() == codec.KindObject && !isEmpty(limits) {
				for name, limit := range limits.Members() {
					if !container.Get("resources", "requests", name).Exists() {
						container.Set(limit.JSON(), "resources", "requests", name)
					}
				}
			}
			for _, port := range container.Get("ports").Elements() {
				number, ok := port.Get("containerPort").Int64()
				if host, _ := port.Get("hostPort").Int64(); onNode && ok && host == 0 {
					port.SetInt(number, "hostPort")
				}
			}
		}
	}
}
