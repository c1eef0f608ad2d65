package suite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/files"
)

const convertedPolicy = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: p}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: 'true'}]
`

// TestConvertHostile converts tests with names and files that are made to do harm. What comes out can be read, and says the same.
func TestConvertHostile(t *testing.T) {
	t.Chdir(t.TempDir())
	const name = "a\nkind: b\x1b[2J.yaml"
	const object = "o\n# b: {}.yaml"
	test := func(results string) string {
		return "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: \"x\\n- y\"}\npolicies: [p.yaml]\n" +
			"resources: [\"o\\n# b: {}.yaml\", q.yaml]\nresults:\n" + results
	}
	write(t, map[string]string{
		name: test("- {policy: p, resources: [a], result: pass, \"a\\n::error\": 1}\n" +
			"- {policy: p, resources: [\"q: \\n- r\", a, a], result: pass}\n"),
		"p.yaml": convertedPolicy, object: "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {b: \"c\\n---\\nd\\n\"}}\n",
		"q.yaml": pod("b") + "---\n" + pod(`"q: \n- r"`),
	})
	text, isForeign, errs := Convert(File{name, files.Tree(".")})
	if err := errors.Join(errs...); !isForeign || err == nil || err.Error() !=
		name+":7: results[0].a\n::error: a suite cannot say it; remove it from a copy of the test if no result depends on it" {
		t.Errorf("got the error %v", err)
	}
	if !strings.HasPrefix(string(text), `# From a\nkind: b\x1b[2J.yaml, for its folder.`+"\napiVersion: ") {
		t.Errorf("got the first lines of\n%s", text)
	}
	write(t, map[string]string{"s.yaml": string(text)})
	s, err := Read(File{"s.yaml", files.Tree(".")})
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var got []string
	for i := range s.Cases {
		got = append(got, fmt.Sprintf("%q %q %q", s.Cases[i].Name, s.Cases[i].Object.path, s.Cases[i].object[0].Metadata.Name))
	}
	want := []string{
		`"p/q: \n- r#2" "" "q: \n- r"`, `"p/a#2" "o\n# b: {}.yaml" "a"`, `"p/a#2 (2)" "o\n# b: {}.yaml" "a"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") || s.Name != "x\n- y" {
		t.Errorf("got the suite %q with the cases\n%s\nwant\n%s", s.Name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestConvertLarge checks that rows which all name the same large objects make no suite that nobody can read.
func TestConvertLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("with the race detector it takes a minute")
	}
	t.Chdir(t.TempDir())
	large := pod("a") + "data: " + strings.Repeat("x", 1<<20) + "\n---\n" + pod("b")
	write(t, map[string]string{
		"p.yaml": convertedPolicy, "o.yaml": large,
		"kyverno-test.yaml": "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\npolicies: [p.yaml]\nresources: [o.yaml]\nresults:\n" +
			strings.Repeat("- {policy: p, resources: [a], result: pass}\n", 1000),
	})
	text, _, errs := Convert(File{"kyverno-test.yaml", files.Tree(".")})
	const want = "kyverno-test.yaml:1: the suite would have more than 16777216 bytes of objects and names, the maximum of a file; "
	if err := errors.Join(errs...); text != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %d bytes and %v, want %s", len(text), err, want)
	}
}

// TestConvertOldKinds converts a test with an object of a version that Kubernetes no longer has, and that no CustomResourceDefinition
// can have. Only the case of this object is refused. The test writes a field in another case, as its engine may read it.
func TestConvertOldKinds(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, map[string]string{
		"p.yaml": convertedPolicy, "o.yaml": pod("a") + "---\napiVersion: batch/v1beta1\nkind: CronJob\nmetadata: {name: b}\n",
		"kyverno-test.yaml": "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\npolicies: [p.yaml]\nresources: [o.yaml]\nresults:\n" +
			"- {policy: p, resources: [a, b], isVAlidatingPolicy: true, result: pass}\n",
	})
	text, _, errs := Convert(File{"kyverno-test.yaml", files.Tree(".")})
	const want = "kyverno-test.yaml:6: results[0].resources: o.yaml:5: the kind CronJob of batch/v1beta1 is unknown, and " +
		"CustomResourceDefinition: spec.group: got \"batch\", want a domain with at least one dot"
	if err := errors.Join(errs...); err == nil || err.Error() != want || !strings.Contains(string(text), "name: p/a#1") ||
		strings.Contains(string(text), "p/b#1") {
		t.Errorf("got %v, want %s, and the case of a in\n%s", err, want, text)
	}
}
