package twins

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// webhookGroups are the API groups of webhook configurations on either side.
var webhookGroups = [2]string{"admissionregistration.k8s.io/v1", "webhooks.fastadmit.io/v1"}

// hookGenerator makes scenarios with webhook configurations.
type hookGenerator struct {
	*rand.Rand
	backend *hookBackend
	own     *scenario
	// scaled is a scenario with HorizontalPodAutoscalers, of which fastadmit gets only the version
	// in its rules.
	scaled bool
}

func one[T any](g *hookGenerator, all ...T) T { return all[g.IntN(len(all))] }

func (g *hookGenerator) in(n int) bool { return g.IntN(n) == 0 }

// harmless are behaviors of webhooks that neither deny nor fail, by phase.
var harmless = map[string][]string{
	"Mutating": {"append", "append", "append", "once", "once", "prod", "unlabeled", "empty", "echo", "echo", "warn",
		"annotate", "allow"},
	"Validating": {"echo", "echo", "warn", "annotate", "allow"},
}

// harmful are the other behaviors.
var harmful = map[string][]string{
	"Mutating": {"deny", "deny-message", "deny-code", "deny-details", "deny-prod", "missing", "unknown", "no-list", "test", "text",
		"status", "nothing",
		"closed", "dead", "untrusted", "uid", "patch-without-type", "type-without-patch", "no-boolean"},
	"Validating": {"deny", "deny-message", "deny-code", "deny-details", "deny-prod", "deny-prod", "once", "text", "status",
		"nothing", "closed",
		"dead", "untrusted", "uid", "patch-without-type", "type-without-patch", "no-boolean"},
}

// scenario generates configurations of both kinds, and requests.
func (g *hookGenerator) scenario(name string) *scenario {
	g.own = &scenario{name: name, NamespaceLabels: map[string]string{"env": one(g, "prod", "test")}}
	g.scaled = g.in(5)
	for _, phase := range []string{"Mutating", "Validating"} {
		// If several validating webhooks deny or fail, it is random which one comes first.
		bad := one(g, 0, 1, 1)
		for i := range 1 + g.IntN(2) {
			var hooks []any
			for j := range 1 + g.IntN(3) {
				name := fmt.Sprintf("%c%d", 'b'-rune(i), j)
				if bad > 0 && g.in(2) {
					h := g.hook(phase, one(g, harmful[phase]...), name)
					if !g.scaled && !g.in(3) {
						h["rules"] = fixedHook(g.backend, g.own.name, "", "")["rules"]
					}
					hooks = append(hooks, h)
					bad--
					continue
				}
				hooks = append(hooks, g.hook(phase, one(g, harmless[phase]...), name))
			}
			g.own.Documents = append(g.own.Documents, configuration(phase, fmt.Sprintf("%s-%c", name, 'b'-rune(i)), hooks...))
		}
	}
	g.requests()
	return g.own
}

func configuration(phase, name string, hooks ...any) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": webhookGroups[0], "kind": phase + "WebhookConfiguration", "metadata": map[string]any{"name": name},
		"webhooks": hooks,
	}}
}

// hook generates a webhook for the namespace of the scenario.
func (g *hookGenerator) hook(phase, does, name string) map[string]any {
	h := fixedHook(g.backend, g.own.name, does, name)
	set := func(field string, value any) {
		if value != nil {
			h[field] = value
		}
	}
	client := h["clientConfig"].(map[string]any)
	switch does {
	case "dead":
		client["url"] = "https://127.0.0.1:1/dead"
	case "untrusted":
		delete(client, "caBundle")
	}
	h["sideEffects"] = one[any](g, "None", "NoneOnDryRun")
	h["admissionReviewVersions"] = one(g, []any{"v1"}, []any{"v1"}, []any{"v1beta1"}, []any{"v2", "v1", "v1beta1"})
	set("failurePolicy", one[any](g, nil, "Fail", "Ignore", "Ignore"))
	set("matchPolicy", one[any](g, nil, "Exact", "Equivalent"))
	set("timeoutSeconds", one[any](g, nil, int64(20), int64(30)))
	h["rules"] = []any{g.rule()}
	if g.in(4) {
		h["rules"] = append(h["rules"].([]any), g.rule())
	}
	if g.in(4) {
		h["namespaceSelector"].(map[string]any)["matchExpressions"] = []any{
			map[string]any{"key": "env", "operator": one(g, "In", "NotIn"), "values": []any{"prod"}}}
	}
	set("objectSelector", one[any](g, nil, nil, nil, map[string]any{"matchLabels": map[string]any{"env": "prod"}},
		map[string]any{"matchExpressions": []any{map[string]any{"key": "a0", "operator": "DoesNotExist"}}}))
	var conditions []any
	for i := range max(0, g.IntN(4)-1) {
		conditions = append(conditions, map[string]any{"name": fmt.Sprintf("c%d", i), "expression": one(g,
			`true`, `request.operation != "DELETE"`, `object != null && object.metadata.name != "b"`,
			`!has(request.dryRun) || !request.dryRun`,
			`authorizer.group("").resource("pods").check("get").allowed()`, `object.spec.nothing == 1`,
			`request.userInfo.username != "alice"`,
			`oldObject == null || object == null || oldObject.metadata.name == object.metadata.name`,
			`request.resource.resource == "configmaps"`)})
	}
	if conditions != nil {
		h["matchConditions"] = conditions
	}
	if phase == "Mutating" {
		set("reinvocationPolicy", one[any](g, nil, "Never", "IfNeeded", "IfNeeded"))
	}
	return h
}

