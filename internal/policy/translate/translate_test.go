package translate_test

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

var now = time.Date(2026, time.June, 1, 0, 0, 0, 0, time.UTC)

// TestStatusOnly has what tests of Kyverno compare a policy with.
func TestStatusOnly(t *testing.T) {
	const ready = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nstatus: {ready: true}\n"
	if objects, problems := translated(t, ready, translate.Options{}); objects+problems != "" {
		t.Errorf("got %s%s, want nothing", objects, problems)
	}
	if _, problems := translated(t, ready+"spec: {}\n", translate.Options{}); !strings.Contains(problems, "spec.rules: got none") {
		t.Errorf("with a spec: got %q, want an error", problems)
	}
}

// split returns the documents of a text in YAML as JSON.
func split(t *testing.T, documents string) (texts [][]byte) {
	t.Helper()
	for _, document := range strings.Split(documents, "\n---\n") {
		text, err := yaml.YAMLToJSON([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	return texts
}

// translated returns the policies and bindings as YAML, and the problems, one in each line.
func translated(t *testing.T, documents string, o translate.Options) (objects, problems string) {
	t.Helper()
	result := translate.Translate(split(t, documents), o)
	var validating, mutating []admission.File
	for _, p := range result.Policies {
		all, err := p.Objects()
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range all {
			file := admission.File{Name: p.Rule, Content: text, FromAPI: true}
			if p.Mutating != nil {
				mutating = append(mutating, file)
			} else {
				validating = append(validating, file)
			}
			shown, err := yaml.JSONToYAML(text)
			if err != nil {
				t.Fatal(err)
			}
			objects += string(shown) + "---\n"
		}
	}
	if _, err := policy.ReadValidating(validating); err != nil {
		t.Errorf("the translation is invalid: %v\n%s", err, objects)
	}
	if _, err := policy.ReadMutating(mutating); err != nil {
		t.Errorf("the translation is invalid: %v\n%s", err, objects)
	}
	for _, p := range result.Problems {
		kind := "error: "
		if p.IsNote {
			kind = "note: "
		}
		problems += kind + p.Error() + "\n"
	}
	return objects, problems
}

func celPolicy(kind, spec string) string {
	return "apiVersion: policies.kyverno.io/v1\nkind: " + kind + "\nmetadata: {name: p, namespace: team}\nspec:\n" +
		"  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n" + spec
}

const (
	valid  = "  validations: [{expression: 'true'}]\n"
	noAuto = "  autogen: {podControllers: {controllers: []}}\n"
	change = "  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[]'}}]\n"
)

// A row tests a field of a document. The translation must contain all of want and none of not.
type row struct {
	name, documents string
	want, not       []string
	problem         string // a part of the errors and notes; "" if there must be none
}

// flat joins the lines of YAML, because their breaks depend on the length of values.
func flat(text string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "''", "'")), " ")
}

func check(t *testing.T, rows []row, o translate.Options) {
	t.Helper()
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			objects, problems := translated(t, r.documents, o)
			for _, text := range r.want {
				if !strings.Contains(flat(objects), flat(text)) {
					t.Errorf("got no %q in\n%s%s", text, objects, problems)
				}
			}
			for _, text := range r.not {
				if strings.Contains(flat(objects), flat(text)) {
					t.Errorf("got %q in\n%s", text, objects)
				}
			}
			if r.problem == "" && problems != "" || !strings.Contains(problems, r.problem) {
				t.Errorf("got the problems %q, want %q", problems, r.problem)
			}
			if strings.HasPrefix(r.problem, "error: ") && objects != "" {
				t.Errorf("got a translation of a document with an error:\n%s", objects)
			}
		})
	}
}

