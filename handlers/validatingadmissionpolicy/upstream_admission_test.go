package validatingadmissionpolicy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
)

// paramOf returns a parameter with a label.
func paramOf(namespace, name, label, value string) admission.ParamObject {
	labels := map[string]string{label: value}
	text, _ := json.Marshal(map[string]any{
		"apiVersion": "example.com/v1", "kind": "Param", "metadata": map[string]any{"name": name, "namespace": namespace, "labels": labels},
	})
	return admission.ParamObject{Namespace: namespace, Name: name, Labels: labels, JSON: text}
}

// TestParamRefUpstream has the cases of TestParamRef in upstream's admission_test.go. It compares the
// parameters of each kind of paramRef, namespaced or not, with those that a simple loop finds. If
// there are none, parameterNotFoundAction decides.
func TestParamRefUpstream(t *testing.T) {
	const name = "replicas-test"
	namespaced := []admission.ParamObject{}
	for _, namespace := range []string{"default", "mine", "other"} {
		third := "yes"
		if namespace == "default" {
			third = "no"
		}
		namespaced = append(namespaced, paramOf(namespace, name, "matches", "no"), paramOf(namespace, name+"1", "matches", "yes"),
			paramOf(namespace, name+"2", "unrelated", "no"), paramOf(namespace, name+"3", "matches", third))
	}
	clustered := []admission.ParamObject{
		paramOf("", name, "matches", "yes"), paramOf("", name+"1", "matches", "no"), paramOf("", name+"2", "unrelated", "no"),
		paramOf("", name+"3", "matches", "yes"), paramOf("", name+"4", "matches", "no"), paramOf("", name+"5", "unrelated", "no"),
	}
	const named, labelled, all = `"name":"replicas-test"`, `"selector":{"matchLabels":{"matches":"yes"}}`, `"selector":{}`
	for _, objects := range [][]admission.ParamObject{namespaced, clustered} {
		for _, selects := range []string{named, labelled, all} {
			for _, namespace := range []string{"", "mine"} {
				if namespace != "" && &objects[0] == &clustered[0] {
					continue // an error; see TestConfigurationErrorsUpstream
				}
				for _, action := range []string{"Deny", "Allow"} {
					for _, request := range []string{"other", ""} { // the namespace of its object
						c := paramCase{objects: objects, namespaced: &objects[0] == &namespaced[0], selects: selects, namespace: namespace,
							action: action, request: request}
						c.selected = func(o *admission.ParamObject) bool {
							return selects == all || selects == named && o.Name == name ||
								selects == labelled && o.Labels["matches"] == "yes"
						}
						c.check(t)
					}
				}
			}
		}
	}
}

type paramCase struct {
	objects                             []admission.ParamObject
	namespaced                          bool
	selects, namespace, action, request string
	selected                            func(*admission.ParamObject) bool
}

func (c *paramCase) check(t *testing.T) {
	t.Helper()
	var want []string
	in := c.namespace
	if in == "" && c.namespaced {
		in = c.request
	}
	for i := range c.objects {
		if o := &c.objects[i]; o.Namespace == in && c.selected(o) {
			want = append(want, o.Namespace+"/"+o.Name)
		}
	}
	missing := "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
	if c.namespaced && in == "" {
		want = nil
		missing = "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
	} else if len(want) == 0 {
		t.Fatalf("%+v: no parameter is selected, want some", c)
	}
	ref := fmt.Sprintf(`%s,"parameterNotFoundAction":%q`, c.selects, c.action)
	if c.namespace != "" {
		ref += fmt.Sprintf(`,"namespace":%q`, c.namespace)
	}
	for _, objects := range [][]admission.ParamObject{c.objects,
		slices.DeleteFunc(slices.Clone(c.objects), func(o admission.ParamObject) bool {
			return slices.Contains(want, o.Namespace+"/"+o.Name)
		})} {
		policy := documents{
			policy: `{"paramKind":{"apiVersion":"example.com/v1","kind":"Param"},` + everything + `,"validations":[{"expression":"false",` +
				`"messageExpression":"params.metadata.namespace + '/' + params.metadata.name"}]}`,
			bindings: map[string]string{
				"b": `"validationActions":["Warn"],"paramRef":{` + ref + `}`,
				"c": denying + `,"paramRef":{` + ref + `}`,
			},
			params: []admission.ParamKind{{APIVersion: "example.com/v1", Kind: "Param", Namespaced: c.namespaced, Objects: objects}},
		}
		r := ask(t, policy.chain(t), requestIn(c.request))
		var got []string
		for _, warning := range r.Warnings {
			_, param, _ := strings.Cut(warning, "with binding 'b': ")
			got = append(got, param)
		}
		wantDenied := ""
		switch {
		case c.namespaced && in == "", len(objects) < len(c.objects) && c.action == "Deny":
			wantDenied = missing
		case len(objects) == len(c.objects):
			wantDenied = want[0]
		}
		if len(objects) < len(c.objects) {
			want = nil
		}
		if denied := messageOf(r); !slices.Equal(got, want) || denied != wantDenied {
			t.Errorf("%s of %d for a request in %q\ngot  %s, denied %q\nwant %s, %q", ref, len(objects), c.request, got, denied,
				want, wantDenied)
		}
	}
}

