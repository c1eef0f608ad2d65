package workload

import "github.com/fastadmit/fastadmit/codec"

// setDefaults sets defaults that kube-apiserver sets in a Pod before admission, if plugins or
// selectors read them (k8s.io/kubernetes pkg/apis/core/v1 defaults.go): the requests of
// containers that have only limits, the hostPorts of containers if the Pod uses the host network, and
// serviceAccountName if only serviceAccount is set. Plugins decide the same without the other defaults.
func setDefaults(o *codec.Object) {
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

func isEmpty(object codec.Value) bool {
	for range object.Members() {
		return false
	}
	return true
}