func TestValidatingPolicy(t *testing.T) {
	check(t, []row{
		{
			name:      "deny by default",
			documents: celPolicy("ValidatingPolicy", noAuto+valid),
			want:      []string{"name: p\n", "validationActions:\n  - Deny\n"},
		},
		{
			name:      "actions",
			documents: celPolicy("ValidatingPolicy", noAuto+valid+"  validationActions: [Audit, Warn]\n"),
			want:      []string{"- Audit\n  - Warn\n"},
		},
		{
			name:      "older versions",
			documents: strings.Replace(celPolicy("ValidatingPolicy", noAuto+valid), "io/v1", "io/v1alpha1", 1),
			want:      []string{"policyName: p\n"},
		},
		{name: "one to one", documents: celPolicy("ValidatingPolicy", noAuto+valid+"  variables: [{name: a, expression: '1'}]\n"+
			"  auditAnnotations: [{key: k, valueExpression: \"'v'\"}]\n  webhookConfiguration: {timeoutSeconds: 3}\n"),
			want: []string{"variables:\n  - expression: \"1\"\n    name: a\n", "auditAnnotations:\n  - key: k\n"}},
		{
			name:      "Ignore",
			documents: celPolicy("ValidatingPolicy", noAuto+valid+"  failurePolicy: Ignore\n"),
			want:      []string{"failurePolicy: Ignore"},
			problem:   "note: spec.failurePolicy",
		},
		{name: "namespaced", documents: celPolicy("NamespacedValidatingPolicy", noAuto+valid),
			want: []string{"name: team.p\n", "key: kubernetes.io/metadata.name\n        operator: In\n        values:\n        - team\n"}},
		{name: "not at admission", documents: celPolicy("ValidatingPolicy", noAuto+valid+"  evaluation: {admission: {enabled: false}}\n"),
			want: []string{"name: p\n"}, not: []string{"policyName"}, problem: "note: spec.evaluation.admission.enabled"},
		{
			name:      "other payloads",
			documents: celPolicy("ValidatingPolicy", noAuto+valid+"  evaluation: {mode: JSON}\n"),
			problem:   "error: spec.evaluation.mode: got \"JSON\"",
		},
		{name: "names of conditions",
			documents: celPolicy("ValidatingPolicy", noAuto+valid+
				"  matchConditions: [{name: 'is it so?', expression: 'true'}, {name: is it so, expression: 'true'}]\n"),
			want: []string{"name: is-it-so\n", "name: is-it-so-2\n"}},
		{
			name:      "lines of messages",
			documents: celPolicy("ValidatingPolicy", noAuto+"  validations: [{expression: 'true', message: \"a\\nb\"}]\n"),
			want:      []string{"message: a b\n"},
		},
		{name: "request.object",
			documents: celPolicy("ValidatingPolicy", noAuto+
				"  validations: [{expression: \"request.object.a == 'request.object.a'\"}]\n"),
			want: []string{"expression: object.a == 'request.object.a'\n"}},
		{
			name:      "unknown field",
			documents: celPolicy("ValidatingPolicy", noAuto+valid+"  validation: []\n"),
			problem:   `error: spec.validation: unknown field "spec.validation"`,
		},
		{name: "mutations", documents: celPolicy("ValidatingPolicy", noAuto+valid+change), problem: "error: spec.mutations: "},
		{name: "function", documents: celPolicy("ValidatingPolicy", noAuto+"  validations: [{expression: \"http.Get('http://a').b\"}]\n"),
			problem: "error: spec.validations[0].expression: the function http.Get"},
		{
			name:      "function in a text",
			documents: celPolicy("ValidatingPolicy", noAuto+"  validations: [{expression: \"'http.Get(' == ''\"}]\n"),
			want:      []string{"'http.Get('"},
		},
		{name: "service account",
			documents: celPolicy("ValidatingPolicy", noAuto+
				"  validations: [{expression: \"parseServiceAccount(request.userInfo.username).Name == 'a'\"}]\n"),
			want: []string{"[request.userInfo.username].map(a, "}, not: []string{"parseServiceAccount"}},
		{name: "image",
			documents: celPolicy("ValidatingPolicy", noAuto+
				"  validations: [{expression: \"!image(object.a).containsDigest() && image(object.a).registry() == ''\"}]\n"),
			want: []string{".digest.matches('.')", ".registry == ''"}, not: []string{"image(", "registry()"}},
		{name: "namespace of the object",
			documents: celPolicy("ValidatingPolicy", noAuto+
				"  validations: [{expression: \"resource.Get('v1', 'namespaces', '', request.namespace).metadata.name != ''\"}]\n"),
			want: []string{"expression: namespaceObject.metadata.name != ''"}, not: []string{"paramKind"}},
		{name: "an object by its name",
			documents: celPolicy("ValidatingPolicy", noAuto+
				"  validations: [{expression: \"resource.Get('v1', 'configmaps', 'ns', 'cm').data.a != ''\"}]\n"),
			want: []string{"paramKind:\n    apiVersion: v1\n    kind: ConfigMap\n", "expression: params.data.a != ''",
				"name: cm\n    namespace: ns\n    parameterNotFoundAction: Deny\n"},
			problem: "note: spec: it reads ConfigMap \"ns/cm\""},
		{name: "two objects by their names", documents: celPolicy("ValidatingPolicy", noAuto+
			"  validations: [{expression: \"resource.Get('v1', 'configmaps', 'ns', 'a') == resource.Get('v1', 'configmaps', 'ns', "+
			"'b')\"}]\n"),
			problem: "error: spec.validations[0].expression: the function resource.Get"},
	}, translate.Options{Now: now})
}