const everything = `"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"]}]}`

// requestIn returns a request for an object in a namespace, or in none.
func requestIn(namespace string) string {
	return fmt.Sprintf(`{"uid":"1","operation":"CREATE","name":"name","namespace":%q,"resource":{"group":"","version":"v1",`+
		`"resource":"things"},"object":{"metadata":{"name":"name"}}}`, namespace)
}

// TestParametersUpstream has the other cases of admission_test.go about parameters. Those in
// which documents change are in package policy (TestParamsFollow) and in e2e/twins.
func TestParametersUpstream(t *testing.T) {
	const kind, name = `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`, "replicas-test"
	maps := []admission.ParamKind{
		{APIVersion: "v1", Kind: "ConfigMap", Namespaced: true,
			Objects: []admission.ParamObject{paramOf("default", name, "a", "b"), paramOf("mine", name, "a", "b")}},
		{APIVersion: "v1", Kind: "Node", Objects: []admission.ParamObject{paramOf("", name, "a", "b")}},
	}
	f := func(about, paramKind, ref, namespace, want string) {
		t.Helper()
		expression := `params == null ? 'null' : string(params.metadata.namespace)`
		if paramKind == "" {
			expression = `'no params'`
		}
		policy := documents{
			policy:   `{` + paramKind + everything + `,"validations":[{"expression":"false","messageExpression":"` + expression + `"}]}`,
			bindings: map[string]string{"b": denying + ref}, params: maps,
		}
		if got := messageOf(ask(t, policy.chain(t), requestIn(namespace))); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", about, got, want)
		}
	}
	ref := func(more string) string { return `,"paramRef":{"parameterNotFoundAction":"Deny",` + more + `}` }
	const missing = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
	f("TestInvalidParamSourceGVK", strings.Replace(kind, "ConfigMap", "BadParamKind", 1),
		ref(`"name":"replicas-test","namespace":"default"`), "default",
		"failed to configure binding: paramKind kind `&ParamKind{APIVersion:v1,Kind:BadParamKind,}` not known")
	f("TestInvalidParamSourceInstanceName", kind, ref(`"name":"none","namespace":"default"`), "default", missing)
	f("TestEmptyParamRef", kind, "", "default", "null")
	f("TestEmptyParamSource", "", "", "default", "no params")
	f("TestEmptyParamSource, with a paramRef", "", ref(`"name":"replicas-test","namespace":"default"`), "default", "no params")
	f("TestNativeTypeParam", kind, ref(`"name":"replicas-test","namespace":"default"`), "other", "default")
	f("TestNamespaceParamRefName", kind, ref(`"name":"replicas-test"`), "default", "default")
	f("TestNamespaceParamRefName", kind, ref(`"name":"replicas-test"`), "mine", "mine")
	f("TestNamespaceParamRefName, none there", kind, ref(`"name":"replicas-test"`), "other", missing)
	f("TestNamespaceParamRefClusterScopedParamError", strings.Replace(kind, "ConfigMap", "Node", 1),
		ref(`"name":"replicas-test","namespace":"mine"`), "default",
		"failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
}

