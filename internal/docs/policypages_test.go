package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	somePolicy = `# Objects are small.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: small.fastadmit.io}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], resources: [configmaps, configmaps/status], operations: [CREATE]}
  matchConditions:
  # Only those
  # with data.
  - name: has-data
    expression: has(object.data)
  variables:
  # Names.
  - name: most
    expression: "['a', 'b']"
  - name: names
    expression: object.data.map(k, object.data[k])
  validations:
  - {expression: 'variables.names.all(n, n in variables.most)', message: too large}
`
	someSuite = `apiVersion: fastadmit.io/v1alpha1
kind: TestSuite
namespace: shop
cases:
- name: an update
  object:
    {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {c: d}}
  oldObject: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
  expect: {decision: denied}
- name: other data
  object:
    {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {c: d}}
  expect: {decision: denied}
- name: none
  object:
    {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
  expect: {decision: allowed}
- name: data
  object:
    {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {c: a}}
  expect: {decision: allowed}
`
)

// pagesOf makes the pages in a folder that has a chart with one policy.
func pagesOf(t *testing.T, policy, suite string) (map[string]string, error) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		policyLibrary:                      "| baseline | `small` with `most: \"[]\"` |\n| restricted | `smaller` |\n",
		policiesFolder + "small.yaml":      policy,
		policiesFolder + "small.test.yaml": suite,
	} {
		err := os.MkdirAll(filepath.Dir(name), 0o755)
		if err == nil {
			err = os.WriteFile(name, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return policyPages()
}

func TestPolicyPages(t *testing.T) {
	pages, err := pagesOf(t, somePolicy, someSuite)
	page := pages[policyPagesFolder+"small.md"]
	if err != nil || len(pages) != 1 {
		t.Fatalf("got %d pages, %v", len(pages), err)
	}
	if got := WithoutGenerated(page); got != "# small\n\n\n" {
		t.Errorf("got %q outside of the generated block", got)
	}
	for _, want := range []string{
		"-->\nObjects are small.\n",
		"\nIt is a ValidatingAdmissionPolicy, ",
		": baseline with `most: \"[]\"`.\n",
		"\n| `v1` | `configmaps`, `configmaps/status` | CREATE |\n",
		"\n- `has-data`: `has(object.data)`\n  Only those with data.\n",
		"\n    small:\n      validationActions: [Deny] #",
		"\n        # Names.\n        most: \"['a', 'b']\"\n```\n",
		"\nThese are two of the 4 cases of [its tests](../../deploy/chart/policies/small.test.yaml).\n",
		"\n`denied.yaml`, the case \"other data\":\n\n```yaml\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {c: d}}\n```\n",
		"\n`allowed.yaml`, the case \"data\":\n",
		"\n$ bin/fastadmit review denied.yaml allowed.yaml -n shop --policies=deploy/chart/policies/small.yaml --bind-policies\n" +
			"denied.yaml:1: ConfigMap shop/a: denied by ",
		" denied request: too large\nallowed.yaml:1: ConfigMap shop/a: allowed\n",
		"\n```yaml\napiVersion: admissionregistration.k8s.io/v1\nkind: V",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("got no %q in\n%s", want, page)
		}
	}
}

func TestPolicyPagesErrors(t *testing.T) {
	f := func(old, replacement, want string) {
		t.Helper()
		policy, suite := strings.Replace(somePolicy, old, replacement, 1), strings.Replace(someSuite, old, replacement, 1)
		if policy == somePolicy && suite == someSuite {
			t.Fatalf("there is no %q", old)
		}
		if _, err := pagesOf(t, policy, suite); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", replacement, err, want)
		}
	}
	f("    resourceRules:\n", "    matchPolicy: Exact\n    resourceRules:\n", `unknown field "matchPolicy"`)
	f("resources: [configmaps", "scope: Cluster, resources: [configmaps", `unknown field "scope"`)
	f("- name: none\n  object:\n", "- object:\n", "got 4 cases, of which 3 begin")
	f("data: {c: d}}\n  expect: {decision: denied}", "data: {c: d}}\n  expect: {decision: allowed}", "got no two cases")
	f("['a', 'b']", "['a', 'd']", "want denied.yaml: denied by ValidatingAdmissionPolicy")
}

func TestExamplesOf(t *testing.T) {
	f := func(reached, other string, objects ...string) {
		t.Helper()
		text := "cases:"
		for i, object := range objects {
			decision := "allowed"
			if i == 0 {
				decision = "denied"
			}
			text += fmt.Sprintf("\n- name: %c\n  object:\n    {kind: A, %s}\n  expect: {decision: %s}", 'a'+i, object, decision)
		}
		_, cases, err := readCases(text + "\n")
		if err != nil {
			t.Fatal(err)
		}
		gotReached, gotOther := examplesOf(cases)
		if gotOther == nil || gotReached.Name != reached || gotOther.Name != other {
			t.Errorf("%q: got %+v and %+v, want %s and %s", objects, gotReached, gotOther, reached, other)
		}
	}
	f("a", "c", "x: 1", "y: 1", "x: 2")                            // all fields
	f("a", "c", "x: {z: 1}, y: 1", "x: {z: 2}", "x: {z: 2}, y: 2") // also inside
	f("a", "c", "x: 1", "x: 2", "x: 1, y: 1")                      // the same values
	f("a", "c", "x: 1", "x: 1, y: 1, z: 1", "x: 1, y: 2")          // few others
	f("a", "b", "x: 1", "x: 2", "x: 3")                            // the first
	f("a", "c", "x: [{y: 1}, {y: 2}]", "x: []", "x: [{y: 3}]")
	f("a", "c", "x: 1", "x: 1, kind: B", "z: 1")
}
