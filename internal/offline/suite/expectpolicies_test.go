package suite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// TestExpectPolicies has all outcomes of policies, and messages.
func TestExpectPolicies(t *testing.T) {
	f := differences(t)
	result := func(all ...admission.PolicyExplanation) *report.Result {
		return &report.Result{Decision: report.Denied, Explanation: []*admission.Explanation{{Phase: "validate", Policies: all}}}
	}
	unmatched := admission.PolicyExplanation{Policy: "p", Why: "matchConstraints: none of its rules selects it"}
	with := func(name, outcome string, messages ...string) admission.PolicyExplanation {
		return admission.PolicyExplanation{Policy: name, Asked: true, Outcome: outcome, Message: "m", Messages: messages}
	}
	const want = "policies: p:\n- want denied\n+ got  "
	const denied = `{"policies":[{"names":["p"],"outcomes":["denied"]}]}`
	f(denied, result(with("p", "denied", "no")))
	f(denied, result(with("q", "warned"), unmatched, with("p", "denied", "no")))
	f(denied, result(with("p", "allowed")), want+"allowed by p: m")
	f(denied, result(with("p", "warned", "no")), want+"warned by p: m")
	f(denied, result(unmatched), want+"unmatched")
	f(denied, result(with("q", "denied", "no")), want+"none: no policy has such a name, or the review ended before")
	f(denied, result(with("p", "denied", "expression 'x' resulted in error: y")), want+"errored by p: m")
	f(denied, result(admission.PolicyExplanation{Policy: "p", Why: "matchConditions[0] c is false"}),
		want+"skipped by p: matchConditions[0] c is false")
	f(denied, result(admission.PolicyExplanation{Policy: "p", Why: "matchConditions[0] c is error: x"}),
		want+"errored by p: matchConditions[0] c is error: x")
	mutating := result(with("p", "denied"))
	mutating.Explanation[0].Phase = "mutate"
	f(denied, mutating, want+"errored by p: m")
	f(denied, result(with("p", "denied", "no"), with("p", "audited", "no")), want+"audited by p: m")
	f(`{"policies":[{"names":["p"],"outcomes":["allowed"]}]}`, result(with("p", "patched")))
	f(`{"policies":[{"names":["p"],"outcomes":["patched"]}]}`, result(with("p", "allowed")),
		"policies: p:\n- want patched\n+ got  allowed by p: m")
	f(`{"policies":[{"names":["p"],"outcomes":["skipped","unmatched"]}]}`, result(unmatched))

	patched, again := with("p", "patched"), admission.PolicyExplanation{Policy: "p", Pass: 2, Why: "matchConditions[0] c is false"}
	const allowed = `{"policies":[{"names":["p"],"outcomes":["allowed"]}]}`
	f(allowed, result(patched, again))
	f(allowed, result(unmatched, again), "policies: p:\n- want allowed\n+ got  skipped by p: matchConditions[0] c is false")
	f(allowed, result(patched, admission.PolicyExplanation{Policy: "p", Pass: 2, Asked: true, Outcome: "denied", Message: "m"}),
		"policies: p:\n- want allowed\n+ got  denied by p: m")
	rounds := result(patched)
	rounds.Explanation = append(rounds.Explanation, &admission.Explanation{Round: 2, Policies: result(again).Explanation[0].Policies})
	rounds.Explanation[1].Policies[0].Pass = 1
	f(allowed, rounds)

	both := result(with("p", "denied", "no tag"), with("q", "audited", "no team", "no tag"))
	f(`{"policies":[{"names":["p","q"],"messages":[{"count":3},{"text":{"matches":"^no t"}},{"text":"no tag","count":2}]}]}`, both)
	f(`{"policies":[{"names":["p","q"],"messages":[{"text":"no tag","count":1},{"text":"nothing"},{"text":"nothing","count":0}]}]}`, both,
		"policies: p, q: messages:\n- want 1 that is \"no tag\"\n+ got  2 of [\"no tag\" \"no team\" \"no tag\"]",
		"policies: p, q: messages:\n- want at least one that is \"nothing\"\n+ got  0 of [\"no tag\" \"no team\" \"no tag\"]")
	f(`{"decision":"allowed","policies":[{"names":["p"],"outcomes":["denied"]}]}`, result(with("p", "denied")),
		"decision:\n- want allowed\n+ got  denied by  (): ")
}

