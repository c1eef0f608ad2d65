//go:build linux

package handlers_test

import (
	"strconv"
	"strings"

	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/codec"
)

// A shape is a kind of review with n equal parts.
type shape struct {
	name      string
	resource  string // such as "v1/pods"
	operation codec.Operation
	objects   func(n int) (object, old string) // old is "null" if there is no old object
	extra     string                           // more fields of the request, each followed by a comma
}

// times returns n copies of format, separated by commas, with the index in place of #.
func times(n int, format string) string {
	parts := strings.Split(format, "#")
	var b []byte
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		for j, part := range parts {
			if j > 0 {
				b = strconv.AppendInt(b, int64(i), 10)
			}
			b = append(b, part...)
		}
	}
	return string(b)
}

func list(n int, format string) string { return "[" + times(n, format) + "]" }

func members(n int, format string) string { return "{" + times(n, format) + "}" }

const (
	oneContainer = `"containers":[{"name":"c","image":"i"}]`
	podFields    = `"runtimeClassName":"sandbox","serviceAccountName":"limited","priorityClassName":"high","nodeName":"n1"`
)

// pod returns a Pod with these fields of its metadata and its spec. If a name occurs twice,
// the first one counts.
func pod(metadata, spec string) string {
	return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"name","namespace":"namespace"` + before(metadata) + `},"spec":{` +
		podFields + before(spec) + `}}`
}

func before(members string) string {
	if members == "" {
		return ""
	}
	return "," + members
}

// podLists are fields of a PodSpec, each with the format of the repeated part.
var podLists = []struct{ name, before, format, after string }{
	{"containers", ``, `{"name":"c#","image":"i"}`, ``},
	{"containers that ask", ``,
		`{"name":"c#","image":"i","resources":{"requests":{"cpu":"1m","example.com/gpu":"1"},"limits":{"cpu":"5m",` +
			`"example.com/gpu":"1"}},` +
			`"securityContext":{"privileged":true,"capabilities":{"add":["SYS_ADMIN"]}},"ports":[{"hostPort":1,"containerPort":1}]}`, ``},
	{"different resources", ``,
		`{"name":"c","image":"i","resources":{"requests":{"example.com/r#":"1"},"limits":{"example.com/r#":"1"}}}`, ``},
	{"images", ``, `{"name":"c","image":"registry.example.com/i#","imagePullPolicy":"Never"}`, ``},
	{"resources of one", `{"name":"c","image":"i","resources":{"requests":{`, `"example.com/r#":"1"`, `}}}`},
	{"limits of one", `{"name":"c","image":"i","resources":{"limits":{`, `"example.com/r#":"1"`, `}}}`},
	{"env", `{"name":"c","image":"i","env":[`, `{"name":"e#","valueFrom":{"secretKeyRef":{"name":"s1","key":"k"}}}`, `]}`},
	{"envFrom", `{"name":"c","image":"i","envFrom":[`, `{"prefix":"e#","secretRef":{"name":"s1"}}`, `]}`},
	{"ports", `{"name":"c","image":"i","ports":[`, `{"containerPort":1,"hostPort":#}`, `]}`},
	{"volumeMounts", `{"name":"c","image":"i","volumeMounts":[`, `{"name":"v","mountPath":"/m#"}`, `]}`},
	{"volumeDevices", `{"name":"c","image":"i","volumeDevices":[`, `{"name":"v","devicePath":"/m#"}`, `]}`},
	{"resource claims of one", `{"name":"c","image":"i","resources":{"claims":[`, `{"name":"r#"}`, `]}}`},
	{"args", `{"name":"c","image":"i","args":[`, `"#"`, `]}`},
	{"capabilities", `{"name":"c","image":"i","securityContext":{"capabilities":{"add":[`, `"C#"`, `]}}}`},
}

// specLists are other fields of a PodSpec.
var specLists = []struct{ name, before, format, after string }{
	{"volumes", `"volumes":[`, `{"name":"v#","secret":{"secretName":"s1"}}`, `]`},
	{"host volumes", `"volumes":[`, `{"name":"v#","hostPath":{"path":"/"}}`, `]`},
	{"image volumes", `"volumes":[`, `{"name":"v#","image":{"reference":"i"}}`, `]`},
	{"projected sources", `"volumes":[{"name":"v","projected":{"sources":[`, `{"configMap":{"name":"c#"}}`, `]}}]`},
	{"tolerations", `"tolerations":[`, `{"key":"k#","operator":"Equal","value":"v","effect":"NoSchedule"}`, `]`},
	{"same tolerations", `"tolerations":[`, `{"key":"k","operator":"Equal","value":"v","effect":"NoExecute","tolerationSeconds":#}`, `]`},
	{"odd tolerations", `"tolerations":[`, `{"key":"k#","operator":"Gt","value":"1"}`, `]`},
	{"tolerations of resources", `"tolerations":[`,
		`{"key":"example.com/r#","operator":"Exists","effect":"NoSchedule","tolerationSeconds":1}`, `]`},
	{"nodeSelector", `"nodeSelector":{`, `"k#":"v"`, `}`},
	{"overhead", `"overhead":{`, `"example.com/r#":"1"`, `}`},
	{"imagePullSecrets", `"imagePullSecrets":[`, `{"name":"s1","x":#}`, `]`},
	{"topology spread", `"topologySpreadConstraints":[`, `{"maxSkew":1,"topologyKey":"k#","whenUnsatisfiable":"DoNotSchedule"}`, `]`},
	{"anti-affinity", `"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[`,
		`{"topologyKey":"kubernetes.io/hostname","x":#}`, `]}}`},
	{"affinity", `"affinity":{"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[`,
		`{"weight":1,"podAffinityTerm":{"topologyKey":"k#"}}`, `]}}`},
	{"sysctls", `"securityContext":{"sysctls":[`, `{"name":"kernel.s#","value":"1"}`, `]}`},
	{"groups", `"securityContext":{"supplementalGroups":[`, `#`, `]}`},
	{"host aliases", `"hostAliases":[`, `{"ip":"10.0.0.#"}`, `]`},
	{"readiness gates", `"readinessGates":[`, `{"conditionType":"c#"}`, `]`},
	{"resource claims", `"resourceClaims":[`, `{"name":"r#","resourceClaimName":"c"}`, `]`},
	{"scheduling gates", `"schedulingGates":[`, `{"name":"g#"}`, `]`},
	{"pod resources", `"resources":{"requests":{`, `"example.com/r#":"1"`, `}}`},
}

// metadataLists are fields of the metadata of every object.
var metadataLists = []struct{ name, before, format, after string }{
	{"labels", `"labels":{`, `"node-restriction.kubernetes.io/l#":"v"`, `}`},
	{"annotations", `"annotations":{`, `"container.apparmor.security.beta.kubernetes.io/c#":"unconfined"`, `}`},
	{"finalizers", `"finalizers":[`, `"example.com/f#"`, `]`},
	{"owner references", `"ownerReferences":[`,
		`{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o#","uid":"u#","blockOwnerDeletion":true}`, `]`},
	{"equal owner references", `"ownerReferences":[`,
		`{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"u#","blockOwnerDeletion":true}`, `]`},
	{"managed fields", `"managedFields":[`, `{"manager":"m#","operation":"Update"}`, `]`},
}

// shapes returns all shapes: each list in a creation and in an update that changes all of
// it, and the lists of otherLists also in updates that add and remove them.
func shapes() []shape {
	var all []shape
	addChanged := func(name, resource, extra string, object func(n int) string) {
		other := strings.NewReplacer(`"v"`, `"w"`, `"s1"`, `"s2"`, `true`, `false`, `"i"`, `"j"`, `registry.`, `other.`)
		all = append(all,
			shape{name, resource, codec.Create, func(n int) (string, string) { return object(n), "null" }, extra},
			shape{name + ", changed", resource, codec.Update, func(n int) (string, string) {
				text := object(n)
				return text, other.Replace(text)
			}, extra})
	}
	add := func(name, resource, extra string, object func(n int) string) {
		addChanged(name, resource, extra, object)
		all = append(all,
			shape{name + ", added", resource, codec.Update, func(n int) (string, string) { return object(n), object(0) }, extra},
			shape{name + ", removed", resource, codec.Update, func(n int) (string, string) { return object(0), object(n) }, extra})
	}
	for _, l := range podLists {
		for _, field := range podspec.ContainerLists {
			rest := oneContainer
			if field == "containers" {
				rest = ""
			}
			addChanged(field+": "+l.name, "v1/pods", "", func(n int) string {
				if n == 0 {
					return pod("", oneContainer)
				}
				return pod("", `"`+field+`":[`+l.before+times(n, l.format)+l.after+`]`+before(rest))
			})
		}
	}
	for _, l := range specLists {
		addChanged(l.name, "v1/pods", "", func(n int) string { return pod("", l.before+times(n, l.format)+l.after+","+oneContainer) })
	}
	for _, l := range metadataLists {
		metadata := func(n int) string { return l.before + times(n, l.format) + l.after }
		add("Pod's "+l.name, "v1/pods", "", func(n int) string { return pod(metadata(n), oneContainer) })
		add("Node's "+l.name, "v1/nodes", `"name":"n1",`, func(n int) string { return `{"metadata":{"name":"n1",` + metadata(n) + `}}` })
		add("Namespace's "+l.name, "v1/namespaces", "", func(n int) string { return `{"metadata":{"name":"name",` + metadata(n) + `}}` })
	}
	for _, l := range otherLists {
		add(l.name, l.resource, l.extra, func(n int) string { return l.before + times(n, l.format) + l.after })
	}
	for _, p := range pairs {
		addChanged(p.name, "v1/pods", "", func(n int) string { return pod("", p.spec(max(n, 1))) })
	}
	return all
}