// fixedHook returns a webhook that is called for everything in a namespace.
func fixedHook(b *hookBackend, namespace, does, name string) map[string]any {
	text, _ := json.Marshal(b.caBundle())
	var ca string
	_ = json.Unmarshal(text, &ca)
	return map[string]any{
		"name":         name + ".hooks.example.com",
		"clientConfig": map[string]any{"url": b.URL + "/" + does + "/" + name, "caBundle": ca},
		"rules": []any{map[string]any{"operations": []any{"*"}, "apiGroups": []any{"", "apps"}, "apiVersions": []any{"*"},
			"resources": []any{"*/*"}}},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: namespace}},
		"sideEffects":       "None", "admissionReviewVersions": []any{"v1"},
	}
}

func (g *hookGenerator) rule() map[string]any {
	rule := map[string]any{
		"operations": one(g, []any{"*"}, []any{"*"}, []any{"CREATE", "UPDATE"}, []any{"UPDATE", "DELETE"}),
		"apiGroups":  one(g, []any{""}, []any{"", "apps"}, []any{"apps"}), "apiVersions": one(g, []any{"*"}, []any{"v1"}),
		"resources": one(g, []any{"*/*"}, []any{"*"}, []any{"configmaps", "deployments"}, []any{"deployments/scale"}, []any{"*/scale"}),
	}
	if g.scaled {
		rule["apiGroups"], rule["apiVersions"], rule["resources"] = []any{"autoscaling"}, []any{"v2"},
			one(g, []any{"*"}, []any{"horizontalpodautoscalers"})
	}
	if scope := one[any](g, nil, nil, "*", "Namespaced", "Cluster"); scope != nil {
		rule["scope"] = scope
	}
	return rule
}

