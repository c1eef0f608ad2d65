package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
)

const validPolicy = `{"metadata":{"name":"p.example.com"},"spec":{"failurePolicy":"Ignore",
	"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},
	"matchConstraints":{"matchPolicy":"Exact","resourceRules":[
		{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"],"resourceNames":["a","b"]}]},
	"matchConditions":[{"name":"c","expression":"true"}],"variables":[{"name":"_a1","expression":"1"}],
	"validations":[{"expression":"true","message":"m","reason":"Invalid","messageExpression":"'m'"}],
	"auditAnnotations":[{"key":"k","valueExpression":"'v'"},{"key":"l","valueExpression":"'v'"}]}}`

const validMutating = `{"metadata":{"name":"p"},"spec":{"reinvocationPolicy":"IfNeeded",
	"matchConstraints":{"resourceRules":[{"operations":["CREATE","UPDATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]}]},
	"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[]"}},
		{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]}}`

const validBinding = `{"metadata":{"name":"b"},"spec":{"policyName":"p.example.com","validationActions":["Deny","Audit"],
	"paramRef":{"name":"n","parameterNotFoundAction":"Deny"},"matchResources":{"matchPolicy":"Exact"}}}`

// ruleFields are the fields of a valid rule.
const ruleFields = `"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["pods"]`

