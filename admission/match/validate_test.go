package match_test

import (
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission/match"
)

func TestNewErrors(t *testing.T) {
	f := func(criteria, want string) {
		t.Helper()
		c := new(match.Criteria)
		if err := yaml.UnmarshalStrict([]byte(criteria), c); err != nil {
			t.Fatalf("%s: %v", criteria, err)
		}
		m, err := match.New(c, field.NewPath("plugins").Index(1).Child("match"))
		if m != nil || err == nil || err.Error() != want {
			t.Errorf("%s\ngot  %v, %v\nwant %s", criteria, m, err, want)
		}
	}
	rule := func(operations, groups, versions, resources string) string {
		return "rules: [{operations: " + operations + ", apiGroups: " + groups + ", apiVersions: " + versions +
			", resources: " + resources + "}]"
	}
	const at = "plugins[1].match."
	f("rules: []", at+"rules: Required value: omit it to match everything that the plugin handles")
	f("rules: [{}]", "["+at+"rules[0].operations: Required value, "+at+"rules[0].apiGroups: Required value, "+
		at+"rules[0].apiVersions: Required value, "+at+"rules[0].resources: Required value]")
	f(rule("[Create]", "['*']", "['*']", "['*']"),
		at+`rules[0].operations[0]: Unsupported value: "Create": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`)
	f(rule("['*', CREATE]", "['*']", "['*']", "['*']"),
		at+`rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations`)
	f(rule("['*']", "['*', apps]", "['*']", "['*']"),
		at+`rules[0].apiGroups: Invalid value: ["*","apps"]: if '*' is present, must not specify other API groups`)
	f(rule("['*']", "['*']", "['*', v1]", "['*']"),
		at+`rules[0].apiVersions: Invalid value: ["*","v1"]: if '*' is present, must not specify other API versions`)
	f(rule("['*']", "['*']", "['']", "['*']"), at+`rules[0].apiVersions[0]: Required value`)
	f(rule("['*']", "['*']", "['*']", "['']"), at+`rules[0].resources[0]: Required value`)
	f(rule("['*']", "['*']", "['*']", "['pods/*', pods/exec]"),
		at+`rules[0].resources[1]: Invalid value: "pods/exec": if 'pods/*' is present, must not specify pods/exec`)
	f(rule("['*']", "['*']", "['*']", "['*/exec', pods/exec]"),
		at+`rules[0].resources[1]: Invalid value: "pods/exec": if '*/exec' is present, must not specify pods/exec`)
	f(rule("['*']", "['*']", "['*']", "['*/*', pods]"),
		at+`rules[0].resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources`)
	f(rule("['*']", "['*']", "['*']", "['*', pods]"),
		at+`rules[0].resources: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources`)
	f("rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: ['*'], scope: cluster}]",
		at+`rules[0].scope: Unsupported value: "cluster": supported values: "*", "Cluster", "Namespaced"`)

	f("namespaceSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}",
		at+`namespaceSelector.matchExpressions[0].operator: Invalid value: "in": not a valid selector operator`)
	f("namespaceSelector: {matchExpressions: [{key: a, operator: In}]}",
		at+"namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'")
	f("objectSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}",
		at+"objectSelector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
	f("objectSelector: {matchLabels: {a: '-'}}", at+`objectSelector.matchLabels: Invalid value: "-": `+
		"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "+
		"alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "+
		"'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")
}

// TestValidResources tests lists in which no resource includes another.
func TestValidResources(t *testing.T) {
	for _, resources := range []string{"['pods/*', pods]", "['*/exec', pods]", "['*', pods/exec]", "[pods/exec, 'pods/*']",
		"['pods/*', nodes/status]", "['*/*']"} {
		c := new(match.Criteria)
		text := "rules: [{operations: ['*'], apiGroups: ['*'], apiVersions: ['*'], resources: " + resources + "}]"
		if err := yaml.UnmarshalStrict([]byte(text), c); err != nil {
			t.Fatal(err)
		}
		if _, err := match.New(c, field.NewPath("match")); err != nil {
			t.Errorf("%s: got %v", resources, err)
		}
	}
}

// TestValidateConditions has the cases of kube-apiserver's validateMatchConditions
// (k8s.io/kubernetes pkg/apis/admissionregistration/validation).
func TestValidateConditions(t *testing.T) {
	type condition = admissionregistrationv1.MatchCondition
	f := func(want string, conditions ...condition) {
		t.Helper()
		errs := match.ValidateConditions(conditions, field.NewPath("c"))
		var got []string
		for _, err := range errs {
			got = append(got, err.Error())
		}
		if got := strings.Join(got, "\n"); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	many := func(n int) (all []condition) {
		for i := range n {
			all = append(all, condition{Name: fmt.Sprint("n", i), Expression: "true"})
		}
		return all
	}
	f("")
	f("", many(63)...)
	f("", many(64)...)
	f("c: Too many: 65: must have at most 64 items", many(65)...)
	f("", condition{Name: "example.com/a", Expression: "true"})
	f("c[0].expression: Required value", condition{Name: "a", Expression: " \n"})
	f("c[1].name: Required value", condition{Name: "a", Expression: "true"}, condition{Expression: "true"})
	f("c[0].name: Required value\nc[1].name: Required value", condition{Expression: "true"}, condition{Expression: "true"})
	f(`c[0].name: Invalid value: "/": prefix part must be non-empty`+"\n"+
		`c[0].name: Invalid value: "/": name part must be non-empty`+"\n"+
		`c[0].name: Invalid value: "/": name part must consist of alphanumeric characters, '-', '_' or '.', and must start `+
		`and end with an alphanumeric character `+
		`(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		condition{Name: "/", Expression: "true"})
	f(`c[2].name: Duplicate value: "a"`, condition{Name: "a", Expression: "true"}, condition{Name: "b", Expression: "true"},
		condition{Name: "a", Expression: "false"})
}
