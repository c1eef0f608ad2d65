package translate_test

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

const source = `{validations: [{expression: 'variables.params.a == 1', message: m}], variables: [{name: v, expression: '1'}]}`

func template(source, more string) string {
	return `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k}
spec:
  crd: {spec: {names: {kind: K}, validation: {openAPIV3Schema: {
    type: object, properties: {a: {type: integer, default: 7}, b: {type: array, items: {properties: {c: {default: d}}}}}}}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code: [{engine: Rego, source: {rego: package a}}, {engine: K8sNativeValidation, source: ` + source + `}]
` + more
}

func constraint(spec string) string {
	return "\n---\napiVersion: constraints.gatekeeper.sh/v1beta1\nkind: K\nmetadata: {name: c}\nspec:\n" +
		"  parameters: {b: [{e: 1.5}]}\n" + spec
}

func TestGatekeeper(t *testing.T) {
	match := func(m string) string { return template(source, "") + constraint("  match: "+m+"\n") }
	check(t, []row{
		{name: "plain", documents: template(source, "") + constraint(""),
			want: []string{"name: k.c\n", "- Deny\n", "- expression: object\n    name: anyObject\n",
				"dyn({'a': dyn(7), 'b': dyn([dyn({'c': dyn('d'), 'e': dyn(1.5)})])})", "name: v\n",
				"resources:\n      - '*'\n", "- CREATE\n      - UPDATE\n"}, not: []string{"matchConditions"}},
		{
			name: "no parameters",
			documents: template(source, "") +
				strings.Replace(constraint(""), "parameters: {b: [{e: 1.5}]}", "enforcementAction: deny", 1),
			want: []string{"dyn(null)"},
		},
		{name: "warn", documents: template(source, "") + constraint("  enforcementAction: warn\n"), want: []string{"- Warn\n"}},
		{name: "dryrun", documents: template(source, "") + constraint("  enforcementAction: dryrun\n"), want: []string{"- Audit\n"}},
		{
			name:      "no such action",
			documents: template(source, "") + constraint("  enforcementAction: stop\n"),
			problem:   "error: spec.enforcementAction: got \"stop\"",
		},
		{name: "scoped", documents: template(source, "") +
			constraint("  enforcementAction: scoped\n"+
				"  scopedEnforcementActions: [{action: warn, enforcementPoints: [{name: validation.gatekeeper.sh}]}, {action: "+
				"dryrun, enforcementPoints: [{name: '*'}]}]\n"),
			want: []string{"- Warn\n  - Audit\n"}},
		{name: "scoped to audits", documents: template(source, "") +
			constraint("  enforcementAction: scoped\n"+
				"  scopedEnforcementActions: [{action: deny, enforcementPoints: [{name: audit.gatekeeper.sh}]}]\n"),
			want: []string{"name: k.c\n"}, not: []string{"policyName"}, problem: "note: spec.scopedEnforcementActions"},
		{name: "kinds", documents: match("{kinds: [{apiGroups: ['', apps], kinds: [Pod, Deployment]}]}"),
			want: []string{"- pods\n      - deployments\n"}, not: []string{"match-kinds"}},
		{name: "kinds of all groups", documents: match("{kinds: [{apiGroups: ['*'], kinds: [Pod]}]}"),
			want: []string{"- pods\n", "request.kind.kind in ['Pod']"}},
		{name: "kinds and a group", documents: match("{kinds: [{apiGroups: [''], kinds: [Pod]}, {apiGroups: [apps], kinds: ['*']}]}"),
			want: []string{"- pods\n", "(request.kind.group in [''] && request.kind.kind in ['Pod']) || (request.kind.group in ['apps'])"}},
		{name: "all kinds", documents: match("{kinds: [{apiGroups: ['*'], kinds: ['*']}]}"), not: []string{"match-kinds"}},
		{
			name:      "other kinds",
			documents: match("{kinds: [{apiGroups: [example.com], kinds: [Mouse]}]}"),
			want:      []string{"- example.com\n", "- '*'\n", "in ['Mouse']"},
		},
		{
			name:      "namespaces",
			documents: match("{namespaces: [a, b]}"),
			want:      []string{"operator: In\n        values:\n        - a\n        - b\n"},
		},
		{name: "globs", documents: match("{namespaces: ['a*']}"), want: []string{"request.namespace.matches('^a.*$')"}},
		{name: "excluded namespaces", documents: match("{excludedNamespaces: [a]}"), want: []string{"operator: NotIn\n"}},
		{
			name:      "excluded globs",
			documents: match("{excludedNamespaces: ['*-system']}"),
			want:      []string{"!(request.namespace.matches('^.*-system$'))"},
		},
		{name: "name", documents: match("{name: a-*}"), want: []string{".metadata.generateName.matches('^a-.*$')"}},
		{name: "exact name", documents: match("{name: a}"), want: []string{".metadata.name in ['a']"}, not: []string{"generateName"}},
		{name: "selectors", documents: match("{labelSelector: {matchLabels: {a: b}}, namespaceSelector: {matchLabels: {c: d}}}"),
			want: []string{"objectSelector:\n      matchLabels:\n        a: b\n",
				"namespaceSelector:\n      matchLabels:\n        c: d\n"}},
		{name: "scope", documents: match("{scope: Cluster}"), want: []string{"scope: Cluster\n"}},
		{name: "no such scope", documents: match("{scope: cluster}"), want: []string{"name: k.c\n"}, problem: "note: spec.match.scope"},
		{
			name:      "generated objects",
			documents: match("{source: Generated}"),
			not:       []string{"policyName"},
			problem:   "note: spec.match.source",
		},
		{name: "unknown field", documents: match("{kind: []}"), problem: "error: spec.match.kind: unknown field"},
	}, translate.Options{})
}

