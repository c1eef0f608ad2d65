package match_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/match"
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
		return "rules: [{operations: " + operations + ", apiGroups: " + groups + ", apiVersions: " + versions + ", resources: " + resources + "}]"
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
		"alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')")
}