// TestActionsUpstream has the cases of admission_test.go about validationActions.
func TestActionsUpstream(t *testing.T) {
	f := func(warned, audited, denied bool, actions ...string) {
		t.Helper()
		text, _ := json.Marshal(actions)
		policy := documents{
			policy:   `{` + everything + `,"validations":[{"expression":"false","message":"I'm sorry Dave"}]}`,
			bindings: map[string]string{"b": `"validationActions":` + string(text)},
		}
		r := ask(t, policy.chain(t), requestIn("ns"))
		var wantWarnings []string
		if warned {
			wantWarnings = []string{"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': I'm sorry Dave"}
		}
		annotation := ""
		if audited {
			annotation = fmt.Sprintf(`[{"message":"I'm sorry Dave","policy":"p","binding":"b","expressionIndex":0,"validationActions":%s}]`,
				text)
		}
		if !slices.Equal(r.Warnings, wantWarnings) || r.AuditAnnotations[validationFailureKey] != annotation || r.Allowed == denied {
			t.Errorf("%s: got %q, %q, allowed %v, want %q, %s, %v", actions, r.Warnings, r.AuditAnnotations, r.Allowed,
				wantWarnings, annotation, !denied)
		}
	}
	f(false, true, false, "Audit")
	f(true, false, false, "Warn")
	f(true, true, false, "Warn", "Audit")
	f(false, true, true, "Deny", "Audit") // in-tree, Deny and Warn cannot both be stored
	f(false, false, true, "Deny")
}

// TestFailures has several violations in the audit annotation since v1.37, at most 50, and the first one before
// (k8s.io/apiserver pkg/admission/plugin/policy/validating/dispatcher.go).
func TestFailures(t *testing.T) {
	bindings := make(map[string]string)
	for i := range 26 {
		bindings[fmt.Sprintf("b%02d", i)] = `"validationActions":["Audit"]`
	}
	for version, want := range map[string]int{"1.36": 1, "1.37": failuresMax} {
		v, _, err := admission.ParseVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		policy := documents{
			policy:   `{` + everything + `,"validations":[{"expression":"false","message":"one"},{"expression":"false","message":"two"}]}`,
			bindings: bindings, version: v,
		}
		var got []validationFailure
		text := ask(t, policy.chain(t), requestIn("ns")).AuditAnnotations[validationFailureKey]
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != want || got[0].Binding != "b00" ||
			got[want-1].ExpressionIndex != (want-1)%2 {
			t.Errorf("%s: got %d failures, %v, %.300s, want %d", version, len(got), err, text, want)
		}
	}
}

// TestAuditAnnotationsOfBindings has the case TestAuditAnnotations of admission_test.go:
// three bindings, of which two give the same value, and an annotation with an error.
func TestAuditAnnotationsOfBindings(t *testing.T) {
	binding := func(name string) string {
		return denying + `,"paramRef":{"parameterNotFoundAction":"Deny","namespace":"default","name":"` + name + `"}`
	}
	policy := documents{
		policy: `{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},` + everything + `,"auditAnnotations":[` +
			`{"key":"example-key","valueExpression":"params.metadata.name == 'param2' ? 'special-value' : 'normal-value'"},` +
			`{"key":"excluded-key","valueExpression":"null"},{"key":"error-key","valueExpression":"string(params.nope)"}]}`,
		bindings: map[string]string{"b1": binding("param1"), "b2": binding("param2"), "b3": binding("param3")},
		params: []admission.ParamKind{{APIVersion: "v1", Kind: "ConfigMap", Namespaced: true, Objects: []admission.ParamObject{
			paramOf("default", "param1", "a", "b"), paramOf("default", "param2", "a", "b"), paramOf("default", "param3", "a", "b"),
		}}},
	}
	r := ask(t, policy.chain(t), requestIn("default"))
	const want = "expression 'string(params.nope)' resulted in error: no such key: nope"
	if got := r.AuditAnnotations["p.example-key"]; got != "normal-value, special-value" || messageOf(r) != want ||
		r.AuditAnnotations["p.excluded-key"] != "" {
		t.Errorf("got %q, denied %q, want two values and %q", r.AuditAnnotations, messageOf(r), want)
	}
}