// TestWholeObject compares whole objects.
func TestWholeObject(t *testing.T) {
	f := func(whole, after, want string) {
		t.Helper()
		t.Chdir(t.TempDir())
		write(t, map[string]string{
			"s.yaml": head + "cases: [{name: a, object: w.yaml, expect: {wholeObject: w.yaml}}]\n", "w.yaml": whole,
		})
		s, err := Read(File{Name: "s.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		got := s.Cases[0].compareWhole(&report.Result{APIVersion: "v1", Kind: "Pod", Name: "a", Namespace: "default", After: []byte(after)})
		if len(got) > 0 != (want != "") || want != "" && got[0] != want {
			t.Errorf("%s and %s: got %q, want %q", whole, after, got, want)
		}
	}
	const stored = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"default","labels":{}},"spec":{"b":null}}`
	f(pod("b")+"---\n"+pod("a"), stored, "")
	f("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: default}\n", stored, "")
	const none = "object:\n- want Pod a\n+ got  none of this kind, namespace and name in w.yaml"
	f("apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: other}\n", stored, none)
	f(pod("b"), stored, none)
	f(pod("a"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"b":1}}`,
		"object:\n--- want\n+++ got\n@@ -2,3 +2,5 @@\n kind: Pod\n metadata:\n   name: a\n+spec:\n+  b: 1")
}

// TestReadExpectPolicies has errors in expected outcomes, and what a case adds to its suite.
func TestReadExpectPolicies(t *testing.T) {
	t.Chdir(t.TempDir())
	f := func(expect string, want ...string) {
		t.Helper()
		write(t, map[string]string{"s.yaml": head + "cases:\n- name: a\n  object: {apiVersion: v1, kind: Pod}\n  expect: " + expect + "\n"})
		_, err := Read(File{Name: "s.yaml"})
		if got := fmt.Sprint(err); got != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", expect, got, strings.Join(want, "\n"))
		}
	}
	const all = "allowed, patched, denied, warned, audited, errored, skipped, unmatched"
	const at = "s.yaml:6: cases[0].expect.policies[0]."
	f("{policies: [{names: [a], outcomes: [denied]}]}", "<nil>")
	f("{policies: [{names: [a], messages: [{}]}]}", "<nil>")
	f("{policies: [{names: [a]}]}", at+"outcomes: got none, want at least one of "+all+", or messages")
	f("{policies: [{names: [], outcomes: [failed]}]}", at+`names: got [], want names of policies`,
		at+`outcomes[0]: got "failed", want one of `+all)
	f("{policies: [{names: [a], messages: [{count: -1}]}]}", at+"messages[0].count: got -1, want at least 0")
	f("{policies: [{names: [a], outcomes: [denied]}], decision: x}",
		`s.yaml:6: cases[0].expect.decision: got "x", want one of allowed, patched, denied, failed`)
	f("{policies: []}", `s.yaml:6: cases[0].expect.decision: got "", want one of allowed, patched, denied, failed`)
	f("{wholeObject: none.yaml}",
		"s.yaml:6: cases[0].expect.wholeObject: none.yaml: stat none.yaml: no such file or directory")

	write(t, map[string]string{"s.yaml": head + `policies: [p.yaml]
defaults: false
cases:
- {name: a, policies: [q.yaml], object: p.yaml, expect: {policies: [{names: [a], outcomes: [denied]}]}}
- {name: b, defaults: true, object: p.yaml, expect: {decision: allowed}}
`, "p.yaml": pod("p"), "q.yaml": pod("q")})
	s, err := Read(File{Name: "s.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	a, b := s.setup(&s.Cases[0]), s.setup(&s.Cases[1])
	if names(a.Policies) != "Pod/p@1 Pod/q@1" || names(b.Policies) != "Pod/p@1" || !a.NoDefaults || b.NoDefaults ||
		!a.Explain || b.Explain {
		t.Errorf("got %+v and %+v", a, b)
	}
}
