package validatingadmissionpolicy

import (
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

const customResources = `{"apiVersion": "fastadmit.io/v1alpha1", "kind": "ValidatingAdmissionPolicyConfiguration", "customResources": true}`

// resource returns a custom resource for policies.
func resource(t *testing.T, kind, name, spec string) runtime.Object {
	t.Helper()
	object, err := cluster.NewJSON(fmt.Appendf(nil, `{"apiVersion":"policies.fastadmit.io/v1","kind":%q,"metadata":{"name":%q},"spec":%s}`,
		kind, name, spec))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

var aNamespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}}

const constraints = `"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],` +
	`"resources":["pods"]}]}`

func policySpec(expression string) string {
	return fmt.Sprintf(`{%s,"validations":[{"expression":%q}]}`, constraints, expression)
}

func bindingSpec(policy string) string {
	return fmt.Sprintf(`{"policyName":%q,"validationActions":["Deny"]}`, policy)
}

// answer returns the message and code of the answer to a review, both zero if it is allowed.
func answer(t *testing.T, chain *admission.Chain, body []byte) (message string, code int32) {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(t.Context(), review, admission.Validate); err != nil {
		t.Fatal(err)
	}
	return strings.Clone(review.Response.Status.Message), review.Response.Status.Code
}

// TestResources evaluates policies that are custom resources. If one cannot be evaluated,
// its failurePolicy decides, and the others are evaluated.
func TestResources(t *testing.T) {
	f := func(want string, objects ...runtime.Object) {
		t.Helper()
		chain := admissiontest.MustChain(t, Plugin(), customResources, append(objects, aNamespace)...)
		got, _ := answer(t, chain, admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"name"},"spec":{"hostNetwork":true}}`))
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	policy := func(name, expression string) runtime.Object {
		return resource(t, "ValidatingAdmissionPolicy", name, policySpec(expression))
	}
	binding := func(name, policy string) runtime.Object {
		return resource(t, "ValidatingAdmissionPolicyBinding", name, bindingSpec(policy))
	}
	f("")
	f("", policy("p", "false"))
	f("", binding("b", "p"))
	f("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed expression: !object.spec.hostNetwork",
		policy("p", "!object.spec.hostNetwork"), binding("b", "p"))
	f("", policy("p", "object.spec.hostNetwork == true"), binding("b", "p"))
	f("'bad' with binding 'b' denied request: compilation error: compilation failed: ERROR: <input>:1:8: Syntax error",
		policy("bad", "object."), binding("b", "bad"), policy("p", "true"), binding("b2", "p"))
	ignored := strings.Replace(policySpec("object."), "{", `{"failurePolicy":"Ignore",`, 1)
	f("'p' with binding 'b2' denied request: failed expression: false",
		resource(t, "ValidatingAdmissionPolicy", "bad", ignored), binding("b", "bad"), policy("p", "false"), binding("b2", "p"))
	selects := func(text string) string {
		return strings.Replace(policySpec("false"), `"matchConstraints":{`,
			`"matchConstraints":{"objectSelector":{"matchLabels":{`+text+`}},`, 1)
	}
	f("", resource(t, "ValidatingAdmissionPolicy", "p", selects(`"a":"b"`)), binding("b", "p"))
	f("failed expression: false", resource(t, "ValidatingAdmissionPolicy", "p", selects("")), binding("b", "p"))
	excludes := func(resource string) string {
		return strings.Replace(policySpec("false"), `"matchConstraints":{`,
			`"matchConstraints":{"excludeResourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],`+
				`"resources":["`+resource+`"]}],`, 1)
	}
	f("", resource(t, "ValidatingAdmissionPolicy", "p", excludes("pods")), binding("b", "p"))
	f("failed expression: false", resource(t, "ValidatingAdmissionPolicy", "p", excludes("services")), binding("b", "p"))
	// Invalid policies that were written while fastadmit did not run.
	f("'p' denied request: failed to configure policy: spec.failurePolicy: Unsupported value",
		resource(t, "ValidatingAdmissionPolicy", "p", strings.Replace(policySpec("true"), "{", `{"failurePolicy":"Sometimes",`, 1)),
		binding("b", "p"))
	f("", resource(t, "ValidatingAdmissionPolicy", "p", `{"validations":[]}`), binding("b", "p"))
	f("'p' denied request: failed to configure policy: spec.matchConstraints.objectSelector.matchExpressions[0].operator: Invalid value",
		resource(t, "ValidatingAdmissionPolicy", "p", strings.Replace(policySpec("true"), `"matchConstraints":{`,
			`"matchConstraints":{"objectSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]},`, 1)), binding("b", "p"))
	f("with binding 'b' denied request: failed to configure binding: spec.validationActions: Required value",
		policy("p", "true"), resource(t, "ValidatingAdmissionPolicyBinding", "b", `{"policyName":"p"}`))
	// Resources that cannot be read: it is unknown which requests the policy selects. A binding still
	// belongs to its policy.
	f("", resource(t, "ValidatingAdmissionPolicy", "p", strings.Replace(policySpec("false"), "[{\"exp", `1,"more":[{"exp`, 1)),
		binding("b", "p"))
	f("with binding 'b' denied request: failed to configure binding: cannot be read: json: cannot unmarshal number",
		policy("p", "true"), resource(t, "ValidatingAdmissionPolicyBinding", "b",
			`{"policyName":"p","validationActions":["Deny"],"matchResources":1}`))
	param := strings.Replace(policySpec("params != null"), "{", `{"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`, 1)
	f("'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: '/v1, Kind=ConfigMap'",
		resource(t, "ValidatingAdmissionPolicy", "p", param), binding("b", "p"))
}

// TestResourcesAreChecked writes invalid custom resources: they are rejected, even if they
// would deny their own creation.
func TestResourcesAreChecked(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), customResources, aNamespace,
		resource(t, "ValidatingAdmissionPolicy", "all",
			strings.NewReplacer(`""`, `"*"`, `"v1"`, `"*"`, `"pods"`, `"*"`).Replace(policySpec("false"))),
		resource(t, "ValidatingAdmissionPolicyBinding", "all", bindingSpec("all")))
	object := func(spec string) string { return `{"metadata":{"name":"name"},"spec":` + spec + `}` }
	const policies, bindings = "policies.fastadmit.io/v1/validatingadmissionpolicies",
		"policies.fastadmit.io/v1/validatingadmissionpolicybindings"
	f := func(want string, body []byte) {
		t.Helper()
		got, code := answer(t, chain, body)
		if want == "" && got != "" || !strings.Contains(got, want) || want != "" && code != 422 {
			t.Errorf("got %d %q, want 422 %q", code, got, want)
		}
	}
	good, bad := object(policySpec("true")), object(policySpec("object."))
	f("", admissiontest.Body(codec.Create, policies, good))
	f(`ValidatingAdmissionPolicy "name": spec.validations[0].expression: Invalid value: "object.": compilation failed: ERROR: `+
		`<input>:1:8: Syntax error`,
		admissiontest.Body(codec.Create, policies, bad))
	f(`spec.validations[0].expression: Required value`, admissiontest.Body(codec.Create, policies, object(policySpec(""))))
	f(`spec.matchConstraints: Required value`,
		admissiontest.Body(codec.Create, policies, object(`{"validations":[{"expression":"true"}]}`)))
	f(`unknown field "spec.validation"`, admissiontest.Body(codec.Create, policies, object(`{"validation":[]}`)))
	f(`spec.validations[0].expression: Invalid value`, admissiontest.UpdateBody(policies, bad, good))
	f("", admissiontest.UpdateBody(policies, bad, strings.Replace(bad, `"name":"name"`, `"name":"name","finalizers":["a/b"]`, 1)))
	f("", admissiontest.Body(codec.Create, bindings, object(bindingSpec("p"))))
	f(`ValidatingAdmissionPolicyBinding "name": spec.validationActions[0]: Unsupported value: "Forbid"`,
		admissiontest.Body(codec.Create, bindings, object(`{"policyName":"p","validationActions":["Forbid"]}`)))
	f("failed expression: false", admissiontest.Body(codec.Create, "v1/pods", `{}`))
	f("", admissiontest.Body(codec.Create, "policies.fastadmit.io/v1/others", `{}`))
}

// TestRules checks which reviews the plugin handles.
func TestRules(t *testing.T) {
	if rules := admissiontest.MustChain(t, Plugin(), customResources).RulesOf("ValidatingAdmissionPolicy"); len(rules) != 1 ||
		rules[0].Resources[0] != "*/*" {
		t.Errorf("before custom resources are known: got %v, want all", rules)
	}
	if rules := admissiontest.MustChain(t, Plugin(), "").RulesOf("ValidatingAdmissionPolicy"); len(rules) != 1 ||
		rules[0].Resources[0] != "*/*" {
		t.Errorf("without configuration: got %v, want all", rules)
	}
}

// TestNeeds checks that only custom resources need more permissions.
func TestNeeds(t *testing.T) {
	plugin := Plugin()
	for config, want := range map[string]int{
		"": 2, "{": 2, customResources: 13,
		"{apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: a}": 2,
	} {
		needs := plugin.AllNeeds([]byte(config))
		if len(needs) != want {
			t.Errorf("%s: got %d needs, want %d", config, len(needs), want)
		}
		for _, need := range needs {
			if writes := need.Writes(); writes != nil {
				t.Errorf("%s: a review makes it %s %s", config, writes, need)
			}
		}
	}
}