func TestAutogen(t *testing.T) {
	const reads = "  validations: [{expression: \"object.spec.a == object.metadata.namespace && object.metadata.labels == " +
		"oldObject.spec\"}]\n"
	check(t, []row{
		{name: "all", documents: celPolicy("ValidatingPolicy", reads),
			want: []string{"name: p.autogen-defaults\n", "name: p.autogen-cronjobs\n",
				"- daemonsets\n      - deployments\n      - replicasets\n      - statefulsets\n",
				"object.spec.template.spec.a == object.metadata.namespace && object.spec.template.metadata.labels\n" +
					"      == oldObject.spec.template.spec",
				"object.spec.jobTemplate.spec.template.spec.a"}},
		{name: "some",
			documents: celPolicy("ValidatingPolicy", valid+"  autogen: {podControllers: {controllers: [deployments, Deployment]}}\n"),
			want:      []string{"- deployments\n"}, not: []string{"autogen-cronjobs", "daemonsets"}},
		{name: "none", documents: celPolicy("ValidatingPolicy", noAuto+valid), not: []string{"autogen"}},
		{
			name:      "workloadPods",
			documents: celPolicy("ValidatingPolicy", valid),
			want: []string{"annotations:\n    policies.fastadmit.io/workload-pods: \"off\"\n  name: p\n",
				"metadata:\n  name: p.autogen-defaults\n"},
		},
		{name: "workloadPods without variants", documents: celPolicy("ValidatingPolicy", noAuto+valid),
			want: []string{"annotations:\n    policies.fastadmit.io/workload-pods: \"off\"\n  name: p\n"}},
		{name: "workloadPods of the document", documents: strings.Replace(celPolicy("ValidatingPolicy", noAuto+valid), "namespace: team",
			"annotations: {policies.fastadmit.io/workload-pods: warn}", 1), want: []string{"workload-pods: warn\n"}, not: []string{"off"}},
		{
			name:      "workloadPods where Kyverno makes no variants",
			documents: strings.Replace(celPolicy("ValidatingPolicy", valid), "[pods]", "[pods, services]", 1),
			not:       []string{"workload-pods"},
		},
		{
			name: "an empty map for the next mutation",
			documents: celPolicy("MutatingPolicy", noAuto+"  mutations:\n"+
				"  - {patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/spec/a\", value: {}}]'}}\n"+
				"  - {patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/spec/a/b\", value: \"\"}]'}}\n"),
			problem: "note: spec.mutations[0].jsonPatch.expression: the empty map that it adds is gone in the next mutation",
		},
		{
			name: "an empty map for nobody",
			documents: celPolicy("MutatingPolicy", noAuto+"  mutations:\n"+
				"  - {patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/spec/affinity\", value: {}}]'}}\n"),
		},
		{name: "workloadPods of mutations", documents: celPolicy("MutatingPolicy", change), not: []string{"workload-pods"}},
		{name: "the annotation is for ClusterPolicies", documents: strings.Replace(celPolicy("ValidatingPolicy", valid), "namespace: team",
			"annotations: {pod-policies.kyverno.io/autogen-controllers: none}", 1), want: []string{"autogen-defaults"}},
		{name: "not for selected objects",
			documents: strings.Replace(celPolicy("ValidatingPolicy", valid), "{resourceRules",
				"{objectSelector: {matchLabels: {a: b}}, resourceRules", 1),
			not: []string{"autogen"}},
		{name: "mutation",
			documents: celPolicy("MutatingPolicy",
				"  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{spec: Object.spec{a: "+
					"object.spec.b}}'}}]\n"),
			want: []string{"Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{a:\n" +
				"        object.spec.template.spec.b}}}}"}},
	}, translate.Options{Now: now})
}

