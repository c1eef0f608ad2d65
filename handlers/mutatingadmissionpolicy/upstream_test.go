package mutatingadmissionpolicy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// chainOf returns the plugin with a policy for all objects with these mutations.
func chainOf(t testing.TB, mutations string) (*admission.Chain, error) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}}
	state, err := cluster.New(cluster.Options{Objects: []runtime.Object{namespace}})
	if err != nil {
		t.Fatal(err)
	}
	plugin := Plugin()
	if err := state.Follow(t.Context(), plugin.Needs...); err != nil {
		t.Fatal(err)
	}
	enabled := map[string]admission.Enabled{plugin.Name: {Manifests: []admission.File{{Name: "policy.json",
		Content: []byte(manifest(mutations))}}}}
	return admission.NewChain([]admission.Plugin{plugin}, enabled, state, nil)
}

// manifest returns a policy for all objects with these mutations, and its binding.
func manifest(mutations string) string {
	return `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy",
		"metadata":{"name":"p"},"spec":{"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":["*"],
		"apiVersions":["*"],"operations":["CREATE","UPDATE"],"resources":["*/*"]}]},"mutations":` + mutations + `}},
		{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding",
		"metadata":{"name":"b"},"spec":{"policyName":"p"}}]}`
}

// mutationsOf returns mutations of one kind.
func mutationsOf(t testing.TB, patchType string, expressions ...string) string {
	t.Helper()
	var all []map[string]any
	for _, expression := range expressions {
		name := strings.ToLower(patchType[:1]) + patchType[1:]
		if patchType == "JSONPatch" {
			name = "jsonPatch"
		}
		all = append(all, map[string]any{"patchType": patchType, name: map[string]string{"expression": expression}})
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// check mutates an object. want is the changed object, or part of the message of a denial or
// of a configuration error.
func check(t *testing.T, patchType, expression, resource, kind, object, want string) {
	t.Helper()
	chain, err := chainOf(t, mutationsOf(t, patchType, expression))
	var got string
	if err != nil {
		got = err.Error()
	} else {
		body := admissiontest.Body(codec.Create, resource, object)
		body = []byte(strings.Replace(string(body), `"request":{`, `"request":{"kind":`+kind+`,`, 1))
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(body); err != nil {
			t.Fatal(err)
		}
		if _, err := chain.Review(t.Context(), review, admission.Mutate); err != nil {
			t.Fatal(err)
		}
		got = review.Response.Status.Message
		if review.Response.Allowed {
			got = string(review.Object.Root().AppendJSON(nil))
		}
	}
	if strings.HasPrefix(want, "{") && strings.HasPrefix(got, "{") {
		if !admissiontest.EqualJSON(t, []byte(got), []byte(want)) {
			t.Errorf("%s of %s\ngot  %s\nwant %s", expression, object, got, want)
		}
	} else if strings.HasPrefix(want, "{") || !strings.Contains(got, want) {
		t.Errorf("%s of %s\ngot  %s\nwant %s", expression, object, got, want)
	}
}

const deploymentKind = `{"group":"apps","version":"v1","kind":"Deployment"}`

// TestJSONPatchUpstream has the cases of upstream's patch/json_patch_test.go.
func TestJSONPatchUpstream(t *testing.T) {
	f := func(expression, object, want string) {
		t.Helper()
		check(t, "JSONPatch", expression, "apps/v1/deployments", deploymentKind, object, want)
	}
	labels := func(all string) string { return `{"metadata":{"labels":` + all + `}}` }
	containers := func(all string) string { return `{"spec":{"template":{"spec":{"containers":` + all + `}}}}` }
	op := func(op, path, value string) string {
		return fmt.Sprintf("[JSONPatch{op: %q, path: %q, value: %s}]", op, path, value)
	}
	from := func(op, from, path string) string {
		return fmt.Sprintf("[JSONPatch{op: %q, from: %q, path: %q}]", op, from, path)
	}
	const each = "/spec/template/spec/containers/"

	f(`[JSONPatch{op: "test", path: "/spec/replicas", value: 100}, JSONPatch{op: "replace", path: "/spec/replicas", value: 3}]`,
		`{"spec":{"replicas":1}}`, `{"spec":{"replicas":1}}`)
	f(`[JSONPatch{op: "test", path: "/spec/replicas", value: 1}, JSONPatch{op: "replace", path: "/spec/replicas", value: 3}]`,
		`{"spec":{"replicas":1}}`, `{"spec":{"replicas":3}}`)
	f(`[JSONPatch{op: "remove", path: "/spec/replicas"}]`, `{"spec":{"replicas":1}}`, `{"spec":{}}`)
	f(`[JSONPatch{op: "remove", path: "/metadata/labels/y"}]`, labels(`{"x":"1","y":"1"}`), labels(`{"x":"1"}`))
	f(`[JSONPatch{op: "remove", path: "/spec/template/spec/containers/1"}]`, containers(`[{"name":"a"},{"name":"b"},{"name":"c"}]`),
		containers(`[{"name":"a"},{"name":"c"}]`))
	f(from("copy", "/metadata/labels/x", "/metadata/labels/y"), labels(`{"x":"1"}`), labels(`{"x":"1","y":"1"}`))
	f(from("copy", each+"0", each+"-"), containers(`[{"name":"a"},{"name":"b"}]`), containers(`[{"name":"a"},{"name":"b"},{"name":"a"}]`))
	f(from("move", "/metadata/labels/x", "/metadata/labels/y"), labels(`{"x":"1"}`), labels(`{"y":"1"}`))
	f(from("move", each+"0", each+"-"), containers(`[{"name":"a"},{"name":"b"}]`), containers(`[{"name":"b"},{"name":"a"}]`))
	f(op("add", "/metadata/labels/x", `"2"`), labels(`{"y":"1"}`), labels(`{"y":"1","x":"2"}`))
	f(op("add", "/metadata/labels", `{"y": "2"}`), `{"metadata":{}}`, labels(`{"y":"2"}`))
	f(op("add", "/metadata/labels", `{"y": "2"}`), labels(`{"x":"1"}`), labels(`{"y":"2"}`))
	f(op("add", each+"0", `{"name": "x"}`), containers(`[{"name":"a"}]`), containers(`[{"name":"x"},{"name":"a"}]`))
	f(op("add", each+"-", `{"name": "x"}`), containers(`[{"name":"a"}]`), containers(`[{"name":"a"},{"name":"x"}]`))
	f(op("replace", "/metadata/labels/x", `"2"`), labels(`{"y":"1","x":"1"}`), labels(`{"y":"1","x":"2"}`))
	f(op("replace", "/metadata/labels", `{"y": "2"}`), `{"metadata":{}}`, labels(`{"y":"2"}`))
	f(op("replace", "/metadata/labels", `{"y": "2"}`), labels(`{"x":"1"}`), labels(`{"y":"2"}`))
	f(op("replace", each+"0", `{"name": "x"}`), containers(`[{"name":"a"}]`), containers(`[{"name":"x"}]`))
	f(op("add", "/spec", "Object.spec{selector: Object.spec.selector{}, replicas: 10}"), `{"spec":{}}`,
		`{"spec":{"selector":{},"replicas":10}}`)
	f(op("add", "/metadata/labels", `{"op": JSONPatch{op: "o"}.op, "path": JSONPatch{path: "p"}.path, "from": JSONPatch{from: `+
		`"f"}.from, "value": string(JSONPatch{value: "v"}.value)}`),
		labels("{}"), labels(`{"op":"o","path":"p","from":"f","value":"v"}`))
	f(op("add", "/metadata/labels", `{"op": string(has(JSONPatch{op: "o"}.op)), "value": string(has(JSONPatch{value: "v"}.value)), `+
		`"no-op": string(has(JSONPatch{}.op)), "no-value": string(has(JSONPatch{}.value))}`),
		labels("{}"), labels(`{"op":"true","value":"true","no-op":"false","no-value":"false"}`))
	f(op("add", "/metadata/labels",
		`{"empty": string(JSONPatch{} == JSONPatch{}), "op": string(JSONPatch{op: "a"} == JSONPatch{op: "b"}),`+
			` "value": string(JSONPatch{value: 1} == JSONPatch{value: "1"}), "same": string(JSONPatch{from: "a", value: 1} == `+
			`JSONPatch{from: "a", value: 1}),`+
			` "path": string(JSONPatch{path: "x"} == JSONPatch{}), "none": string(JSONPatch{value: 1} == JSONPatch{})}`),
		labels("{}"), labels(`{"empty":"true","op":"false","value":"false","same":"true","path":"false","none":"false"}`))
	f(`[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("k8s.io/x~y"), value: "1"}]`, labels("{}"),
		labels(`{"k8s.io/x~y":"1"}`))
	f(op("add", each+"-", `Object.spec.template.spec.containers{name: "x", ports: `+
		`[Object.spec.template.spec.containers.ports{containerPort: 8080}]}`),
		containers(`[]`), containers(`[{"name":"x","ports":[{"containerPort":8080}]}]`))
	f(op("add", each+"1", `Object.spec.template.spec.containers{name: "sidecar", command: ["sh", "-c", "sleep 3600"],
		resources: Object.spec.template.spec.containers.resources{limits: {"cpu": "200m", "memory": "256Mi"}}}`),
		containers(`[{"name":"a"}]`), containers(`[{"name":"a"},{"name":"sidecar","command":["sh","-c","sleep 3600"],`+
			`"resources":{"limits":{"cpu":"200m","memory":"256Mi"}}}]`))
	// k8s.io/apiserver v0.36.3 panics on an Object in a list or a map.
	f(op("add", "/spec/template/spec/initContainers",
		`[Object.spec.template.spec.initContainers{name: "init-1", command: ["echo", "init1"]},
		Object.spec.template.spec.initContainers{name: "init-2", command: ["echo", "init2"]}]`), `{"spec":{"template":{"spec":{}}}}`,
		`{"spec":{"template":{"spec":{"initContainers":[{"name":"init-1","command":["echo","init1"]},{"name":"init-2",`+
			`"command":["echo","init2"]}]}}}}`)
	f(op("add", "/metadata/labels", `{"a": Object.x{b: "c"}}`), labels("{}"), labels(`{"a":{"b":"c"}}`))

	f(op("add", each+"-", `Object.spec.template.spec.containers{name: "x", ports: `+
		`[Object.spec.template.spec.containers.portsZ{containerPort: 8080}]}`), containers(`[]`),
		`type mismatch: unexpected type name "Object.spec.template.spec.containers.portsZ", expected `+
			`"Object.spec.template.spec.containers.ports", which matches field name path from root Object type`)
	f(op("replace", each+"-", `{"name": "x"}`), containers(`[{"name":"a"}]`),
		"JSON Patch: replace operation does not apply: doc is missing key: /spec/template/spec/containers/-: missing value")
	f(op("add", "/metadata/labels/x", "1.0 / 0.0"), labels("{}"),
		"JSONPath valueExpression evaluated to a type that could not marshal to JSON")
	// In-tree, the library panics on such an operation.
	f(`[JSONPatch{op: "replace", path: ""}]`, labels("{}"), "JSON Patch: a value is missing or of a wrong kind in an operation")
	f(`[JSONPatch{op: "nope", path: "/a"}, JSONPatch{op: "replace", path: ""}]`, labels("{}"), "JSON Patch: Unexpected kind: nope")
	f(`[JSONPatch{op: "test", path: "/metadata/labels", value: {"a": "b"}}, JSONPatch{op: "replace", path: ""}]`, labels("{}"),
		labels("{}"))
	f(`[JSONPatch{op: "add", path: "/metadata/labels/\u0001", value: "a"}]`, labels("{}"),
		"add operation failed to decode path") // as upstream quotes such a path, it is not valid JSON
}

// TestApplyConfigurationUpstream has the cases of upstream's patch/smd_test.go.
func TestApplyConfigurationUpstream(t *testing.T) {
	f := func(expression, object, want string) {
		t.Helper()
		check(t, "ApplyConfiguration", expression, "apps/v1/deployments", deploymentKind, object, want)
	}
	// All objects from kube-apiserver have these fields.
	apply := func(spec string) string { return `{"apiVersion":"apps/v1","kind":"Deployment","spec":` + spec + `}` }
	pods := func(spec string) string { return apply(`{"template":{"spec":` + spec + `}}`) }
	in := func(spec string) string {
		return "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{" + spec + "}}}}"
	}
	const container = "Object.spec.template.spec.containers"

	f(in(`volumes: [Object.spec.template.spec.volumes{name: "y"}]`), pods(`{"volumes":[{"name":"x"}]}`),
		pods(`{"volumes":[{"name":"x"},{"name":"y"}]}`))
	f(in(`volumes: [Object.spec.template.spec.volumes{name: "y", hostPath: Object.spec.template.spec.volumes.hostPath{path: "a"}}]`),
		pods(`{"volumes":[{"name":"x"},{"name":"y"}]}`), pods(`{"volumes":[{"name":"x"},{"name":"y","hostPath":{"path":"a"}}]}`))
	f(`Object{spec: Object.spec{replicas: object.spec.replicas % 2 == 0?object.spec.replicas + 1:object.spec.replicas}}`,
		apply(`{"replicas":2}`), apply(`{"replicas":3}`))
	f(`Object{spec: Object.spec{replicas: 1, template: Object.spec.template{
		metadata: Object.spec.template.metadata{labels: {"app": "nginx"}},
		spec: Object.spec.template.spec{containers: [`+container+`{name: "nginx", ports: [`+container+`.ports{containerPort: 80}],
		resources: `+container+`.resources{limits: {"cpu": "128M"}}}]}}}}`, apply(`{}`),
		apply(`{"replicas":1,"template":{"metadata":{"labels":{"app":"nginx"}},"spec":{"containers":[
		{"name":"nginx","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"128M"}}}]}}}`))
	f(`Object{spec: Object.spec{replicas: 3}}`,
		apply(`{"template":{"spec":{"containers":[{"name":"nginx","env":[{"name":"test","value":"a"},{"name":"test","value":"b"}]}]}}}`),
		apply(`{"replicas":3,"template":{"spec":{"containers":[{"name":"nginx","env":[{"name":"test","value":"a"},{"name":"test",`+
			`"value":"b"}]}]}}}`))
	f(in(`containers: [`+container+`{name: "nginx", env: [`+container+`.env{name: "test", value: "c"}]}]`),
		pods(`{"containers":[{"name":"nginx","env":[{"name":"test","value":"a"},{"name":"test","value":"b"},{"name":"foo",`+
			`"value":"bar"}]}]}`),
		pods(`{"containers":[{"name":"nginx","env":[{"name":"test","value":"c"},{"name":"foo","value":"bar"}]}]}`))

	f(`Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {"l": "v"}}}}`, apply(`{"replicas":1}`),
		"error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector")
	f(`Object{spec: Object.specx{replicas: 1}}`, apply(`{}`),
		`type mismatch: unexpected type name "Object.specx", expected "Object.spec", which matches field name path from root Object type`)
	f(`Object{spec: Object.spec{replicasx: 1}}`, apply(`{}`),
		"error applying patch: failed to convert patch object to typed object: .spec.replicasx: field not declared in schema")
	f(`"I'm a teapot!"`, apply(`{}`), "must evaluate to Object but got string")
	f(`Object.spec.metadata{}`, apply(`{}`), "must evaluate to Object but got Object.spec.metadata")
}

// TestApplyConfigurationCustom merges an object without a known schema.
func TestApplyConfigurationCustom(t *testing.T) {
	f := func(expression, object, want string) {
		t.Helper()
		check(t, "ApplyConfiguration", expression, "example.com/v1/shops",
			`{"group":"example.com","version":"v1","kind":"Shop"}`, object, want)
	}
	const head = `{"apiVersion":"example.com/v1","kind":"Shop","spec":`
	f(`Object{spec: Object.spec{a: Object.spec.a{b: 1}}}`, head+`{"a":{"c":2.5},"d":[1]}}`, head+`{"a":{"b":1,"c":2.5},"d":[1]}}`)
	f(`Object{spec: Object.spec{d: [2]}}`, head+`{"d":[1],"e":{}}}`, head+`{"d":[2],"e":{}}}`)
}

// TestApplyConfigurationRequests merges kinds that are requests, for which kube-apiserver
// has no schemas.
func TestApplyConfigurationRequests(t *testing.T) {
	const labelled = `Object{metadata: Object.metadata{labels: {"a": "b"}}}`
	check(t, "ApplyConfiguration", labelled, "apps/v1/deployments", `{"group":"autoscaling","version":"v1","kind":"Scale"}`,
		`{"spec":{"replicas":1}}`,
		"error applying patch: failed to convert patch object to typed object: no corresponding type for autoscaling/v1, Kind=Scale")
	check(t, "ApplyConfiguration", labelled, "v1/pods", `{"group":"","version":"v1","kind":"PodExecOptions"}`, `{"command":["ls"]}`,
		"error applying patch: failed to convert patch object to typed object: no corresponding type for /v1, Kind=PodExecOptions")
	check(t, "ApplyConfiguration", labelled, "v1/pods", `{"group":"","version":"v1","kind":"Binding"}`,
		`{"apiVersion":"v1","kind":"Binding","metadata":{}}`,
		`{"apiVersion":"v1","kind":"Binding","metadata":{"labels":{"a":"b"}}}`)
	check(t, "JSONPatch", `[JSONPatch{op: "replace", path: "/spec/replicas", value: 2}]`, "apps/v1/deployments",
		`{"group":"autoscaling","version":"v1","kind":"Scale"}`, `{"spec":{"replicas":1}}`, `{"spec":{"replicas":2}}`)
}
