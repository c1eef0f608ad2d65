package suite

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// expected decodes the expectation of a case.
func expected(t *testing.T, text string) *Expect {
	t.Helper()
	e := new(Expect)
	if err := json.Unmarshal([]byte(text), e); err != nil {
		t.Fatal(err)
	}
	return e
}

func warnings(all ...string) (findings []report.Finding) {
	for _, message := range all {
		findings = append(findings, report.Finding{Message: message})
	}
	return findings
}

// differences tests the reported differences between a result and the
// expectation.
func differences(t *testing.T) func(expect string, result *report.Result, want ...string) {
	return func(expect string, result *report.Result, want ...string) {
		t.Helper()
		if got := expected(t, expect).compare(result); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", expect, got, want)
		}
	}
}

func TestDecision(t *testing.T) {
	f := differences(t)
	allowed, patched := &report.Result{Decision: report.Allowed}, &report.Result{Decision: report.Patched, PatchedBy: []string{"A"}}
	denied := &report.Result{Decision: report.Denied, Plugin: "A", Code: 403, Reason: "Forbidden", Message: "no"}
	failed := &report.Result{Decision: report.Failed, Plugin: "A", Message: "away"}
	f(`{"decision":"allowed"}`, allowed)
	f(`{"decision":"allowed"}`, patched)
	f(`{"decision":"patched"}`, patched)
	f(`{"decision":"patched"}`, allowed, "decision:\n- want patched\n+ got  allowed")
	f(`{"decision":"allowed"}`, denied, "decision:\n- want allowed\n+ got  denied by A (403 Forbidden): no")
	f(`{"decision":"denied"}`, patched, "decision:\n- want denied\n+ got  allowed, patched by A")
	f(`{"decision":"denied","plugin":"B"}`, failed, "decision:\n- want denied\n+ got  failed: away") // and nothing else
	f(`{"decision":"failed","plugin":"A","message":"away"}`, failed)
	// The first created object that is not allowed decides.
	made := &report.Result{Decision: report.Allowed, Created: []*report.Result{patched, denied, failed}}
	f(`{"decision":"denied","message":"no"}`, made)
	f(`{"decision":"failed"}`, made, "decision:\n- want failed\n+ got  denied by A (403 Forbidden): no")
	f(`{"decision":"patched"}`, &report.Result{Decision: report.Allowed, Created: []*report.Result{patched}},
		"decision:\n- want patched\n+ got  allowed")
	f(`{"decision":"allowed"}`, &report.Result{Decision: report.Skipped, Message: "x"}, "decision:\n- want allowed\n+ got  skipped: x")
}

func TestFields(t *testing.T) {
	f := differences(t)
	const message = `pods "web" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: images must have a version`
	denied := &report.Result{Decision: report.Denied, Plugin: "A", Policy: "p", Code: 422, Reason: "Invalid", Message: message}
	f(`{"decision":"denied","plugin":"A","policy":"p","code":422,"reason":"Invalid","message":"images must have a version"}`, denied)
	f(`{"decision":"denied","message":{"contains":"is forbidden"}}`, denied)
	f(`{"decision":"denied","message":{"matches":"^pods .* version$"}}`, denied)
	f(`{"decision":"denied","plugin":"B","policy":"q","code":403,"reason":"Forbidden","message":"images"}`, denied,
		"plugin:\n- want \"B\"\n+ got  \"A\"", "policy:\n- want \"q\"\n+ got  \"p\"", "reason:\n- want \"Forbidden\"\n+ got  \"Invalid\"",
		"code:\n- want 403\n+ got  422",
		"message:\n- want \"images\"\n+ got  \""+strings.ReplaceAll(message, `"`, `\"`)+`"`)
	f(`{"decision":"denied","message":{"contains":"away"}}`, &report.Result{Decision: report.Denied, Message: "no"},
		"message:\n- want a text that contains \"away\"\n+ got  \"no\"")
	f(`{"decision":"denied","message":{"matches":"^o"}}`, &report.Result{Decision: report.Denied, Message: "no"},
		"message:\n- want a text that matches \"^o\"\n+ got  \"no\"")
	f(`{"decision":"denied","policy":"p"}`, &report.Result{Decision: report.Denied, Policy: "p", Message: "no"})
	f(`{"decision":"denied","policy":"p"}`, &report.Result{Decision: report.Denied, Message: "no"}, "policy:\n- want \"p\"\n+ got  \"\"")
	f(`{"decision":"denied","code":0}`, denied, "code:\n- want 0\n+ got  422")
}

