package review

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/files"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// TestFieldIn has messages of plugins that begin with a field, as Kubernetes' errors do, and others that do not.
func TestFieldIn(t *testing.T) {
	f := func(message, want string) {
		t.Helper()
		finding := report.Finding{Plugin: "Test", Message: message}
		new(reviewer).explainCause(&finding)
		if got := strings.Join(finding.Paths, " "); got != want {
			t.Errorf("%s: got %q, want %q", message, got, want)
		}
	}
	f(`spec.replicas: Invalid value: 0: too few`, "spec.replicas")
	f(`pods "a" is forbidden: spec.containers[0].image: Unsupported value: "x"`, "spec.containers[0].image")
	f(`pods "a" is forbidden: [spec.a: Required value, spec.b: Required value]`, "spec.a")
	f(`Pod "a" is invalid: metadata.labels[a.b/c]: Too long: no`, "metadata.labels[a.b/c]")
	f(`pods "x: spec.b: Invalid value: \" is forbidden: spec.c: Forbidden: y" is forbidden: spec.a: Forbidden: no`, "spec.a")
	f(`pods "spec.b: Invalid value: " is forbidden: no`, "")
	f("see spec.a: Invalid value", "")
	f("spec.a: it is bad", "")
	f("spec.a: Invalid values", "")
	f("error: no", "")
}

// TestLineOf finds the lines of fields of an object, and of those of the Pods that it makes.
func TestLineOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "web.yaml")
	content := "# web\n---\napiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 2\n  template:\n    spec:\n      hostPID: true\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	items := manifest.Read([]string{file}, nil, files.Everywhere)
	if len(items) != 1 {
		t.Fatalf("got %d objects, want 1", len(items))
	}
	deployment := written{given: items[0].JSON, object: &items[0].Object}
	for paths, want := range map[string][2]int{ // of the Deployment, and of its Pod
		"spec.replicas": {6, 0}, "spec.hostPID": {0, 9}, "spec": {5, 8}, "kind apiVersion": {0, 0}, "kind spec.replicas": {6, 0},
		"spec.template spec.hostPID spec.none": {7, 9}, "": {0, 0},
	} {
		for i, of := range []written{deployment, deployment.pod("spec.template")} {
			r := reviewer{written: of}
			if got := r.lineOf(strings.Fields(paths)); got != want[i] {
				t.Errorf("%q of %d: got line %d, want %d", paths, i, got, want[i])
			}
		}
	}
}

// TestRules finds the rule of what policies say.
func TestRules(t *testing.T) {
	var r reviewer
	for _, v := range []admission.Violation{
		{Policy: "p", Binding: "b", Rule: "validations[0]", Message: "no", Paths: []string{"spec.a"}},
		{Policy: "p", Binding: "b", Rule: "validations[0]", Message: "no", Paths: []string{"spec.a"}}, // for another parameter
		{Policy: "p", Binding: "b", Rule: "validations[1]", Message: "same"},
		{Policy: "p", Binding: "b", Rule: "validations[2]", Message: "same", Paths: []string{"spec.b"}},
		{Policy: "p", Binding: "b", Rule: "validations[3]", Message: "two\nlines"},
	} {
		r.noteViolation(v)
	}
	f := func(policy, binding, message, rule string, paths ...string) {
		t.Helper()
		finding := report.Finding{Plugin: "Test", Policy: policy, Binding: binding, Message: message}
		r.explainCause(&finding)
		if finding.Rule != rule || !slices.Equal(finding.Paths, paths) {
			t.Errorf("%s: got %q and %q, want %q and %q", message, finding.Rule, finding.Paths, rule, paths)
		}
	}
	f("p", "b", "denied request: no", "validations[0]", "spec.a")
	f("p", "b", "with binding 'b': two lines", "validations[3]")
	f("p", "b", "denied request: same", "") // of two rules, so nobody knows
	f("p", "b", "denied request: it is no", "")
	f("p", "c", "denied request: no", "")
	f("q", "b", "denied request: no", "")
	f("p", "b", "denied request: spec.a: Invalid value: 1", "") // the text of a policy is its author's
}