// TestValidate changes valid objects in one place each (RFC 7396), and expects the errors of
// kube-apiserver's validation (k8s.io/kubernetes pkg/apis/admissionregistration/validation).
func TestValidate(t *testing.T) {
	testCheck(t, validPolicy, CheckValidating, [][2]string{
		{`{}`, ``},
		{`{"metadata":{"name":""},"spec":{"auditAnnotations":null}}`, `metadata.name: Required value: name or generateName is required`},
		{`{"metadata":{"name":"A"},"spec":{"auditAnnotations":null}}`,
			`metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		{`{"metadata":{"namespace":"n"}}`, `metadata.namespace: Forbidden: not allowed on this type`},
		{`{"spec":{"failurePolicy":null}}`, ``},
		{`{"spec":{"failurePolicy":"X"}}`, `spec.failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"`},
		{`{"spec":{"paramKind":{"apiVersion":""}}}`, `spec.paramKind.apiVersion: Required value`},
		{`{"spec":{"paramKind":{"apiVersion":"a/b/c"}}}`,
			`spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string`},
		{`{"spec":{"paramKind":{"apiVersion":"A/v1"}}}`, `spec.paramKind.apiVersion: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		{`{"spec":{"paramKind":{"apiVersion":"a/"}}}`, `spec.paramKind.apiVersion: Invalid value: "a/": version must be specified`},
		{`{"spec":{"paramKind":{"apiVersion":"a/V"}}}`, `spec.paramKind.apiVersion: Invalid value: "V": a DNS-1035 label`},
		{`{"spec":{"paramKind":{"apiVersion":"a.b/v1","kind":"Config_Map"}}}`,
			`spec.paramKind.kind: Invalid value: "Config_Map": may have mixed case, but should otherwise match`},
		{`{"spec":{"paramKind":{"kind":""}}}`, `spec.paramKind.kind: Required value`},
		{`{"spec":{"matchConstraints":null}}`, `spec.matchConstraints: Required value`},
		{`{"spec":{"matchConstraints":{"resourceRules":null}}}`, `spec.matchConstraints.resourceRules: Required value`},
		{`{"spec":{"matchConstraints":{"matchPolicy":"X"}}}`,
			`spec.matchConstraints.matchPolicy: Unsupported value: "X": supported values: "Equivalent", "Exact"`},
		{`{"spec":{"matchConstraints":{"matchPolicy":null}}}`, ``},
		{`{"spec":{"matchConstraints":{"namespaceSelector":{"matchLabels":{"a b":"c"}}}}}`,
			`spec.matchConstraints.namespaceSelector.matchLabels: Invalid value: "a b"`},
		{`{"spec":{"matchConstraints":{"objectSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}}}`,
			`spec.matchConstraints.objectSelector.matchExpressions[0].values: Required value`},
		{`{"spec":{"matchConstraints":{"excludeResourceRules":[{` + ruleFields + `,"resourceNames":["a","a"]}]}}}`,
			`spec.matchConstraints.excludeResourceRules[0].resourceNames[1]: Duplicate value: "a"`},
		{`{"spec":{"matchConstraints":{"resourceRules":[{` + ruleFields + `,"resourceNames":["a/b"]}]}}}`,
			`spec.matchConstraints.resourceRules[0].resourceNames[0]: Invalid value: "a/b": may not contain '/'`},
		{`{"spec":{"matchConstraints":{"resourceRules":[{` + ruleFields + `},{` + ruleFields + `,"operations":[]}]}}}`,
			`spec.matchConstraints.resourceRules[1].operations: Required value`},
		{`{"spec":{"matchConditions":[{"name":"","expression":"true"}]}}`, `spec.matchConditions[0].name`},
		{`{"spec":{"variables":[{"name":" ","expression":"1"}]}}`, `spec.variables[0].name: Required value: name is not specified`},
		{`{"spec":{"variables":[{"name":"a","expression":" "}]}}`,
			`spec.variables[0].expression: Required value: expression is not specified`},
		{`{"spec":{"validations":[{"expression":" "}]}}`, `spec.validations[0].expression: Required value: expression is not specified`},
		{`{"spec":{"validations":[{"expression":"true","messageExpression":" "}]}}`,
			`spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified`},
		{`{"spec":{"validations":[{"expression":"true","message":" "}]}}`,
			`spec.validations[0].message: Invalid value: " ": must be non-empty if specified`},
		{`{"spec":{"validations":[{"expression":"true","message":"a\nb"}]}}`,
			`spec.validations[0].message: Invalid value: "a\nb": must not contain line breaks`},
		{`{"spec":{"validations":[{"expression":"true","message":"a\n"}]}}`, ``},
		{`{"spec":{"validations":[{"expression":"true","reason":"NotFound"}]}}`,
			`spec.validations[0].reason: Unsupported value: "NotFound": supported values: "Forbidden", "Invalid", ` +
				`"RequestEntityTooLarge"`},
		{`{"spec":{"validations":[{"expression":"true","reason":"Unauthorized"}]}}`,
			`spec.validations[0].reason: Unsupported value: "Unauthorized"`},
		{`{"spec":{"validations":[],"auditAnnotations":[]}}`,
			`spec.validations: Required value: validations or auditAnnotations must contain at least one item
			spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item`},
		{`{"spec":{"validations":null}}`, ``},
		{`{"spec":{"auditAnnotations":null}}`, ``},
		{`{"spec":{"auditAnnotations":[{"key":"a b","valueExpression":"'v'"}]}}`,
			`spec.auditAnnotations[0].key: Invalid value: "p.example.com/a b"`},
		{`{"spec":{"auditAnnotations":[{"key":"a","valueExpression":" "}]}}`,
			`spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified`},
		{`{"spec":{"auditAnnotations":[{"key":"a","valueExpression":"1"},{"key":"a","valueExpression":"1"}]}}`,
			`spec.auditAnnotations[1].key: Duplicate value: "a"`},
		{`{"spec":{"auditAnnotations":[{"key":"a","valueExpression":"` + strings.Repeat("1", valueExpressionBytesMax) + `"}]}}`, ``},
		{`{"spec":{"auditAnnotations":[{"key":"a","valueExpression":"` + strings.Repeat("1", valueExpressionBytesMax+1) + `"}]}}`,
			`spec.auditAnnotations[0].valueExpression: Required value: must not exceed 5120 bytes in length`},
		{`{"spec":{"auditAnnotations":[` + annotations(auditAnnotationsMax) + `]}}`, ``},
		{`{"spec":{"auditAnnotations":[` + annotations(auditAnnotationsMax+1) + `]}}`, `spec.auditAnnotations: Invalid value`},
	})
	errs := checkAuditAnnotations("p", make([]admissionregistrationv1.AuditAnnotation, auditAnnotationsMax+1), field.NewPath("a"))
	if len(errs) == 0 || errs[0].Detail != "must not have more than 20 auditAnnotations" {
		t.Errorf("got %v", errs)
	}
	for name, valid := range map[string]bool{"a": true, "_": true, "A": true, "z": true, "Z9z": true, "a_0": true, "9": false,
		"a-b": false, "a.b": false, "é": false, "a/": false, "a:": false, "{": false, "`": false, "[": false, "@": false, "in": false,
		"import": false, "ins": true} {
		want := `spec.variables[0].name: Invalid value: "` + name + `": must be a valid CEL identifier`
		if valid {
			want = ""
		}
		testCheck(t, validPolicy, CheckValidating,
			[][2]string{{`{"spec":{"variables":[{"name":"` + name + `","expression":"1"}]}}`, want}})
	}
}

func annotations(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"key":"a%d","valueExpression":"'v'"}`, i)
	}
	return strings.Join(all, ",")
}

func TestValidateMutating(t *testing.T) {
	testCheck(t, validMutating, CheckMutating, [][2]string{
		{`{}`, ``},
		{`{"spec":{"matchConstraints":{"resourceRules":[{` + ruleFields + `,"operations":["CONNECT","UPDATE"]}]}}}`, ``},
		{`{"spec":{"matchConstraints":{"resourceRules":[{` + ruleFields + `,"operations":["*"]}]}}}`, ``},
		{`{"spec":{"matchConstraints":{"resourceRules":[{` + ruleFields + `,"operations":["CREATE","DELETE"]}]}}}`,
			`spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", ` +
				`"CREATE", "UPDATE"`},
		{`{"spec":{"mutations":[]}}`, `spec.mutations: Required value: mutations must contain at least one item`},
		{`{"spec":{"mutations":[{}]}}`, `spec.mutations[0].patchType: Required value`},
		{`{"spec":{"mutations":[{"patchType":"X"}]}}`,
			`spec.mutations[0].patchType: Unsupported value: "X": supported values: "ApplyConfiguration", "JSONPatch"`},
		{`{"spec":{"mutations":[{"patchType":"JSONPatch"}]}}`,
			`spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch`},
		{`{"spec":{"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":" "}}]}}`,
			`spec.mutations[0].jsonPatch.expression: Required value`},
		{`{"spec":{"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[]"},` +
			`"applyConfiguration":{"expression":"Object{}"}}]}}`,
			`spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when ` +
				`patchType is JSONPatch`},
		{`{"spec":{"mutations":[{"patchType":"ApplyConfiguration"}]}}`,
			`spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration`},
		{`{"spec":{"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":" "}}]}}`,
			`spec.mutations[0].applyConfiguration.expression: Required value`},
		{`{"spec":{"mutations":[{"patchType":"ApplyConfiguration","jsonPatch":{"expression":"[]"},` +
			`"applyConfiguration":{"expression":"Object{}"}}]}}`,
			`spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is ApplyConfiguration`},
		{`{"spec":{"reinvocationPolicy":null}}`, `spec.reinvocationPolicy: Required value`},
		{`{"spec":{"reinvocationPolicy":"Never"}}`, ``},
		{`{"spec":{"reinvocationPolicy":"Always"}}`,
			`spec.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"`},
	})
	testCheck(t, validBinding, CheckMutatingBinding, [][2]string{
		{`{}`, ``},
		{`{"spec":{"policyName":""}}`, `spec.policyName: Required value`},
		{`{"spec":{"matchResources":{"resourceRules":[{` + ruleFields + `,"operations":["DELETE"]}]}}}`,
			`spec.matchResources.resourceRules.operations: Unsupported value: "DELETE"`},
	})
}