func TestGatekeeperTemplates(t *testing.T) {
	check(t, []row{
		{
			name:      "operations",
			documents: template(source, "    operations: [DELETE]\n") + constraint(""),
			want:      []string{"operations:\n      - DELETE\n", "object == null ? oldObject : object'\n    name: anyObject\n"},
		},
		{name: "conditions",
			documents: template(strings.Replace(source, "{validations",
				"{matchCondition: [{name: a, expression: 'true'}], failurePolicy: Ignore, validations", 1), "") + constraint(""),
			want: []string{"matchConditions:\n  - expression: \"true\"\n    name: a\n", "failurePolicy: Ignore\n"}},
		{name: "conditions by Kubernetes' name",
			documents: template(strings.Replace(source, "{validations", "{matchConditions: [], validations", 1), "") + constraint(""),
			problem:   "error: spec.targets[0].code[1].source.matchConditions: unknown field"},
		{
			name:      "reserved variable",
			documents: template(strings.Replace(source, "name: v", "name: params", 1), "") + constraint(""),
			problem:   "error: spec.targets[0].code[1].source.variables[0].name",
		},
		{
			name:      "only Rego",
			documents: strings.Replace(template(source, ""), "K8sNativeValidation", "Other", 1) + constraint(""),
			problem:   "error: spec.targets[0].code: there is no code for the engine K8sNativeValidation",
		},
		{name: "no template", documents: strings.TrimPrefix(constraint(""), "\n---\n"), problem: "error: kind: no ConstraintTemplate"},
		{
			name:      "mutators",
			documents: "apiVersion: mutations.gatekeeper.sh/v1\nkind: Assign\nmetadata: {name: a}",
			problem:   "error: kind: Assign of mutations.gatekeeper.sh/v1 has no translation",
		},
	}, translate.Options{})
	check(t, []row{{name: "scoped to tests", want: []string{"- Warn\n"}, documents: template(source, "") +
		constraint("  enforcementAction: scoped\n"+
			"  scopedEnforcementActions: [{action: warn, enforcementPoints: [{name: gator.gatekeeper.sh}]}]\n")}},
		translate.Options{Point: "gator.gatekeeper.sh"})
}
