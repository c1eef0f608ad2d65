package translate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// shown returns the policies of a cluster's documents: their names, what happens to requests if
// they have a fault, and the fault.
func shown(t *testing.T, documents string, at time.Time) (all string, result *translate.Result) {
	t.Helper()
	result = translate.Translate(split(t, documents), translate.Options{Now: at, Cluster: true})
	for _, p := range result.Policies {
		var name string
		if p.Mutating != nil {
			name = p.Mutating.Name
		} else {
			name = p.Validating.Name
		}
		all += fmt.Sprintf("%s %v %s\n", name, p.Ignores, p.Fault)
	}
	return all, result
}

// TestCluster translates the documents of a cluster: what cannot be evaluated says so, and keeps
// its rules and what its failure policy asks.
func TestCluster(t *testing.T) {
	f := func(what, documents, want string) {
		t.Helper()
		if got, _ := shown(t, documents, now); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", what, got, want)
		}
	}
	const listed = noAuto + "  validations: [{expression: \"resource.List('v1', 'pods', '').items.size() > 0\"}]\n"
	const fault = "spec.validations[0].expression: the function resource.List of Kyverno has no translation: expressions of " +
		"Kubernetes read " +
		"no other objects of the cluster: put what the policy needs into parameters (paramKind, paramRef), or have fastadmit " +
		"evaluate the document itself (policies.read)"
	one := func(spec string) string { return celPolicy("ValidatingPolicy", spec) }
	f("good", one(noAuto+"  validations: [{expression: 'true'}]\n"), "p false \n")
	f("no translation", one(listed), "p false "+fault+"\n")
	f("it ignores errors", one(listed+"  failurePolicy: Ignore\n"), "p true "+fault+"\n")
	f("it does not deny", one(listed+"  validationActions: [Warn]\n"), "p true "+fault+"\n")
	f("a newer field", one(noAuto+"  newer: true\n  validations: [{expression: 'true'}]\n"),
		"p false spec.newer: unknown field \"spec.newer\"; a newer release of the engine may have it: remove it, or keep that engine "+
			"for this policy\n")
	f("no objects of requests", one(noAuto+"  evaluation: {mode: JSON}\n  validations: [{expression: 'true'}]\n"), "")
	f("changes of other objects", celPolicy("MutatingPolicy", noAuto+"  targetMatchConstraints: {}\n"), "")
	f("equal names", one(noAuto+"  validations: [{expression: 'true'}]\n")+"\n---\n"+
		one(noAuto+"  validations: [{expression: 'true'}]\n"), "p false \np false \n")

	pods := "{any: [{resources: {kinds: [Service]}}]}"
	rules := clusterPolicy("ClusterPolicy", "  validationFailureAction: Enforce\n", classicRule(pods))
	f("a rule", rules, "p.rule-one false \n")
	f("a rule beside one of another engine", rules+"\n  - name: other\n    match: "+pods+"\n    validate: {pattern: {}}\n",
		"p.rule-one false \n")
	f("a rule that cannot be evaluated", strings.Replace(rules, pods, "{any: [{clusterRoles: [a], resources: {kinds: [Service]}}]}", 1),
		"p.rule-one false spec.rules[0].match: roles and clusterRoles have no translation, as expressions do not see bindings of RBAC: "+
			"use subjects, or ask the authorizer in a match condition\n")

	f("Rego", strings.Replace(template(source, ""), ", {engine: K8sNativeValidation, source: "+source+"}", "", 1)+constraint(""), "")
	f("a template with an error", template(strings.Replace(source, "name: v,", "name: params,", 1), "")+constraint(""),
		`k.c false kind: the ConstraintTemplate "k", which defines the kind K, has no translation`+"\n")
	f("no template", strings.TrimPrefix(constraint(""), "\n---\n"), "")
}

// TestEnds says when to translate again.
func TestEnds(t *testing.T) {
	documents := celPolicy("ValidatingPolicy", noAuto+"  validations: [{expression: 'false'}]\n") +
		exception("  expiresAt: '2026-06-01T00:00:01Z'\n")
	_, before := shown(t, documents, now)
	_, at := shown(t, documents, now.Add(time.Second))
	if len(before.Policies[0].Validating.Spec.MatchConditions) != 1 || !before.Ends.Equal(now.Add(time.Second)) {
		t.Errorf("before: got %v, %v", before.Policies[0].Validating.Spec.MatchConditions, before.Ends)
	}
	if len(at.Policies[0].Validating.Spec.MatchConditions) != 0 || !at.Ends.IsZero() {
		t.Errorf("at the end: got %v, %v", at.Policies[0].Validating.Spec.MatchConditions, at.Ends)
	}
}

// TestWrittenOut bounds what variables and functions become.
func TestWrittenOut(t *testing.T) {
	spec := noAuto + "  matchConditions: [{name: c, expression: 'variables.v40 == 1'}]\n  mutations: [{patchType: JSONPatch, jsonPatch: " +
		"{expression: '[]'}}]\n  variables:\n  - {name: v0, expression: '1'}\n"
	for i := range 40 {
		spec += fmt.Sprintf("  - {name: v%d, expression: variables.v%d + variables.v%d}\n", i+1, i, i)
	}
	if _, problems := translated(t, celPolicy("MutatingPolicy", spec), translate.Options{}); !strings.Contains(problems,
		"spec.matchConditions[0].expression: with the variables written out, it is made of more than 131072 bytes") {
		t.Errorf("got %.300s", problems)
	}
	calls := func(n int) string {
		return celPolicy("ValidatingPolicy", noAuto+"  validations: [{expression: \"["+
			strings.Repeat("isImage('a'), ", n-1)+"isImage('a')].all(x, x)\"}]\n")
	}
	if _, problems := translated(t, calls(64), translate.Options{}); problems != "" {
		t.Errorf("64 calls: got %s", problems)
	}
	if _, problems := translated(t, calls(65), translate.Options{}); !strings.Contains(problems, "written out for at most 64 calls") {
		t.Errorf("65 calls: got %s", problems)
	}
}
