//go:build linux

package handlers_test

import "strings"

// otherLists are fields of objects other than Pods: the resource, and the object with a
// list.
var otherLists = []struct{ name, resource, before, format, after, extra string }{
	{"taints", "v1/nodes", `{"metadata":{"name":"n1"},"spec":{"taints":[`, `{"key":"k#","value":"v","effect":"NoSchedule"}`,
		`]}}`, `"name":"n1",`},
	{"images", "v1/nodes", `{"metadata":{"name":"n1"},"status":{"images":[`, `{"names":["i#"],"sizeBytes":1}`, `]}}`, `"name":"n1",`},
	{"conditions", "v1/nodes", `{"metadata":{"name":"n1"},"status":{"conditions":[`, `{"type":"c#","status":"v"}`, `]}}`, `"name":"n1",`},
	{"devices", "resource.k8s.io/v1/resourceslices", `{"metadata":{"name":"s"},"spec":{"nodeName":"n1","devices":[`,
		`{"name":"d#","attributes":{"a":{"string":"v"}}}`, `]}}`, ``},
	{"drivers", "storage.k8s.io/v1/csinodes", `{"metadata":{"name":"n1"},"spec":{"drivers":[`,
		`{"name":"d#","nodeID":"v","topologyKeys":["k"]}`, `]}}`, `"name":"n1",`},
	{"requests of devices", "resource.k8s.io/v1/resourceclaims", `{"metadata":{"name":"c"},"spec":{"devices":{"requests":[`,
		`{"name":"r#","exactly":{"deviceClassName":"c#","allocationMode":"ExactCount","count":1}}`, `]}}}`, ``},
	{"alternative devices", "resource.k8s.io/v1/resourceclaims",
		`{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"firstAvailable":[`,
		`{"name":"r#","deviceClassName":"c#","allocationMode":"ExactCount","count":1}`, `]}]}}}`, ``},
	{"owners of a claim", "resource.k8s.io/v1/resourceclaims",
		`{"metadata":{"name":"c","annotations":{"resource.kubernetes.io/extended-resource-claim":"true"},"ownerReferences":[`,
		`{"apiVersion":"v1","kind":"Pod","name":"p#","uid":"u","controller":true}`, `]}}`, ``},
	{"externalIPs", "v1/services", `{"spec":{"type":"LoadBalancer","externalIPs":[`, `"10.0.0.#"`, `]}}`, ``},
	{"service ports", "v1/services", `{"spec":{"type":"NodePort","ports":[`, `{"name":"p#","port":1,"nodePort":1}`, `]}}`, ``},
	{"requests of a claim", "v1/persistentvolumeclaims", `{"spec":{"storageClassName":"fast","resources":{"requests":{`,
		`"r#":"1"`, `}}}}`, ``},
	{"access modes", "v1/persistentvolumeclaims", `{"spec":{"accessModes":[`, `"m#"`, `]}}`, ``},
	{"conditions of a claim", "v1/persistentvolumeclaims", `{"status":{"phase":"Bound","conditions":[`,
		`{"type":"c#","status":"v"}`, `]}}`, ``},
	{"allocated resources", "v1/persistentvolumeclaims", `{"status":{"phase":"Bound","allocatedResources":{`, `"r#":"1"`, `}}}`, ``},
	{"selector of a claim", "v1/persistentvolumeclaims", `{"spec":{"selector":{"matchLabels":{`, `"k#":"v"`, `}}}}`,
		`"subResource":"status",`},
	{"finalizers", "v1/persistentvolumes", `{"metadata":{"name":"v","finalizers":[`, `"f#"`, `]}}`, ``},
	{"terms", "v1/persistentvolumes",
		`{"metadata":{"name":"v"},"spec":{"gcePersistentDisk":{"pdName":"d"},"nodeAffinity":{"required":{"nodeSelectorTerms":[`,
		`{"matchExpressions":[{"key":"k#","operator":"Exists"}]}`, `]}}}}`, ``},
	{"expressions", "v1/persistentvolumes",
		`{"metadata":{"name":"v"},"spec":{"gcePersistentDisk":{"pdName":"d"},` +
			`"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[`,
		`{"key":"k#","operator":"Exists"}`, `]}]}}}}`, ``},
	{"finalizers", "v1/persistentvolumeclaims", `{"metadata":{"name":"v","finalizers":[`, `"f#"`, `]}}`, ``},
	{"rules", "networking.k8s.io/v1/ingresses", `{"spec":{"rules":[`, `{"host":"h#"}`, `]}}`, ``},
	{"annotations", "networking.k8s.io/v1/ingresses", `{"metadata":{"annotations":{`, `"a#":"v"`, `}}}`, ``},
	{"usages", "certificates.k8s.io/v1/certificatesigningrequests",
		`{"spec":{"signerName":"kubernetes.io/kube-apiserver-client","request":"eA==","usages":[`, `"u#"`, `]}}`, ``},
	{"usages to approve", "certificates.k8s.io/v1/certificatesigningrequests", `{"spec":{"signerName":"a.b/c","usages":[`,
		`"u#"`, `]}}`, `"subResource":"approval",`},
	{"conditions of a request", "certificates.k8s.io/v1/certificatesigningrequests",
		`{"spec":{"signerName":"a.b/c"},"status":{"conditions":[`,
		`{"type":"c#","status":"v"}`, `]}}`, `"subResource":"status",`},
	{"owners of a bundle", "certificates.k8s.io/v1beta1/clustertrustbundles", `{"metadata":{"name":"b","ownerReferences":[`,
		`{"apiVersion":"v1","kind":"Pod","name":"p#","uid":"u"}`, `]},"spec":{"signerName":"a.b/c","trustBundle":"t"}}`, ``},
	{"finalizers", "scheduling.k8s.io/v1alpha2/podgroups", `{"metadata":{"name":"g","finalizers":[`, `"f#"`,
		`]},"spec":{"podGroupTemplateRef":{"workload":{"workloadName":"w"}}}}`, ``},
	{"owners of a Job", "batch/v1/jobs", `{"metadata":{"name":"j","uid":"u","ownerReferences":[`,
		`{"apiVersion":"v1","kind":"Pod","name":"p#","uid":"u"}`, `]},"spec":{"parallelism":2}}`, ``},
	{"audiences", "v1/serviceaccounts",
		`{"spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"bound","uid":"u2"},"audiences":[`, `"a#"`, `]}}`,
		`"subResource":"token",`},
	{"quota scopes", "v1/resourcequotas", `{"spec":{"scopes":[`, `"s#"`, `]}}`, ``},
	{"quota resources", "v1/resourcequotas", `{"spec":{"hard":{`, `"requests.example.com/r#":"1"`, `}}}`, ``},
	{"limits", "v1/limitranges", `{"spec":{"limits":[`, `{"type":"Container","max":{"r#":"1"}}`, `]}}`, ``},
	{"data", "v1/configmaps", `{"data":{`, `"k#":"v"`, `}}`, ``},
	{"data", "v1/secrets", `{"data":{`, `"k#":"v"`, `}}`, ``},
	{"members", "scheduling.k8s.io/v1/priorityclasses", `{"globalDefault":true,"value":1,"metadata":{"annotations":{`,
		`"a#":"v"`, `}}}`, ``},
	{"members", "v1/events", `{"source":{"component":"c"},"metadata":{"annotations":{`, `"a#":"v"`, `}}}`, ``},
	{"members", "coordination.k8s.io/v1/leases", `{"metadata":{"name":"n1","annotations":{`, `"a#":"v"`, `}}}`,
		`"namespace":"kube-node-lease","name":"n1",`},
	{"containers of a template", "apps/v1/deployments", `{"spec":{"template":{"spec":{"containers":[`,
		`{"name":"c#","image":"i","securityContext":{"privileged":true}}`, `]}}}}`, ``},
	{"volumes of a template", "apps/v1/deployments", `{"spec":{"template":{"spec":{"volumes":[`,
		`{"name":"v#","hostPath":{"path":"/"}}`, `]}}}}`, ``},
	{"annotations of a template", "batch/v1/cronjobs",
		`{"spec":{"jobTemplate":{"spec":{"template":{"metadata":{"annotations":{`, `"a#":"v"`, `}}}}}}}`, ``},
	{"container statuses", "v1/pods",
		`{"metadata":{"name":"name","namespace":"namespace"},"spec":{` + podFields +
			`,"containers":[{"name":"c"}]},"status":{"containerStatuses":[`,
		`{"name":"c#","resources":{"requests":{"cpu":"1"}},"allocatedResources":{"cpu":"1"}}`, `]}}`, `"subResource":"resize",`},
	{"resource claim statuses", "v1/pods", `{"metadata":{"name":"name"},"spec":{"nodeName":"n1"},"status":{"resourceClaimStatuses":[`,
		`{"name":"c#","resourceClaimName":"v"}`, `]}}`, `"subResource":"status",`},
	{"conditions of a Pod", "v1/pods", `{"metadata":{"name":"name"},"spec":{` + podFields + `},"status":{"conditions":[`,
		`{"type":"c#","status":"v"}`, `]}}`, `"subResource":"resize",`},
	{"labels of a binding", "v1/pods", `{"metadata":{"name":"name","labels":{`, `"topology.kubernetes.io/k#":"v"`,
		`}},"target":{"name":"n1"}}`, `"subResource":"binding",`},
	{"ephemeral containers alone", "v1/pods", `{"metadata":{"name":"name"},"spec":{"serviceAccountName":"limited","ephemeralContainers":[`,
		`{"name":"e#","image":"i","env":[{"name":"e","valueFrom":{"secretKeyRef":{"name":"s1"}}}]}`, `]}}`,
		`"subResource":"ephemeralcontainers",`},
	{"mirror Pod's volumes", "v1/pods",
		`{"metadata":{"name":"name","annotations":{"kubernetes.io/config.mirror":"h"},"ownerReferences":[` +
			`{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u1","controller":true}]},"spec":{"nodeName":"n1","volumes":[`,
		`{"name":"v#","hostPath":{"path":"/"}}`, `]}}`, ``},
	{"mirror Pod's env", "v1/pods", `{"metadata":{"name":"name","annotations":{"kubernetes.io/config.mirror":"h"},"ownerReferences":[` +
		`{"apiVersion":"v1","kind":"Node","name":"n1","uid":"u1","controller":true}]},"spec":{"nodeName":"n1",` +
		`"containers":[{"name":"c","env":[`, `{"name":"e#","value":"v"}`, `]}]}}`, ``},
}