func TestValidateBinding(t *testing.T) {
	testCheck(t, validBinding, CheckValidatingBinding, [][2]string{
		{`{}`, ``},
		{`{"metadata":{"name":"B"}}`, `metadata.name: Invalid value: "B"`},
		{`{"spec":{"policyName":""}}`, `spec.policyName: Required value`},
		{`{"spec":{"policyName":"A"}}`, `spec.policyName: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		{`{"spec":{"policyName":"a-"}}`, `spec.policyName: Invalid value: "a-": a lowercase RFC 1123 subdomain`},
		{`{"metadata":{"namespace":"n"}}`, `metadata.namespace: Forbidden: not allowed on this type`},
		{`{"spec":{"paramRef":null}}`, ``},
		{`{"spec":{"matchResources":null}}`, ``},
		{`{"spec":{"matchResources":{"matchPolicy":"X"}}}`, `spec.matchResources.matchPolicy: Unsupported value: "X"`},
		{`{"spec":{"paramRef":{"name":"a/b"}}}`, `spec.paramRef.name: Invalid value: "a/b": may not contain '/'`},
		{`{"spec":{"paramRef":{"selector":{}}}}`, `spec.paramRef.name: Forbidden: name and selector are mutually exclusive
			spec.paramRef.selector: Forbidden: name and selector are mutually exclusive`},
		{`{"spec":{"paramRef":{"name":null,"selector":{}}}}`, ``},
		{`{"spec":{"paramRef":{"name":null,"selector":{"matchLabels":{"a b":"c"}}}}}`,
			`spec.paramRef.selector.matchLabels: Invalid value: "a b"`},
		{`{"spec":{"paramRef":{"name":null}}}`, `spec.paramRef: Required value: one of name or selector must be specified`},
		{`{"spec":{"paramRef":{"parameterNotFoundAction":null}}}`, `spec.paramRef.parameterNotFoundAction: Required value`},
		{`{"spec":{"paramRef":{"parameterNotFoundAction":""}}}`, `spec.paramRef.parameterNotFoundAction: Required value`},
		{`{"spec":{"paramRef":{"parameterNotFoundAction":"Allow"}}}`, ``},
		{`{"spec":{"paramRef":{"parameterNotFoundAction":"X"}}}`,
			`spec.paramRef.parameterNotFoundAction: Unsupported value: "X": supported values: "Deny", "Allow"`},
		{`{"spec":{"validationActions":[]}}`, `spec.validationActions: Required value: at least one validation action is required`},
		{`{"spec":{"validationActions":["X"]}}`,
			`spec.validationActions[0]: Unsupported value: "X": supported values: "Audit", "Deny", "Warn"`},
		{`{"spec":{"validationActions":["Audit","Warn"]}}`, ``},
		{`{"spec":{"validationActions":["Audit","Audit"]}}`, `spec.validationActions[1]: Duplicate value: "Audit"`},
		{`{"spec":{"validationActions":["Deny","Warn"]}}`,
			`spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn`},
	})
}

// testCheck applies each change to a valid object. It expects errors that begin with the
// change's lines.
func testCheck[T any](t *testing.T, valid string, check func(*T) field.ErrorList, cases [][2]string) {
	t.Helper()
	for _, test := range cases {
		changed, err := jsonpatch.MergePatch([]byte(valid), []byte(test[0]))
		if err != nil {
			t.Fatal(err)
		}
		object := new(T)
		if err := json.Unmarshal(changed, object); err != nil {
			t.Fatal(err)
		}
		errs := check(object)
		var want []string
		if test[1] != "" {
			want = strings.Split(test[1], "\n")
		}
		if len(errs) != len(want) {
			t.Errorf("%.200s: got %d errors, want %d: %v", test[0], len(errs), len(want), errs)
			continue
		}
		for i, err := range errs {
			if !strings.HasPrefix(err.Error(), strings.TrimSpace(want[i])) {
				t.Errorf("%.200s: got %v, want %s", test[0], err, strings.TrimSpace(want[i]))
			}
		}
	}
}

// TestReadRefusesBindings reads bindings that cannot be decoded.
func TestReadRefusesBindings(t *testing.T) {
	const head = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding",` +
		`"metadata":{"name":"b"},"spec":{"policyName":"p","validationActions":["Deny"]`
	for more, want := range map[string]string{`,"policy":"q"`: `unknown field "spec.policy"`, `,"matchResources":1`: "cannot unmarshal"} {
		documents, err := ReadValidating([]admission.File{{Name: "b.yaml", FromAPI: true, Content: []byte(head + more + "}}")}})
		if err == nil || !strings.Contains(err.Error(), want) || len(documents.Bindings) != 0 {
			t.Errorf("%s: got %v and %d bindings, want %s", more, err, len(documents.Bindings), want)
		}
	}
}
