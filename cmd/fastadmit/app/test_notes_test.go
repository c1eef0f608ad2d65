package app

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestTestNotes has cases that pass although they show nothing: policies that select nothing, and misspelled fields.
func TestTestNotes(t *testing.T) {
	t.Chdir(t.TempDir())
	misspelled := strings.Replace(latestPod, "spec: {", "spec: {hostNetwrok: true, ", 1)
	servertest.WriteFile(t, "pod.yaml", misspelled)
	servertest.WriteFile(t, "good.yaml", strings.Replace(latestPod, ":latest", ":1", 1))
	f := func(change func(policy string) string, object, expect string, notes ...string) {
		t.Helper()
		servertest.WriteFile(t, "latest.yaml", change(noLatest))
		servertest.WriteFile(t, "a.test.yaml",
			suiteHead+"policies: [latest.yaml]\ncases:\n- {name: a, object: "+object+", expect: {"+expect+"}}\n")
		code := 0
		if len(notes) > 0 {
			code = 2
		}
		tested(t, 0, append([]string{"1 passed"}, notes...), []string{"--strict"})
		tested(t, code, append([]string{"1 passed"}, notes...), nil, "--strict")
		out := tested(t, code, notes, nil, "--strict", "-o=junit")
		var all struct {
			Suites []struct {
				Output string `xml:"system-out"`
			} `xml:"testsuite"`
		}
		if err := xml.Unmarshal([]byte(out), &all); err != nil || len(all.Suites) != 1 {
			t.Fatalf("got %+v, %v from\n%s", all, err, out)
		}
		for _, note := range notes {
			if !strings.Contains(all.Suites[0].Output, note) {
				t.Errorf("got no %q in the system-out of\n%s", note, out)
			}
		}
	}
	replaced := func(old, by string) func(string) string {
		return func(policy string) string {
			if !strings.Contains(policy, old) {
				t.Fatalf("there is no %q", old)
			}
			return strings.Replace(policy, old, by, 1)
		}
	}
	same := replaced("# no", "# no")
	const idle = "a.test.yaml: policy no-latest.example.com is evaluated in no case, so nothing tests it (latest.yaml:2)"
	const field = `pod.yaml:4: unknown field "spec.hostNetwrok", did you mean hostNetwork?`
	f(same, "good.yaml", "decision: allowed")
	f(same, "good.yaml", "policies: [{names: [no-latest.example.com], outcomes: [allowed]}]")
	f(same, "pod.yaml", "decision: denied, warnings: []", field)
	f(replaced("resources: [pods]", "resources: [pod]"), "pod.yaml", "decision: allowed, warnings: []", field, idle)
	f(replaced("validationActions: [Deny]", "validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {a: b}}}"),
		"good.yaml", "decision: allowed", idle)
	f(replaced("  validations:", "  matchConditions: [{name: c, expression: 'false'}]\n  validations:"),
		"good.yaml", "decision: allowed", idle)
	f(replaced("policyName: no-latest.example.com", "policyName: others"), "good.yaml", "decision: allowed", idle)
	f(replaced("validationActions: [Deny]", "validationActions: [Deny], paramRef: {name: a, parameterNotFoundAction: Allow, namespace: b}"),
		"good.yaml", "decision: allowed")
	f(func(policy string) string {
		policy = replaced("  matchConstraints:", "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  matchConstraints:")(policy)
		return replaced("[Deny]", "[Deny], paramRef: {name: a, parameterNotFoundAction: Allow, namespace: b}")(policy)
	}, "good.yaml", "decision: allowed", idle)
	f(func(policy string) string {
		for _, name := range []string{"second", "third"} {
			policy += "---\n" + strings.ReplaceAll(noLatest, "no-latest", name)
		}
		return policy
	}, "{apiVersion: v1, kind: Secret, metadata: {name: a}}", "decision: allowed",
		"a.test.yaml: 3 policies are evaluated in no case, so nothing tests them: "+
			"no-latest.example.com, second.example.com, third.example.com")
	const unchanging = `patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "test", path: "/kind", value: "Pod"}]'}`
	f(func(policy string) string { return policy + "---\n" + mutation(unchanging) }, "good.yaml", "decision: allowed")

	// An object of two suites has one note on standard error. A failed case is worth more.
	servertest.WriteFile(t, "latest.yaml", noLatest)
	const object = "policies: [latest.yaml]\ncases:\n- {name: a, object: pod.yaml, expect: {decision: "
	servertest.WriteFile(t, "a.test.yaml", suiteHead+object+"denied}}\n")
	servertest.WriteFile(t, "b.test.yaml", suiteHead+object+"denied}}\n")
	if _, stderr, _ := execute("", "test"); stderr != "fastadmit: "+field+"\n" {
		t.Errorf("got %q", stderr)
	}
	servertest.WriteFile(t, "b.test.yaml", suiteHead+object+"allowed}}\n")
	tested(t, 1, []string{"FAIL", field}, []string{"--strict"}, "--strict")
}

// TestTestNotesElsewhere has notes on policies alone, which --strict counts too, and a test of another engine, which has none.
func TestTestNotesElsewhere(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", strings.Replace(latestPod, "spec: {", "spec: {hostNetwrok: true, ", 1))
	servertest.WriteFile(t, "latest.yaml", kyvernoLatest)
	servertest.WriteFile(t, "kyverno-test.yaml", "apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nmetadata: {name: t}\n"+
		"policies: [latest.yaml]\nresources: [pod.yaml]\n"+
		"results: [{policy: no-latest, isValidatingPolicy: true, kind: Pod, resources: [web], result: fail}]\n")
	tested(t, 0, []string{"1 passed"}, []string{"unknown field"}, "--strict")
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "latest.yaml", strings.Replace(noLatest, "!c.image", "!c.imge", 1))
	servertest.WriteFile(t, "a.test.yaml", suiteHead+"policies: [latest.yaml]\n"+
		"cases:\n- {name: a, object: pod.yaml, expect: {decision: denied}}\n")
	tested(t, 2, []string{"c.imge: no such field, did you mean image?", "--strict: all cases pass, with 1 note"}, nil,
		"--strict", "a.test.yaml")
}

// mutation returns a policy of Pods with a mutation, and its binding.
func mutation(text string) string {
	return `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label.example.com}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations: [{` + text + `}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label}
spec: {policyName: label.example.com}
`
}

// TestExpectMutationPolicy expects the policy of mutations that deny, which Kubernetes' message does not always name.
func TestExpectMutationPolicy(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	for path, message := range map[string]string{
		"/spec/nope":   "{contains: strict decoding error}",
		"/spec/nope/x": "{contains: \"policy 'label.example.com' with binding 'label' denied\"}",
	} {
		servertest.WriteFile(t, "policies.yaml",
			mutation(`patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "add", path: "`+path+`", value: "x"}]'}`))
		f := func(policy string) {
			t.Helper()
			servertest.WriteFile(t, "a.test.yaml", suiteHead+"policies: [policies.yaml]\ncases:\n- {name: a, object: pod.yaml, expect: "+
				"{decision: denied, plugin: MutatingAdmissionPolicy, policy: "+policy+", message: "+message+"}}\n")
		}
		f("label.example.com")
		tested(t, 0, []string{"1 passed"}, nil)
		f("another")
		tested(t, 1, []string{"  policy:\n  - want \"another\"\n  + got  \"label.example.com\"\n"}, []string{"message"})
	}
}
