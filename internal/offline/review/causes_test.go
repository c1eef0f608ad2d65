package review

import (
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
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