func TestMutatingPolicy(t *testing.T) {
	check(t, []row{
		{
			name:      "binding",
			documents: celPolicy("MutatingPolicy", noAuto+change),
			want:      []string{"kind: MutatingAdmissionPolicyBinding", "policyName: p\n", "reinvocationPolicy: Never"},
		},
		{
			name:      "reinvocation",
			documents: celPolicy("MutatingPolicy", noAuto+change+"  reinvocationPolicy: IfNeeded\n"),
			want:      []string{"reinvocationPolicy: IfNeeded"},
		},
		{name: "variables in conditions", documents: celPolicy("MutatingPolicy", noAuto+change+
			"  variables: [{name: a, expression: '1'}, {name: b, expression: 'variables.a + 1'}]\n"+
			"  matchConditions: [{name: c, expression: 'variables.b > 1'}]\n"),
			want: []string{"expression: ((1) + 1) > 1\n"}},
		{
			name:      "other objects",
			documents: celPolicy("MutatingPolicy", noAuto+change+"  targetMatchConstraints: {resourceRules: []}\n"),
			problem:   "error: spec.targetMatchConstraints",
		},
		{name: "existing objects",
			documents: celPolicy("MutatingPolicy", noAuto+change+"  evaluation: {mutateExisting: {enabled: true}}\n"),
			want:      []string{"policyName: p\n"}, problem: "note: spec.evaluation.mutateExisting.enabled"},
		{
			name:      "server-side apply",
			documents: celPolicy("MutatingPolicy", noAuto+change+"  evaluation: {useServerSideApply: true}\n"),
			problem:   "error: spec.evaluation.useServerSideApply",
		},
		{name: "validations", documents: celPolicy("MutatingPolicy", noAuto+change+valid), problem: "error: spec.validations"},
		{name: "namespaced", documents: celPolicy("NamespacedMutatingPolicy", noAuto+change), want: []string{"name: team.p\n", "- team\n"}},
		{
			name:      "other kinds",
			documents: celPolicy("ImageValidatingPolicy", ""),
			problem:   "error: kind: ImageValidatingPolicy of policies.kyverno.io/v1 has no translation: it verifies signatures",
		},
	}, translate.Options{Now: now})
}

func exception(spec string) string {
	return "\n---\napiVersion: policies.kyverno.io/v1\nkind: PolicyException\nmetadata: {name: e, namespace: x}\nspec:\n" +
		"  policyRefs: [{name: p, kind: ValidatingPolicy}]\n" + spec
}

func TestExceptions(t *testing.T) {
	plain := celPolicy("ValidatingPolicy", noAuto+valid)
	reads := celPolicy("ValidatingPolicy", noAuto+"  validations: [{expression: \"object.a in exceptions.allowedValues\"}]\n")
	check(t, []row{
		{name: "full", documents: plain + exception("  matchConditions: [{name: a, expression: 'a'}, {name: b, expression: 'b'}]\n"),
			want: []string{"expression: '!((a) && (b))'\n    name: except-e\n"}},
		{name: "always", documents: plain + exception(""), want: []string{"expression: '!(true)'"}},
		{
			name:      "ended",
			documents: plain + exception("  expiresAt: '2026-05-31T00:00:00Z'\n"),
			not:       []string{"except-e"},
			problem:   "note: spec.expiresAt: the exception ended",
		},
		{
			name:      "ends",
			documents: plain + exception("  expiresAt: '2026-06-02T00:00:00Z'\n"),
			want:      []string{"except-e"},
			problem:   "note: spec.expiresAt: the translation does not end",
		},
		{
			name:      "not a time",
			documents: plain + exception("  expiresAt: tomorrow\n"),
			want:      []string{"name: p\n"},
			problem:   "spec.expiresAt: got",
		},
		{name: "values", documents: reads + exception("  allowedValues: [x]\n  matchConditions: [{name: a, expression: 'a'}]\n"),
			want: []string{"object.a in variables.exceptions.allowedValues", "((a) ? ['x'] : [", "name: exceptions\n"},
			not:  []string{"except-e"}},
		{
			name:      "another policy",
			documents: celPolicy("MutatingPolicy", noAuto+change) + exception(""),
			not:       []string{"except-e"},
			problem:   "note: spec.policyRefs",
		},
	}, translate.Options{Now: now})
}

