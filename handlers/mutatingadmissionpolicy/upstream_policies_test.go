package mutatingadmissionpolicy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// A mutating is a policy of a test. Its mutations are JSONPatches if they begin with [,
// otherwise ApplyConfigurations.
type mutating struct {
	reinvoked bool   // reinvocationPolicy IfNeeded
	more      string // fields of its spec, each with a comma after it
	paramRef  string // of its binding
	mutations []string
}

// mutate returns a Deployment after the policies p0, p1 and so on, or the message of the
// denial. The ConfigMap cm1 in the namespace default has the data {"key": "10"}, and
// everybody may do everything.
func mutate(t *testing.T, object string, policies ...mutating) string {
	t.Helper()
	var documents []string
	for i, p := range policies {
		all := make([]string, len(p.mutations))
		for m, text := range p.mutations {
			patchType := "ApplyConfiguration"
			if strings.HasPrefix(text, "[") {
				patchType = "JSONPatch"
			}
			all[m] = strings.Trim(mutationsOf(t, patchType, text), "[]")
		}
		reinvocation := "Never"
		if p.reinvoked {
			reinvocation = "IfNeeded"
		}
		documents = append(documents, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy",`+
			`"metadata":{"name":"p%d"},`+
			`"spec":{"reinvocationPolicy":%q,%s"matchConstraints":{"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},`+
			`"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["*"],"resources":["deployments"]}]},`+
			`"mutations":[%s]}}`,
			i, reinvocation, p.more, strings.Join(all, ",")),
			fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding",`+
				`"metadata":{"name":"b%d"},`+
				`"spec":{"policyName":"p%[1]d"%s}}`, i, p.paramRef))
	}
	authorize := func(_ context.Context, r *authorizationv1.SubjectAccessReview) { r.Status.Allowed = true }
	state, err := cluster.New(cluster.Options{Authorize: authorize,
		Objects: []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}}}})
	plugin := Plugin()
	if err == nil {
		err = state.Follow(t.Context(), plugin.Needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	content := `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(documents, ",") + `]}`
	configMap := admission.ParamObject{Namespace: "default", Name: "cm1",
		JSON: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"cm1","namespace":"default"},"data":{"key":"10"}}`)}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, map[string]admission.Enabled{plugin.Name: {
		Manifests: []admission.File{{Name: "policies.json", Content: []byte(content), FromAPI: true}},
		Params: []admission.ParamKind{{APIVersion: "v1", Kind: "ConfigMap", Namespaced: true,
			Objects: []admission.ParamObject{configMap}}},
	}}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	review := codec.Acquire()
	defer review.Release()
	body := admissiontest.Body(codec.Create, "apps/v1/deployments", object)
	if err := review.Decode([]byte(strings.Replace(string(body), `"request":{`, `"request":{"kind":`+deploymentKind+`,`, 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(t.Context(), review, admission.Mutate); err != nil {
		t.Fatal(err)
	}
	if !review.Response.Allowed {
		return strings.Clone(review.Response.Status.Message)
	}
	return string(review.Object.Root().AppendJSON(nil))
}

// deployment returns a Deployment with these labels and this spec, both as JSON.
func deployment(labels, spec string) string {
	if labels != "" {
		labels = `"labels":` + labels
	}
	return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{%s},"spec":%s}`, labels, spec)
}

// sameOrSays compares an object, or looks for the text in a message.
func sameOrSays(t *testing.T, got, want string) bool {
	t.Helper()
	if json.Valid([]byte(want)) && json.Valid([]byte(got)) {
		return admissiontest.EqualJSON(t, []byte(got), []byte(want))
	}
	return !json.Valid([]byte(want)) && !json.Valid([]byte(got)) && strings.Contains(got, want)
}

// TestCompilationUpstream has the cases of upstream's compilation_test.go.
func TestCompilationUpstream(t *testing.T) {
	f := func(object, want string, p mutating) {
		t.Helper()
		if got := mutate(t, object, p); !sameOrSays(t, got, want) {
			t.Errorf("%+v\ngot  %s\nwant %s", p, got, want)
		}
	}
	const apply100, patch10 = "Object{spec: Object.spec{replicas: object.spec.replicas + 100}}",
		`[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas + 10}]`
	replicas := func(n int) string { return deployment("", fmt.Sprintf(`{"replicas":%d}`, n)) }
	value := func(expression string) mutating {
		return mutating{mutations: []string{`[JSONPatch{op: "replace", path: "/spec/replicas", value: ` + expression + `}]`}}
	}
	labels := func(expression string) mutating {
		return mutating{mutations: []string{`[JSONPatch{op: "add", path: "/metadata/labels", value: ` + expression + `}]`}}
	}
	one := replicas(1)
	f(one, replicas(111), mutating{mutations: []string{apply100, patch10}})
	f(one, replicas(111), mutating{mutations: []string{patch10, apply100}})
	const desired, list = `"variables":[{"name":"desired","expression":"10"}],`,
		`"variables":[{"name":"list","expression":"[0,1,2,3,4,5,6,7,8,9]"}],`
	f(one, replicas(11), mutating{more: desired,
		mutations: []string{`[JSONPatch{op: "replace", path: "/spec/replicas", value: variables.desired + 1}]`}})
	f(one, replicas(11), mutating{more: desired, mutations: []string{"Object{spec: Object.spec{replicas: variables.desired + 1}}"}})
	const params, cm1 = `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`,
		`,"paramRef":{"name":"cm1","namespace":"default","parameterNotFoundAction":"Deny"}`
	f(one, replicas(10), mutating{more: params, paramRef: cm1,
		mutations: []string{"Object{spec: Object.spec{replicas: int(params.data['key'])}}"}})
	loops := `"0123456789" == "0123456789"`
	for _, x := range []string{"x5", "x5", "x4", "x3", "x2", "x1"} {
		loops = fmt.Sprintf("variables.list.all(%s, %s)", x, loops)
	}
	const exceeded = "operation cancelled: actual cost limit exceeded"
	f(one, exceeded, mutating{more: list, mutations: []string{`[JSONPatch{op: "replace", path: "/spec/replicas", value: ` + loops +
		`? 1 : 0}]`}})
	f(one, exceeded, mutating{more: list, mutations: []string{"Object{spec: Object.spec{replicas: " + loops + "? 1 : 0}}"}})
	f(one, replicas(10), value("request.kind.group == 'apps' && request.kind.version == 'v1' && "+
		"request.kind.kind == 'Deployment' ? 10 : 0"))
	f(one, replicas(10), value("namespaceObject.metadata.name == 'namespace' ? 10 : 0"))
	f(one, replicas(10), value("authorizer.group('').resource('endpoints').check('create').allowed() ? 10 : 0"))
	labelled := deployment("{}", "{}")
	f(labelled, deployment(`{"value":"fieldValue"}`, "{}"), labels(`{"value": Object{field: "fieldValue"}.field}`))
	f(labelled, deployment(`{"field":"true","field-unset":"false"}`, "{}"),
		labels(`{"field": string(has(Object{field: "fieldValue"}.field)), "field-unset": string(has(Object{}.field))}`))
	f(labelled, deployment(`{"empty":"true","same":"true","different":"false"}`, "{}"), labels(`{"empty": string(Object{} == Object{}), `+
		`"same": string(Object{field: "x"} == Object{field: "x"}), "different": string(Object{field: "x"} == Object{field: "y"})}`))
	// The names of types are not checked where the Object is a value of a patch: upstream says that it should be.
	f(deployment("", "{}"), replicas(1), mutating{mutations: []string{`[JSONPatch{op: "add", path: "/spec", value: ` +
		`Object.invalid{replicas: 1}}]`}})
}

// TestDispatcherUpstream has the cases of upstream's dispatcher_test.go, and those of
// plugin_test.go about merging.
func TestDispatcherUpstream(t *testing.T) {
	f := func(object, want string, policies ...mutating) {
		t.Helper()
		if got := mutate(t, object, policies...); !sameOrSays(t, got, want) {
			t.Errorf("%+v\ngot  %s\nwant %s", policies, got, want)
		}
	}
	const volume = `"template":{"spec":{"volumes":[{"name":"x"}]}}`
	before := deployment("", `{"replicas":1,`+volume+`}`)
	replicas := func(n int) string { return deployment("", fmt.Sprintf(`{"replicas":%d,%s}`, n, volume)) }
	f(before, replicas(101), mutating{mutations: []string{"Object{spec: Object.spec{replicas: object.spec.replicas + 100}}"}})
	f(before, replicas(11), mutating{
		more:      `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`,
		paramRef:  `,"paramRef":{"name":"cm1","namespace":"default","parameterNotFoundAction":"Deny"}`,
		mutations: []string{"Object{spec: Object.spec{replicas: object.spec.replicas + int(params.data['key'])}}"},
	})

	label := func(more, name, value string) mutating {
		return mutating{more: more, mutations: []string{fmt.Sprintf("Object{metadata: Object.metadata{labels: {%q: %s}}}", name, value)}}
	}
	plain := deployment("", "{"+volume+"}")
	labels := func(all string) string { return deployment(all, "{"+volume+"}") }
	const count = `string(int(object.?metadata.labels["count"].orValue("1")) + 1)`
	f(plain, labels(`{"policy1":"2","policy2":"2"}`), label("", "policy1", count), label("", "policy2", count))
	const production = `"matchConditions":[{"name":"prodonly","expression":"object.?metadata.labels[\"environment\"].orValue(\"\") ` +
		`== \"production\""}],`
	f(plain, labels(`{"environment":"production","policy1invoked":"true"}`), label("", "environment", `"production"`),
		label(production, "policy1invoked", `"true"`))
	f(plain, labels(`{"environment":"production"}`), label(production, "policy1invoked", `"true"`),
		label("", "environment", `"production"`))

	// plugin_test.go: annotations and other fields, and an element of a list that has keys.
	f(plain, deployment(`{"foo":"bar"}`, `{`+volume+`,"paused":true}`), mutating{mutations: []string{
		`Object{metadata: Object.metadata{labels: {"foo": "bar"}}, spec: Object.spec{paused: true}}`}})
	f(deployment("", `{"template":{"spec":{"initContainers":[{"name":"init-container","image":"image"}]}}}`),
		deployment(`{"foo":"bar"}`, `{"template":{"spec":{"initContainers":[{"name":"init-container","image":"image"},`+
			`{"name":"injected-init-container","image":"injected-image"}]}}}`),
		mutating{mutations: []string{`Object{metadata: Object.metadata{labels: {"foo": "bar"}}, spec: Object.spec{template: ` +
			`Object.spec.template{spec: Object.spec.template.spec{` +
			`initContainers: [Object.spec.template.spec.initContainers{name: "injected-init-container", image: "injected-image"}]}}}}`}})
	// patch/typeconverter_test.go: a conversion loses no fields.
	const containers = `{"template":{"spec":{"containers":[{"name":"a"},{"name":"x","ports":[{"containerPort":8080}]}]}}}`
	f(deployment("", containers), deployment("", containers), mutating{mutations: []string{"Object{}"}})
}

// TestReinvocationUpstream has the sequences of upstream's reinvocationcontext_test.go:
// each policy appends its letter to a label, under a condition.
func TestReinvocationUpstream(t *testing.T) {
	letter := func(reinvoked bool, letter, condition string) mutating {
		return mutating{reinvoked: reinvoked, mutations: []string{fmt.Sprintf(`[JSONPatch{op: "replace", path: "/metadata/labels/log", `+
			`value: object.metadata.labels.log + (%s ? %q : "")}]`, condition, letter)}}
	}
	f := func(want string, policies ...mutating) {
		t.Helper()
		want = deployment(fmt.Sprintf(`{"log":%q}`, want), "{}")
		if got := mutate(t, deployment(`{"log":""}`, "{}"), policies...); !sameOrSays(t, got, want) {
			t.Errorf("%+v\ngot  %s\nwant %s", policies, got, want)
		}
	}
	const log = "object.metadata.labels.log"
	// The third has changed nothing, and runs again because the first two change the object again.
	f("ababc", letter(true, "a", "true"), letter(true, "b", "true"), letter(true, "c", log+` == "abab"`))
	// The first two change the object; when they run again, they change nothing.
	f("ab", letter(true, "a", log+` == ""`), letter(true, "b", log+` == "a"`), letter(true, "c", "false"))
	f("", letter(true, "a", "false"), letter(true, "b", "false"), letter(true, "c", "false"))
	f("abb", letter(false, "a", "true"), letter(true, "b", "true"))
	f("abca", letter(true, "a", "true"), letter(false, "b", "true"), letter(false, "c", "true"))
}