// pairs are Pods with two lists, where plugins may look up the elements of one in the other.
var pairs = []struct {
	name string
	spec func(n int) string
}{
	{"init containers and a sidecar container", func(n int) string {
		return `"initContainers":[{"name":"s","restartPolicy":"Always","resources":{"requests":` +
			members(n, `"example.com/r#":"1"`) + `}},` +
			times(n, `{"name":"i#","resources":{"requests":{"cpu":"1m"}}}`) + `],` + oneContainer
	}},
	{"init containers that go on", func(n int) string {
		return `"initContainers":` +
			list(n, `{"name":"s#","restartPolicy":"Always","resources":{"requests":{"example.com/r#":"1"}}}`) + `,` + oneContainer
	}},
	{"containers and resources", func(n int) string {
		return `"containers":[{"name":"c","resources":{"requests":` + members(n, `"example.com/r#":"1"`) + `}},` +
			times(n, `{"name":"i#","resources":{"requests":{"cpu":"1m"}}}`) + `]`
	}},
	{"resources and tolerations", func(n int) string {
		return `"containers":[{"name":"c","resources":{"requests":` + members(n, `"example.com/r#":"1"`) + `}}],"tolerations":` +
			list(n, `{"key":"example.com/r#","operator":"Exists","effect":"NoSchedule","tolerationSeconds":1}`)
	}},
	{"mounts and volumes", func(n int) string {
		return `"containers":[{"name":"c","volumeMounts":` + list(n, `{"name":"v#","mountPath":"/m#"}`) + `}],"volumes":` +
			list(n, `{"name":"kube-api-access-#"}`)
	}},
	{"tolerations of all kinds", func(n int) string {
		return `"tolerations":[` +
			times(n/4, `{"key":"k#","operator":"Exists"},{"key":"l#","operator":"Equal","value":"v","effect":"NoExecute",`+
				`"tolerationSeconds":#},`+
				`{"key":"k","value":"#","effect":"NoExecute"},{"key":"k","operator":"Gt","value":"#"}`) + `],` + oneContainer
	}},
}

// body returns a review of the shape with n things.
func (s *shape) body(n int, user string) []byte {
	object, old := s.objects(n)
	version, resource, _ := cutLast(s.resource, "/")
	group, version, ok := cutLast(version, "/")
	if !ok {
		group, version = "", group
	}
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",` + s.extra +
		`"resource":{"group":"` + group + `","version":"` + version + `","resource":"` + resource + `"},` +
		s.fieldUnless("name") + s.fieldUnless("namespace") + `"operation":"` + string(s.operation) + `","userInfo":` + user +
		`,"object":` + object + `,"oldObject":` + old + `}}`)
}

// fieldUnless returns a field of the request with its own name as the value, unless the
// shape sets it.
func (s *shape) fieldUnless(name string) string {
	if strings.Contains(s.extra, `"`+name+`":`) {
		return ""
	}
	return `"` + name + `":"` + name + `",`
}

func cutLast(s, separator string) (before, after string, found bool) {
	if i := strings.LastIndex(s, separator); i >= 0 {
		return s[:i], s[i+len(separator):], true
	}
	return s, "", false
}
