package twins

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/policy/expressions"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// paths are the paths at which objects are created, by kind.
var paths = map[schema.GroupVersionKind]string{
	{Version: "v1", Kind: "Pod"}:                                 "/api/v1/namespaces/%s/pods",
	{Version: "v1", Kind: "Service"}:                             "/api/v1/namespaces/%s/services",
	{Version: "v1", Kind: "ConfigMap"}:                           "/api/v1/namespaces/%s/configmaps",
	{Version: "v1", Kind: "PersistentVolumeClaim"}:               "/api/v1/namespaces/%s/persistentvolumeclaims",
	{Version: "v1", Kind: "Secret"}:                              "/api/v1/namespaces/%s/secrets",
	{Version: "v1", Kind: "ServiceAccount"}:                      "/api/v1/namespaces/%s/serviceaccounts",
	{Group: "apps", Version: "v1", Kind: "Deployment"}:           "/apis/apps/v1/namespaces/%s/deployments",
	{Group: "apps", Version: "v1", Kind: "DaemonSet"}:            "/apis/apps/v1/namespaces/%s/daemonsets",
	{Group: "apps", Version: "v1", Kind: "StatefulSet"}:          "/apis/apps/v1/namespaces/%s/statefulsets",
	{Group: "batch", Version: "v1", Kind: "Job"}:                 "/apis/batch/v1/namespaces/%s/jobs",
	{Group: "batch", Version: "v1", Kind: "CronJob"}:             "/apis/batch/v1/namespaces/%s/cronjobs",
	{Group: "example.com", Version: "v1", Kind: "Widget"}:        "/apis/example.com/v1/namespaces/%s/widgets",
	{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}: "/apis/networking.k8s.io/v1/namespaces/%s/ingresses",
	{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}: "/apis/autoscaling/v2/namespaces/%s/" +
		"horizontalpodautoscalers",
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}: "/apis/policy/v1/namespaces/%s/poddisruptionbudgets",
	{Group: rbacv1.GroupName, Version: "v1", Kind: "Role"}:        "/apis/" + rbacv1.GroupName + "/v1/namespaces/%s/roles",
	{Group: rbacv1.GroupName, Version: "v1", Kind: "RoleBinding"}: "/apis/" + rbacv1.GroupName + "/v1/namespaces/%s/rolebindings",
}

// post is the request that creates an object.
func post(t *testing.T, namespace string, object map[string]any) policyRequest {
	t.Helper()
	u := unstructured.Unstructured{Object: object}
	path, ok := paths[u.GroupVersionKind()]
	if !ok {
		t.Fatalf("no path for %s", u.GroupVersionKind())
	}
	u.SetNamespace("")
	body, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return policyRequest{Send: "POST " + fmt.Sprintf(path, namespace), Body: body}
}

// notCreated are the kinds in suites of shipped policies that are not created here: AdmissionReviews, and objects that are
// not namespaced. For these, kube-apiserver would evaluate the policies of all scenarios, in any order.
var notCreated = []string{"AdmissionReview", "ClusterRole", "ClusterRoleBinding", "Namespace"}