func clusterPolicy(kind, spec, rule string) string {
	return "apiVersion: kyverno.io/v1\nkind: " + kind + "\nmetadata: {name: p, namespace: team}\nspec:\n" + spec +
		"  rules:\n  - name: Rule one\n" + rule
}

// classicRule returns a rule that matches m.
func classicRule(m string) string { return "    match: " + m + "\n" + classicCEL }

// A rule of a ClusterPolicy: what it matches, and how it validates.
const (
	classicMatch = "    match: {any: [{resources: {kinds: [Service], operations: [CREATE]}}]}\n"
	classicCEL   = "    validate: {message: said, cel: {expressions: [{expression: 'true'}, {expression: 'true', message: own}]}}\n"
)

func TestClusterPolicy(t *testing.T) {
	check(t, []row{
		{name: "audit by default", documents: clusterPolicy("ClusterPolicy", "", classicMatch+classicCEL),
			want: []string{"name: p.rule-one\n", "validationActions:\n  - Audit\n", "message: said\n", "message: own\n", "- services\n",
				"operations:\n      - CREATE\n", "failurePolicy: Fail"}},
		{
			name:      "enforce",
			documents: clusterPolicy("ClusterPolicy", "  validationFailureAction: enforce\n", classicMatch+classicCEL),
			want:      []string{"- Deny\n"},
		},
		{
			name: "action of the rule",
			documents: clusterPolicy("ClusterPolicy", "", classicMatch+
				strings.Replace(classicCEL, "message: said", "failureAction: Enforce", 1)),
			want: []string{"- Deny\n"},
		},
		{name: "overrides",
			documents: clusterPolicy("ClusterPolicy", "  validationFailureActionOverrides: [{action: Enforce, namespaces: [a]}]\n",
				classicMatch+classicCEL),
			want: []string{"name: p.rule-one.0\n", "operator: In\n", "operator: NotIn\n", "- Audit\n", "- Deny\n"}},
		{
			name:      "no such action",
			documents: clusterPolicy("ClusterPolicy", "  validationFailureAction: Stop\n", classicMatch+classicCEL),
			problem:   "error: spec.validationFailureAction: got \"Stop\"",
		},
		{
			name: "preconditions",
			documents: clusterPolicy("ClusterPolicy", "", classicMatch+classicCEL+
				"    celPreconditions: [{name: a, expression: 'true'}]\n"),
			want: []string{"matchConditions:\n  - expression: \"true\"\n    name: a\n"},
		},
		{name: "parameters",
			documents: clusterPolicy("ClusterPolicy", "", classicMatch+
				strings.Replace(classicCEL, "cel: {",
					"cel: {paramKind: {apiVersion: v1, kind: ConfigMap}, paramRef: {name: c, namespace: d, parameterNotFoundAction: "+
						"Deny}, ", 1)),
			want: []string{"kind: ConfigMap\n", "paramRef:\n    name: c\n"}},
		{
			name:      "namespaced",
			documents: clusterPolicy("Policy", "", classicMatch+classicCEL),
			want:      []string{"name: team.p.rule-one\n", "- team\n"},
		},
		{name: "all operations",
			documents: clusterPolicy("ClusterPolicy", "", classicRule("{any: [{resources: {kinds: [apps/v1/Deployment]}}]}")),
			want:      []string{"- CREATE\n      - UPDATE\n      - DELETE\n      - CONNECT\n", "- apps\n", "- v1\n", "- deployments\n"}},
		{name: "kinds",
			documents: clusterPolicy("ClusterPolicy", "",
				classicRule("{any: [{resources: {kinds: [Pod/exec, Application, '*/Service']}}]}")),
			want: []string{"- pods/exec\n", "- applications\n", "- services\n"}},
		{
			name:      "names",
			documents: clusterPolicy("ClusterPolicy", "", classicRule("{any: [{resources: {kinds: [Service], names: [a, 'b*']}}]}")),
			want:      []string{"in ['a']", "matches('^b.*$')"},
		},
		{
			name: "labels",
			documents: clusterPolicy("ClusterPolicy", "",
				classicRule("{any: [{resources: {kinds: [Service], selector: {matchLabels: {a: b}}}}]}")),
			want: []string{".metadata.labels['a'] in ['b']"},
		},
		{
			name:      "namespaces",
			documents: clusterPolicy("ClusterPolicy", "", classicRule("{any: [{resources: {kinds: [Service], namespaces: ['kube-*']}}]}")),
			want:      []string{"request.namespace.matches('^kube-.*$')"},
		},
		{
			name: "subjects",
			documents: clusterPolicy("ClusterPolicy", "",
				classicRule("{any: [{resources: {kinds: [Service]}, subjects: [{kind: User, name: u}]}]}")),
			want: []string{"request.userInfo.username in ['u']"},
		},
		{
			name:      "roles",
			documents: clusterPolicy("ClusterPolicy", "", classicRule("{any: [{resources: {kinds: [Service]}, clusterRoles: [admin]}]}")),
			problem:   "error: spec.rules[0].match: roles and clusterRoles",
		},
		{
			name: "exclude",
			documents: clusterPolicy("ClusterPolicy", "", classicMatch+classicCEL+
				"    exclude: {any: [{resources: {kinds: [Service], namespaces: [a]}}]}\n"),
			want: []string{"name: exclude\n", "!((request.kind.kind in"},
		},
		{
			name:      "pods",
			documents: clusterPolicy("ClusterPolicy", "", classicRule("{any: [{resources: {kinds: [Pod]}}]}")),
			want: []string{"- pods/ephemeralcontainers\n", "p.autogen-rule-one", "p.autogen-cronjob-rule-one",
				"- replicationcontrollers\n"},
		},
	}, translate.Options{Now: now})
}