func TestWarnings(t *testing.T) {
	f := func(expect string, got []string, want ...string) {
		t.Helper()
		result := &report.Result{Decision: report.Allowed}
		if len(got) > 0 { // the last denial is that of a created object
			result.Warnings = warnings(got[:len(got)-1]...)
			result.Created = []*report.Result{{Decision: report.Allowed, Warnings: warnings(got[len(got)-1])}}
		}
		differences(t)(`{"decision":"allowed","warnings":`+expect+`}`, result, want...)
	}
	f(`null`, []string{"a"})
	f(`[]`, nil)
	f(`["a","b"]`, []string{"b", "a"})
	f(`["said"]`, []string{"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': said"})
	f(`[]`, []string{"a", "b"}, "warnings:\n- want no other\n+ got  \"a\"", "warnings:\n- want no other\n+ got  \"b\"")
	f(`["a","c"]`, []string{"a", "b"}, "warnings:\n- want \"c\"\n+ got  [\"a\" \"b\"]", "warnings:\n- want no other\n+ got  \"b\"")
	// Each expected warning stands for one warning.
	f(`["a","a"]`, []string{"a", "a"})
	f(`["a","a"]`, []string{"a"}, "warnings:\n- want \"a\"\n+ got  [\"a\"]")
	f(`["a"]`, []string{"a", "a"}, "warnings:\n- want no other\n+ got  \"a\"")
	f(`[{"contains":"a"},{"contains":"a"}]`, []string{"ab"}, "warnings:\n- want a text that contains \"a\"\n+ got  [\"ab\"]")
	// The order does not matter, even if a general text comes before a specific
	// one.
	f(`[{"contains":"a"},"ab"]`, []string{"ab", "ax"})
	f(`[{"matches":"."},{"contains":"a"},"ab"]`, []string{"ab", "ax", "x"})
	f(`[{"contains":"a"},"ab"]`, []string{"ab", "x"}, "warnings:\n- want \"ab\"\n+ got  [\"ab\" \"x\"]",
		"warnings:\n- want no other\n+ got  \"x\"")
}

func TestAnnotations(t *testing.T) {
	f := differences(t)
	result := &report.Result{Decision: report.Allowed, Response: []byte(`{"response":{"auditAnnotations":{"k":"v","l":"w"}}}`)}
	f(`{"decision":"allowed","auditAnnotations":{"k":"v"}}`, result)
	f(`{"decision":"allowed","auditAnnotations":{"l":"x","k":{"contains":"v"},"m":"y"}}`, result,
		"auditAnnotations: l:\n- want \"x\"\n+ got  \"w\"",
		"auditAnnotations: m:\n- want \"y\"\n+ got  none of that key, but [\"k\" \"l\"]")
	f(`{"decision":"allowed","auditAnnotations":{"m":"y"}}`, &report.Result{Decision: report.Allowed},
		"auditAnnotations: m:\n- want \"y\"\n+ got  none of that key, but []")
}

func TestObject(t *testing.T) {
	f := func(expect string, want ...string) {
		t.Helper()
		differences(t)(`{"decision":"patched",`+expect+`}`, &report.Result{
			Decision: report.Patched, After: []byte(`{"a":1,"b":{"c":[{"d":1,"e":2},3]}}`), Patch: []byte(`[{"op":"remove","path":"/x"}]`),
		}, want...)
	}
	f(`"patch":[{"path":"/x","op":"remove"}]`)
	f(`"patch":[]`, "patch:\n--- want\n+++ got\n@@ -1 +1,2 @@\n-[]\n+- op: remove\n+  path: /x")
	f(`"object":{"a":1}`)
	f(`"object":{"b":{"c":[{"e":2},3]}}`)
	f(`"object":{"x":null}`)
	f(`"object":{"a":2}`, "object:\n--- want\n+++ got\n@@ -1,4 +1,4 @@\n-a: 2\n+a: 1\n b:\n   c:\n   - d: 1")
	f(`"object":{"a":null}`, "object:\n--- want\n+++ got\n@@ -1,3 +1,4 @@\n+a: 1\n b:\n   c:\n   - d: 1")
	f(`"object":{"b":{"c":[{"d":1}]}}`, "object:\n--- want\n+++ got\n@@ -3,3 +3,4 @@\n   c:\n   - d: 1\n     e: 2\n+  - 3")
	f(`"object":{"b":{"c":{"f":1}}}`, "object:\n--- want\n+++ got\n@@ -1,4 +1,6 @@\n a: 1\n b:\n   c:\n-    f: 1\n+  - d: 1\n+    e: "+
		"2\n+  - 3")
	differences(t)(`{"decision":"allowed","patch":[]}`, &report.Result{Decision: report.Allowed})
}