// shippedScenarios are every fourth policy of the chart, in e2e-full all, on the namespaced objects of their suites.
func shippedScenarios(t *testing.T) (all []*scenario) {
	t.Helper()
	const dir = "../../deploy/chart/policies"
	suites, err := filepath.Glob(dir + "/*.test.yaml")
	if err != nil || len(suites) < 10 {
		t.Fatalf("got %d suites of shipped policies: %v", len(suites), err)
	}
	for i := 0; i < len(suites); i += tally.Cases(4, 1) {
		file := suites[i]
		own := &scenario{name: "shipped-" + strings.TrimSuffix(filepath.Base(file), ".test.yaml")}
		content, err := os.ReadFile(strings.TrimSuffix(file, ".test.yaml") + ".yaml")
		var policy unstructured.Unstructured
		if err == nil {
			err = yaml.Unmarshal(content, &policy.Object)
		}
		var suite struct {
			Cases []struct{ Object, OldObject map[string]any }
		}
		if err == nil {
			content, err = os.ReadFile(file)
		}
		if err == nil {
			err = yaml.Unmarshal(content, &suite)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		own.Documents = append(own.Documents, policy)
		bindings := []map[string]any{{"validationActions": []any{"Deny", "Audit"}}, {"validationActions": []any{"Warn"}}}
		if policy.GetKind() == "MutatingAdmissionPolicy" {
			bindings = []map[string]any{{}}
		}
		for i, binding := range bindings {
			binding["policyName"] = policy.GetName()
			own.Documents = append(own.Documents, document(policy.GetKind()+"Binding", fmt.Sprintf("%s-%d", own.name, i), binding))
		}
		for i, c := range suite.Cases {
			if kind, _ := c.Object["kind"].(string); slices.Contains(notCreated, kind) {
				continue
			}
			_ = unstructured.SetNestedField(c.Object, fmt.Sprintf("a%d", i), "metadata", "name")
			own.Requests = append(own.Requests, post(t, own.name, c.Object))
		}
		all = append(all, own)
	}
	return all
}

// document returns a policy or a binding.
func document(kind, name string, spec map[string]any) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": policyGroups[0], "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// bases are the objects of generated policies. Those of example.com may have any content.
var bases = []string{
	`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"app":"web"},"annotations":{"note":"x"}},` +
		`"spec":{"containers":[{"name":"c","image":"nginx:1",
		"ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}],"resources":{"limits":{"cpu":"100m"}}},{"name":"d",` +
		`"image":"registry.example.com/d"}],
		"nodeSelector":{"a":"b"},"tolerations":[{"key":"a","operator":"Exists"}],"volumes":[{"name":"v","emptyDir":{}}]}}`,
	`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","labels":{"app":"web"}},"spec":{"replicas":3,` +
		`"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"nginx"}]}}}}`,
	`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","finalizers":["example.com/a"]},"data":{"a":"1","b":"10.0.0.1",` +
		`"c":"ä€😀"},"binaryData":{"d":"YQ=="}}`,
	`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{"app":"web"}},"spec":{"replicas":2,"list":[1,2,3],` +
		`"words":["b","a"],
		"nested":{"a":{"b":{"c":null}}},"float":1.5,"flag":true,"items":[{"name":"a"},{"name":"b"}]},` +
		`"anything":{"time":"2024-01-02T03:04:05Z"}}`,
}

// policyGenerator makes scenarios.
type policyGenerator struct {
	*expressions.Generator
	own    *scenario
	base   string
	object any // base, decoded
}

func pick[T any](g *policyGenerator, all ...T) T { return all[g.IntN(len(all))] }

func generatedScenarios(t *testing.T) (all []*scenario) {
	t.Helper()
	start := seed.Of(t)
	for i := range tally.Cases(20, 400) {
		r := rand.New(rand.NewPCG(start, uint64(i)))
		g := &policyGenerator{own: &scenario{name: fmt.Sprintf("generated-%d", i)}, base: bases[r.IntN(len(bases))]}
		if err := json.Unmarshal([]byte(g.base), &g.object); err != nil {
			t.Fatal(err)
		}
		g.begin(r)
		g.own.NamespaceLabels = map[string]string{"env": pick(g, "prod", "dev")}
		g.given()
		// One of each kind, because kube-apiserver evaluates several in any order.
		g.validating(fmt.Sprintf("v.generated-%d", i))
		if g.IntN(2) == 0 {
			g.mutating(fmt.Sprintf("m.generated-%d", i))
		}
		if err := g.requests(); err != nil {
			t.Fatal(err)
		}
		all = append(all, g.own)
	}
	return all
}

// begin limits expressions to the object.
func (g *policyGenerator) begin(r *rand.Rand) {
	g.Generator = expressions.New(r, map[string]any{"object": g.object, "oldObject": g.object})
}

// paramKinds are the kinds of parameters. ConfigMaps and Limits are namespaced, ClusterLimits are
// cluster-scoped.
var paramKinds = []map[string]any{
	{"apiVersion": "v1", "kind": "ConfigMap"}, {"apiVersion": "example.com/v1", "kind": "Limit"},
	{"apiVersion": "example.com/v1", "kind": "ClusterLimit"},
}

// given adds some parameters to the scenario.
func (g *policyGenerator) given() {
	for _, kind := range paramKinds {
		for n := range g.IntN(2) { // of several, kube-apiserver takes any one first
			u := unstructured.Unstructured{Object: map[string]any{"apiVersion": kind["apiVersion"], "kind": kind["kind"]}}
			u.SetName(fmt.Sprintf("%s-param-%d", g.own.name, n))
			if kind["kind"] != "ClusterLimit" {
				u.SetNamespace(g.own.name)
			}
			u.SetLabels(map[string]string{"home": g.own.name, "n": fmt.Sprint(n)})
			u.Object["data"] = map[string]any{"name": pick(g, "web", "x"), "n": fmt.Sprint(n)}
			g.own.Given = append(g.own.Given, u)
		}
	}
}

// ref returns a reference to parameters.
func (g *policyGenerator) ref(kind map[string]any) map[string]any {
	ref := map[string]any{"parameterNotFoundAction": pick(g, "Allow", "Deny")}
	switch g.IntN(3) {
	case 0:
		ref["name"] = fmt.Sprintf("%s-param-%d", g.own.name, g.IntN(2))
	case 1:
		ref["selector"] = map[string]any{"matchLabels": map[string]any{"home": g.own.name}}
	default:
		ref["selector"] = map[string]any{"matchLabels": map[string]any{"home": g.own.name, "n": "0"}}
	}
	if kind["kind"] != "ClusterLimit" && g.IntN(3) == 0 {
		ref["namespace"] = g.own.name
	}
	return ref
}

// common returns the fields that policies of both kinds have. params is the paramKind.
func (g *policyGenerator) common(operations ...any) (spec, params map[string]any) {
	g.begin(g.Rand)
	match := map[string]any{"matchPolicy": pick(g, "Exact", "Equivalent"), "resourceRules": []any{map[string]any{
		"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "operations": operations,
		"resources": []any{pick(g, "*", "*/*")}, "scope": "Namespaced",
	}}}
	if g.IntN(5) == 0 {
		match["excludeResourceRules"] = []any{map[string]any{
			"apiGroups": []any{pick(g, "", "*")}, "apiVersions": []any{"v1"}, "operations": []any{pick(g, "CREATE", "UPDATE")},
			"resources": []any{pick(g, "pods", "configmaps", "*/status")},
		}}
	}
	if g.IntN(5) == 0 {
		match["objectSelector"] = map[string]any{"matchExpressions": []any{map[string]any{"key": "app",
			"operator": pick(g, "Exists", "DoesNotExist")}}}
	}
	spec = map[string]any{"matchConstraints": match, "failurePolicy": pick(g, "Fail", "Fail", "Ignore")}
	for n := range g.IntN(3) {
		name := fmt.Sprintf("v%d", n)
		kind := pick(g, expressions.Bool, expressions.String, expressions.Any)
		variables, _ := spec["variables"].([]any)
		spec["variables"] = append(variables, map[string]any{"name": name, "expression": g.Expression("", kind)})
		g.Add(kind, "variables."+name)
	}
	if g.IntN(3) == 0 {
		spec["matchConditions"] = []any{map[string]any{"name": "c", "expression": pick(g, g.Expression("", expressions.Bool),
			"request.operation != 'DELETE'",
			"("+g.Expression("", expressions.Bool)+") || true")}}
	}
	if g.IntN(2) == 0 {
		params = paramKinds[g.IntN(len(paramKinds))]
		spec["paramKind"] = params
		g.Add(expressions.String, "params.data.name")
		g.Add(expressions.Any, "params")
	}
	return spec, params
}

func (g *policyGenerator) validating(name string) {
	spec, params := g.common(pick(g, []any{"*"}, []any{"CREATE", "UPDATE"})...)
	var validations, annotations []any
	for range 1 + g.IntN(3) {
		v := map[string]any{"expression": g.Expression(pick(g, "", "", "authorizer"), expressions.Bool)}
		if g.IntN(2) == 0 {
			v["message"] = pick(g, " a message ", "ä€😀")
		}
		if g.IntN(2) == 0 {
			v["messageExpression"] = g.Expression("", expressions.String)
		}
		if g.IntN(3) == 0 {
			v["reason"] = pick(g, "Forbidden", "Invalid", "RequestEntityTooLarge")
		}
		if g.IntN(20) == 0 {
			v["reason"] = "Unauthorized" // neither accepts it
		}
		validations = append(validations, v)
	}
	for n := range g.IntN(3) {
		annotations = append(annotations, map[string]any{"key": fmt.Sprintf("k%d", n),
			"valueExpression": g.Expression("", expressions.String)})
	}
	spec["validations"], spec["auditAnnotations"] = validations, annotations
	g.own.Documents = append(g.own.Documents, document("ValidatingAdmissionPolicy", name, spec))
	binding := g.binding(name, params)
	binding["validationActions"] = pick(g, []any{"Deny"}, []any{"Warn"}, []any{"Audit"}, []any{"Deny", "Audit"}, []any{"Warn", "Audit"})
	g.own.Documents = append(g.own.Documents, document("ValidatingAdmissionPolicyBinding", "b."+name, binding))
}

func (g *policyGenerator) binding(policy string, params map[string]any) map[string]any {
	spec := map[string]any{"policyName": policy}
	if params != nil && g.IntN(5) > 0 {
		spec["paramRef"] = g.ref(params)
	}
	if g.IntN(4) == 0 {
		spec["matchResources"] = map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"env": pick(g,
			"prod", "dev")}}}
	}
	return spec
}

