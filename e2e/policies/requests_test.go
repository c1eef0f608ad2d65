package policies

import (
	"encoding/json"
	"maps"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/internal/policy/expressions"
)

// resources generates the resources of a policy or a binding, mostly those of the request.
func (g *generator) resources(ofBinding bool) *admissionregistrationv1.MatchResources {
	m := &admissionregistrationv1.MatchResources{
		MatchPolicy:       new(pick(g, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)),
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
	}
	for len(m.ResourceRules) == 0 && !ofBinding || g.IntN(4) == 0 {
		m.ResourceRules = append(m.ResourceRules, g.rule(!g.often("matching", 8)))
	}
	for g.often("matching", 10) {
		m.ExcludeResourceRules = append(m.ExcludeResourceRules, g.rule(false))
	}
	if g.often("matching", 8) {
		m.NamespaceSelector = pick(g, &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}},
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "env", Operator: "NotIn",
				Values: []string{"dev"}}}},
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "nope", Operator: "DoesNotExist"}}},
			&metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "shop"}})
	}
	if g.often("matching", 8) {
		m.ObjectSelector = pick(g, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Exists"}}},
			&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "NotIn",
				Values: []string{"db"}}}})
	}
	return m
}

func (g *generator) field(name string) string {
	var s string
	_ = json.Unmarshal(g.request[name], &s) // "" if it is missing
	return s
}

func (g *generator) rule(all bool) admissionregistrationv1.NamedRuleWithOperations {
	r := admissionregistrationv1.NamedRuleWithOperations{}
	r.Rule = admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"},
		Scope: new(admissionregistrationv1.AllScopes)}
	r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll}
	if all {
		return r
	}
	var resource metav1.GroupVersionResource
	_ = json.Unmarshal(g.request["resource"], &resource) // the recording is valid
	if g.IntN(2) == 0 {
		r.APIGroups = pick(g, []string{resource.Group}, []string{"", "apps"}, []string{"example.com"})
	}
	switch g.IntN(6) {
	case 0:
		r.Resources = []string{resource.Resource}
	case 1:
		r.Resources = []string{resource.Resource + "/*"}
	case 2:
		r.Resources = []string{"*/" + pick(g, "status", "scale", "ephemeralcontainers")}
	case 3:
		r.Resources = []string{"pods", "xs", resource.Resource + "/status", resource.Resource}
	case 4:
		r.Resources = []string{"*"}
	}
	if g.IntN(3) == 0 {
		r.Operations = pick(g, []admissionregistrationv1.OperationType{"CREATE"},
			[]admissionregistrationv1.OperationType{"UPDATE", "DELETE"},
			[]admissionregistrationv1.OperationType{"CONNECT", "CREATE", "UPDATE"}, []admissionregistrationv1.OperationType{"DELETE"})
	}
	if g.IntN(4) == 0 {
		r.Scope = new(pick(g, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope))
	}
	if g.IntN(4) == 0 {
		r.ResourceNames = pick(g, []string{g.field("name")}, []string{"other"}, []string{"other", "web-0"})
		if r.ResourceNames[0] == "" {
			r.ResourceNames = nil
		}
	}
	return r
}

// review derives a request from the recorded one: the same, or with another operation or user, as a
// dry run, with an object that only a custom resource may have, and so on.
func (g *generator) review() ([]byte, error) {
	r := maps.Clone(g.request)
	set := func(name, value string) { r[name] = json.RawMessage(value) }
	isSet := func(name string) bool { return len(r[name]) > 0 && string(r[name]) != "null" }
	if g.IntN(3) == 0 && isSet("object") && g.field("operation") != "CONNECT" {
		if err := g.spoil(r); err != nil {
			return nil, err
		}
	}
	switch operation := g.IntN(8); {
	case g.field("operation") == "CONNECT":
	case operation == 0 && isSet("object"):
		set("operation", `"DELETE"`)
		set("options", `{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","gracePeriodSeconds":30,"propagationPolicy":"Background"}`)
		r["oldObject"] = r["object"]
		set("object", "null")
	case operation == 1 && isSet("object"):
		set("operation", `"UPDATE"`)
		set("options", `{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl","fieldValidation":"Strict"}`)
		r["oldObject"] = r["object"]
	case operation == 2 && isSet("object"):
		set("operation", `"CREATE"`)
		set("options", `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`)
		set("dryRun", "true")
		set("oldObject", "null")
	}
	if g.IntN(6) == 0 {
		set("userInfo", pick(g, `{}`, `{"username":"alice"}`, `{"username":"ä€😀"}`, `{"username":"bob","uid":"7","groups":["a","a"],`+
			`"extra":{"k":["v","w"],"e":[]}}`))
	}
	if g.IntN(10) == 0 && isSet("namespace") {
		set("namespace", pick(g, `"default"`, `"kube-system"`, `"staging"`))
	}
	if g.IntN(10) == 0 && len(r["subResource"]) == 0 {
		set("subResource", `"status"`)
		set("requestSubResource", `"status"`)
	}
	return json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": r})
}

// spoil turns the object into a custom resource with any content.
func (g *generator) spoil(r map[string]json.RawMessage) error {
	for _, name := range [...]string{"object", "oldObject"} {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(r[name], &object); err != nil || object == nil {
			continue
		}
		object["apiVersion"], object["kind"] = json.RawMessage(`"example.com/v1"`), json.RawMessage(`"X"`)
		content, err := json.Marshal(object)
		if err != nil {
			return err
		}
		if content, err = expressions.Spoil(g.Rand, content); err != nil {
			return err
		}
		if r[name], err = asStored(content); err != nil {
			return err
		}
	}
	const kind, resource = `{"group":"example.com","version":"v1","kind":"X"}`, `{"group":"example.com","version":"v1","resource":"xs"}`
	for name, value := range map[string]string{"kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource} {
		r[name] = json.RawMessage(value)
	}
	return nil
}

// asStored returns an object as kube-apiserver sends it to webhooks: with numbers as Go writes
// them.
func asStored(content []byte) ([]byte, error) {
	object := new(unstructured.Unstructured)
	if err := object.UnmarshalJSON(content); err != nil {
		return nil, err
	}
	return object.MarshalJSON()
}