func TestClusterPolicyRefused(t *testing.T) {
	check(t, []row{
		{name: "no workloads",
			documents: strings.Replace(clusterPolicy("ClusterPolicy", "", classicRule("{any: [{resources: {kinds: [Pod]}}]}")),
				"namespace: team",
				"annotations: {pod-policies.kyverno.io/autogen-controllers: none}", 1), not: []string{"autogen"}},
		{
			name:      "patterns",
			documents: clusterPolicy("ClusterPolicy", "", classicMatch+"    validate: {pattern: {}}\n"),
			problem:   "error: spec.rules[0].validate.pattern: it has no translation",
		},
		{
			name:      "mutate",
			documents: clusterPolicy("ClusterPolicy", "", classicMatch+"    mutate: {}\n"),
			problem:   "error: spec.rules[0].mutate",
		},
		{
			name: "one of several rules",
			documents: clusterPolicy("ClusterPolicy", "  applyRules: One\n", classicMatch+classicCEL+"  - name: two\n"+classicMatch+
				classicCEL),
			problem: "error: spec.applyRules",
		},
	}, translate.Options{Now: now})
}

// TestDenyAndWarn leaves out what Kubernetes refuses in one binding, with a note.
func TestDenyAndWarn(t *testing.T) {
	const spec = noAuto + valid + "  validationActions: [Deny, Warn, Deny, Audit]\n"
	const note = "note: spec.validationActions: Warn is left out beside Deny, because Kubernetes does not warn of what it denies\n"
	if objects, problems := translated(t, celPolicy("ValidatingPolicy", spec), translate.Options{}); problems != note ||
		!strings.Contains(objects, "validationActions:\n  - Deny\n  - Audit\n") {
		t.Errorf("got %s\n%s", objects, problems)
	}
	scoped := template(source, "") + constraint("  enforcementAction: scoped\n  scopedEnforcementActions: "+
		"[{action: warn, enforcementPoints: [{name: '*'}]}, {action: deny, enforcementPoints: [{name: '*'}]}]\n")
	if objects, problems := translated(t, scoped, translate.Options{}); !strings.HasPrefix(problems,
		"note: spec.scopedEnforcementActions: Warn is left out") ||
		!strings.Contains(objects, "validationActions:\n  - Deny\n") {
		t.Errorf("got %s\n%s", objects, problems)
	}
}

func TestMayBeForeign(t *testing.T) {
	for text, want := range map[string]bool{
		"apiVersion: kyverno.io/v1\nkind: ClusterPolicy\n":                                               true,
		"apiVersion: \"kyverno\\u002eio/v1\"\nkind: ClusterPolicy\n":                                     true,
		`{"apiVersion":"constraints.gatekeeper.sh/v1beta1","kind":"Labels"}`:                             true,
		"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\n":                 false,
		"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy # not kyverno's\n": false,
	} {
		if got := translate.MayBeForeign([]byte(text)); got != want {
			t.Errorf("%s: got %t, want %t", text, got, want)
		}
	}
}