// requests makes the requests: each object is created, changed and deleted.
func (g *hookGenerator) requests() {
	add := func(send, body string) {
		r := policyRequest{Send: send, Body: json.RawMessage(body)}
		if strings.HasPrefix(send, "PATCH") {
			r.Type = "application/merge-patch+json"
		}
		if g.in(6) {
			r.As = "alice"
		}
		if g.in(6) {
			r.Send += "?dryRun=All"
		}
		g.own.Requests = append(g.own.Requests, r)
	}
	labels := one(g, `"labels":{"env":"prod"}`, `"labels":{"a":"b"}`, `"annotations":{"order":"-"}`,
		`"labels":{"env":"prod"},"annotations":{"order":"-"}`, `"name":"a"`)
	in := "/namespaces/" + g.own.name
	if g.scaled {
		for i, version := range []string{"v1", "v2", "v1"} {
			add("POST /apis/autoscaling/"+version+in+"/horizontalpodautoscalers",
				fmt.Sprintf(`{"apiVersion":"autoscaling/%s","kind":"HorizontalPodAutoscaler",
				"metadata":{%s,"name":"a%d"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment",`+
					`"name":"d"}}}`, version, labels, i))
			add("PATCH /apis/autoscaling/"+version+in+"/horizontalpodautoscalers/a0", fmt.Sprintf(`{"spec":{"maxReplicas":%d}}`, 4+i))
		}
		add("DELETE /apis/autoscaling/v1"+in+"/horizontalpodautoscalers/a0", "")
		return
	}
	for _, name := range []string{"a", "b"} {
		add("POST /api/v1"+in+"/configmaps",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{%s,"name":%q},"data":{"a":"1"}}`, labels, name))
		add("PUT /api/v1"+in+"/configmaps/"+name,
			fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{%s,"name":%q},"data":{"a":"2"}}`, labels, name))
		add("PATCH /api/v1"+in+"/configmaps/"+name, `{"data":{"b":"3"}}`)
	}
	add("POST /apis/apps/v1"+in+"/deployments",
		fmt.Sprintf(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{%s,"name":"d"},"spec":{"replicas":1,
		"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c",`+
			`"image":"i"}]}}}}`, labels))
	add("PATCH /apis/apps/v1"+in+"/deployments/d/scale", `{"spec":{"replicas":3}}`)
	for _, object := range []string{"/api/v1" + in + "/configmaps/a", "/api/v1" + in + "/configmaps/b",
		"/apis/apps/v1" + in + "/deployments/d"} {
		add("DELETE "+object, "")
	}
	add("PATCH /api/v1"+in, `{"metadata":{"labels":{"env":"other"}}}`)
}

// hookScenarios are the fixed scenarios.
func hookScenarios(b *hookBackend) (all []*scenario) {
	post := func(name string) string { return "POST /api/v1/namespaces/" + name + "/configmaps" }
	body := json.RawMessage(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"order":"-"}}}`)
	f := func(name string, change func(h map[string]any), mutating, validating []string) {
		own := &scenario{name: name, Requests: []policyRequest{{Send: post(name), Body: body},
			{Send: post(name) + "?dryRun=All", Body: body}}}
		for phase, does := range map[string][]string{"Mutating": mutating, "Validating": validating} {
			var hooks []any
			for i, d := range does {
				h := fixedHook(b, name, d, fmt.Sprintf("h%d", i))
				change(h)
				if phase == "Validating" {
					delete(h, "reinvocationPolicy")
				}
				hooks = append(hooks, h)
			}
			if hooks != nil {
				own.Documents = append(own.Documents, configuration(phase, name, hooks...))
			}
		}
		all = append(all, own)
	}
	with := func(field string, value any) func(map[string]any) {
		return func(h map[string]any) { h[field] = value }
	}
	hanging := func(policy string) func(map[string]any) {
		return func(h map[string]any) {
			h["failurePolicy"] = policy
			if strings.Contains(h["clientConfig"].(map[string]any)["url"].(string), "/hang/") { // nobody else is to fail for want of time
				h["timeoutSeconds"] = int64(1)
			}
		}
	}
	f("hooks-reinvoked", with("reinvocationPolicy", "IfNeeded"), []string{"append", "append", "append"}, []string{"echo"})
	f("hooks-once", with("reinvocationPolicy", "IfNeeded"), []string{"once", "append", "once"}, []string{"echo"})
	f("hooks-never", with("reinvocationPolicy", "Never"), []string{"append", "append", "append"}, []string{"echo"})
	f("hooks-unserved", with("rules", []any{map[string]any{"operations": []any{"*"}, "apiGroups": []any{""}, "apiVersions": []any{"v9"},
		"resources": []any{"*/*"}}}), []string{"append"}, []string{"echo"})
	f("hooks-hang-fail", hanging("Fail"), []string{"hang"}, nil)
	f("hooks-hang-ignore", hanging("Ignore"), []string{"append", "hang"}, nil)
	f("hooks-hang-validating", hanging("Fail"), nil, []string{"hang"})
	f("hooks-hang-validating-ignore", hanging("Ignore"), nil, []string{"hang", "hang", "warn"})
	for _, own := range all[len(all)-4:] {
		own.Requests = own.Requests[:1] // it takes a second
	}
	return all
}

// hookRules are the rules with which kube-apiserver calls fastadmit.
func hookRules() cluster.Webhook {
	w := cluster.Webhook{Equivalent: true, Timeout: 30}
	w.Rules = slices.Concat(cluster.Everything(), cluster.Rules("*", "autoscaling", "v2", "*/*"))
	w.Rules[0].APIGroups = []string{"", "apps", "webhooks.fastadmit.io"}
	return w
}