// mutations change only metadata, because these have no defaults: kube-apiserver sets defaults
// after each mutation.
func (g *policyGenerator) mutation() map[string]any {
	text := pick(g, g.Expression("", expressions.String), "'x'", "request.operation", "string(size(object.metadata.labels))")
	if g.IntN(2) == 0 {
		return map[string]any{"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{"expression": pick(g,
			"Object{metadata: Object.metadata{labels: {'a': "+text+"}}}",
			"Object{metadata: Object.metadata{annotations: {'b': "+text+"}, finalizers: ['example.com/b']}}",
			"Object{metadata: Object.metadata{annotations: {'n': object.metadata.?annotations.?n.orValue('') + 'i'}}}",
		)}}
	}
	return map[string]any{"patchType": "JSONPatch", "jsonPatch": map[string]any{"expression": pick(g,
		"[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'j': "+text+"}}]",
		"[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c'), value: "+text+"}]",
		"[JSONPatch{op: 'test', path: '/metadata/name', value: "+text+"}, JSONPatch{op: 'remove', path: '/metadata/labels'}]",
		"[JSONPatch{op: 'remove', path: '/metadata/finalizers/0'}]",
		"[JSONPatch{op: 'copy', from: '/metadata/labels', path: '/metadata/annotations'}, JSONPatch{op: 'move', from: "+
			"'/metadata/annotations/app', path: '/metadata/annotations/moved'}]",
	)}}
}

func (g *policyGenerator) mutating(name string) {
	spec, params := g.common("CREATE", "UPDATE")
	var mutations []any
	for range 1 + g.IntN(3) {
		mutations = append(mutations, g.mutation())
	}
	spec["mutations"], spec["reinvocationPolicy"] = mutations, pick(g, "Never", "IfNeeded")
	g.own.Documents = append(g.own.Documents, document("MutatingAdmissionPolicy", name, spec),
		document("MutatingAdmissionPolicyBinding", "b."+name, g.binding(name, params)))
}

// requests creates objects, changes and deletes them.
func (g *policyGenerator) requests() error {
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON([]byte(g.base)); err != nil {
		return err
	}
	path := fmt.Sprintf(paths[u.GroupVersionKind()], g.own.name)
	for n := range 4 {
		name := fmt.Sprintf("a%d", n)
		body := []byte(strings.Replace(g.base, `"name":"a"`, fmt.Sprintf(`"name":%q`, name), 1))
		if u.GetKind() == "Widget" && n > 0 {
			spoilt, err := expressions.Spoil(g.Rand, body)
			if err != nil {
				return err
			}
			var object unstructured.Unstructured // for numbers as webhooks get them
			if err := object.UnmarshalJSON(spoilt); err != nil {
				return err
			}
			if body, err = object.MarshalJSON(); err != nil {
				return err
			}
		}
		user := pick(g, "", "", "alice")
		g.own.Requests = append(g.own.Requests,
			policyRequest{Send: "POST " + path, Body: body, As: user},
			policyRequest{Send: "PATCH " + path + "/" + name + pick(g, "", "?dryRun=All"), Type: "application/merge-patch+json", As: user,
				Body: json.RawMessage(pick(g, `{"metadata":{"labels":{"new":"x"}}}`, `{"metadata":{"labels":null}}`,
					`{"metadata":{"annotations":{"note":"y"}}}`))},
			policyRequest{Send: "DELETE " + path + "/" + name + pick(g, "?", "?dryRun=All&") + "gracePeriodSeconds=0"})
	}
	return nil
}
