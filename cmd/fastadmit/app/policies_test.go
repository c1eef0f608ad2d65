package app

import (
	"os"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

const noLatest = `# no :latest
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-latest.example.com}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
  validations:
  - expression: object.spec.containers.all(c, !c.image.endsWith(':latest'))
    message: images must have a version
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-latest}
spec: {policyName: no-latest.example.com, validationActions: [Deny]}
`

const latestPod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: 'nginx:latest'}]}\n"

const deniedLatest = "Pod default/web: denied by ValidatingAdmissionPolicy (422 Invalid): pods \"web\" is forbidden: " +
	"ValidatingAdmissionPolicy 'no-latest.example.com' with binding 'no-latest' denied request: images must have a version"

// TestReviewPolicies reviews with policies that no configuration names.
func TestReviewPolicies(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "latest.yaml", noLatest)
	servertest.WriteFile(t, "pod.yaml", latestPod)
	reviewed(t, "", 1, []string{"pod.yaml:1: " + deniedLatest}, nil, "pod.yaml", "--policies=latest.yaml")
	// Objects of all versions in the files of --policies, together with other objects.
	for _, version := range []string{"admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1",
		"policies.fastadmit.io/v1"} {
		servertest.WriteFile(t, "versions.yaml",
			strings.ReplaceAll(noLatest, "admissionregistration.k8s.io/v1", version)+"---\nkind: Kustomization\n---\n"+latestPod)
		reviewed(t, "", 1, []string{deniedLatest, "1 object: 0 allowed, 1 denied"}, nil, "pod.yaml", "--policies=versions.yaml")
	}
	// --policies does not enable a plugin that is disabled.
	reviewed(t, "", 0, []string{"1 allowed"}, nil, "pod.yaml", "--policies=latest.yaml",
		"--enable-admission-plugins=AlwaysAdmit", "--disable-admission-plugins=ValidatingAdmissionPolicy")
	// Policies in the input apply if the plugin is enabled.
	all := noLatest + "---\n" + latestPod
	reviewed(t, all, 1, []string{"stdin:18: " + deniedLatest, "stdin:2: ValidatingAdmissionPolicy no-latest.example.com: allowed"}, nil,
		"-", "--enable-admission-plugins=ValidatingAdmissionPolicy")
	reviewed(t, all, 0, []string{"3 allowed"}, []string{"no binding"}, "-", "--enable-admission-plugins=AlwaysAdmit")
}

// TestReviewNamesPolicies has a violation of a Deployment and of its Pod in formats for other programs.
func TestReviewNamesPolicies(t *testing.T) {
	t.Chdir(t.TempDir())
	policy := strings.Replace(noLatest, "[CREATE, UPDATE], resources: [pods]}", "[CREATE], resources: [pods]}\n"+
		"    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}", 1)
	policy = strings.Replace(policy, "expression: object.spec", "expression: object.?spec.template.spec.orValue(object.spec)", 1)
	servertest.WriteFile(t, "latest.yaml", strings.Replace(policy, "[Deny]", "[Warn]", 1))
	servertest.WriteFile(t, "web.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"+
		"spec: {template: {spec: {containers: [{name: a, image: 'nginx:latest'}]}}}\n")
	reviewed(t, "", 0, []string{"3 allowed, 0 denied, 1 warning, as"}, []string{"2 warnings"}, "web.yaml", "--policies=latest.yaml")
	reviewed(t, "", 0, []string{`"policy": "no-latest.example.com"`, `"binding": "no-latest"`, `"warned": 1`}, nil,
		"web.yaml", "--policies=latest.yaml", "-o", "json")
	reviewed(t, "", 0, []string{`"ruleId": "ValidatingAdmissionPolicy/no-latest.example.com"`, `message: images must have a version`,
		"```yaml"}, nil, "web.yaml", "--policies=latest.yaml", "-o", "sarif")
	servertest.WriteFile(t, "latest.yaml", policy)
	reviewed(t, "", 1, []string{"title=ValidatingAdmissionPolicy no-latest.example.com denies Deployment default/web::"}, nil,
		"web.yaml", "--policies=latest.yaml", "-o", "github")
	servertest.WriteFile(t, "bad.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\n   labels: {}\n")
	reviewed(t, "", 2, []string{"bad.yaml:5: broken: cannot be read: mapping values are not allowed"}, nil,
		"bad.yaml", "--policies=latest.yaml")
}

// TestReviewNamesDefaults has a rule about fields that only some of the manifests have.
func TestReviewNamesDefaults(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pull.yaml", strings.NewReplacer("!c.image.endsWith(':latest')", "c.imagePullPolicy == 'Always'",
		"images must have a version", "pull always").Replace(noLatest))
	pod := func(policies ...string) string {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n"
		for i, policy := range policies {
			text += "  - {name: c" + string(rune('0'+i)) + ", image: 'i:v1'" + policy + "}\n"
		}
		return text
	}
	const said = "default: spec.containers[1].imagePullPolicy is not in the manifest: it has its default value"
	const given = ", imagePullPolicy: IfNotPresent"
	reviewed(t, pod(given, ""), 1, []string{"denied request: pull always\n  " + said}, nil, "-", "--policies=pull.yaml")
	reviewed(t, pod(given, given), 1, []string{"pull always"}, []string{"default:"}, "-", "--policies=pull.yaml")
	const paths = "\"paths\": [\n        \"spec.containers[*].imagePullPolicy\"\n"
	reviewed(t, pod(given, ""), 1, []string{`"rule": "validations[0]"`, paths}, nil, "-", "--policies=pull.yaml", "-o=json")
	// The Pods of a workload have the defaults of its template.
	const job = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: web}\nspec: {schedule: '* * * * *', jobTemplate: {spec: " +
		"{template: {spec: {restartPolicy: Never, containers: [{name: a, image: 'i:v1', imagePullPolicy: Always}, " +
		"{name: b, image: 'i:v1'}]}}}}}\n"
	reviewed(t, job, 1, []string{"denied request: pull always\n      " + said}, nil, "-", "--policies=pull.yaml")
	reviewed(t, strings.Replace(job, "'}]", "', imagePullPolicy: Never}]", 1), 1, []string{"pull always"}, []string{"default:"},
		"-", "--policies=pull.yaml")
	for _, action := range []string{"Warn", "Audit"} {
		reviewed(t, pod(given, ""), 0, []string{"    " + said}, nil, "-", "--policies="+unbound(t, "pull.yaml"), "--bind-policies="+action)
	}
}

// unbound writes the policies of a file without their bindings, and returns the name of the new file.
func unbound(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	policy, _, _ := strings.Cut(string(text), "---\n")
	servertest.WriteFile(t, "unbound-"+file, policy)
	return "unbound-" + file
}

// TestReviewWithoutBinding has policies that kube-apiserver would not evaluate.
func TestReviewWithoutBinding(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "unbound.yaml", strings.Replace(noLatest, "policyName: no-latest", "policyName: other", 1))
	const note = `fastadmit: unbound.yaml:2: ValidatingAdmissionPolicy "no-latest.example.com" has no binding, so it is not ` +
		`evaluated; --bind-policies evaluates it`
	const orphan = `unbound.yaml:13: ValidatingAdmissionPolicyBinding "no-latest" is of ValidatingAdmissionPolicy ` +
		`"other.example.com", which does not exist`
	reviewed(t, "", 0, []string{note, orphan, "1 allowed"}, nil, "pod.yaml", "--policies=unbound.yaml")
	reviewed(t, "", 1, []string{"with binding 'no-latest.example.com' denied request: images must have", orphan}, []string{note},
		"pod.yaml", "--policies=unbound.yaml", "--bind-policies")
	reviewed(t, "", 0, []string{"warning: pod.yaml:4: ValidatingAdmissionPolicy: Validation failed for", "1 warning"}, nil,
		"pod.yaml", "--policies=unbound.yaml", "--bind-policies=Warn")
	reviewed(t, "", 0,
		[]string{"audit: pod.yaml:4: ValidatingAdmissionPolicy: Validation failed for", "with binding 'no-latest.example.com'"},
		[]string{"warning"}, "pod.yaml", "--policies=unbound.yaml", "--bind-policies=Audit")
	reviewed(t, "", 2, []string{`--bind-policies: got "Refuse", want one of Deny, Warn, Audit`}, nil,
		"pod.yaml", "--policies=unbound.yaml", "--bind-policies=Refuse")
}

// TestReviewFurtherDenials has an object that violates several rules. kube-apiserver, and serve, name the first one.
func TestReviewFurtherDenials(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	rule := func(name, action, expression string) string {
		policy := strings.NewReplacer("no-latest", name, "object.spec.containers.all(c, !c.image.endsWith(':latest'))", expression,
			"[Deny]", "["+action+"]", "images must have a version", name).Replace(noLatest)
		return "---\n" + policy
	}
	second := `"object.metadata.name != 'web'"`
	servertest.WriteFile(t, "policies.yaml", rule("a", "Deny", "1 == 2")+rule("b", "Deny, Audit", second)+
		rule("c", "Warn", second)+rule("d", "Deny", "1 == 1"))
	reviewed(t, "", 1, []string{
		"'a.example.com' with binding 'a' denied request: a\n  also denied: pod.yaml:3: ValidatingAdmissionPolicy: " +
			"ValidatingAdmissionPolicy 'b.example.com' with binding 'b' denied request: b\n  warning: ",
		"ValidatingAdmissionPolicy b.example.com: 1 denied",
		"1 object: 0 allowed, 1 denied, 1 warning",
	}, []string{"'d."}, "pod.yaml", "--policies=policies.yaml")
	for format, want := range map[string]string{
		"json":   `"furtherDenials": [`,
		"github": "::error file=pod.yaml,line=3,title=ValidatingAdmissionPolicy b.example.com denies Pod default/web::",
		"sarif":  `"ruleId": "ValidatingAdmissionPolicy/b.example.com"`,
		"junit":  "also denied: pod.yaml:3: ",
		"html":   "also denied",
	} {
		reviewed(t, "", 1, []string{want}, nil, "pod.yaml", "--policies=policies.yaml", "-o", format)
	}
	servertest.WriteFile(t, "pod.yaml", strings.Replace(latestPod, "latest", "1.29", 1))
	servertest.WriteFile(t, "policies.yaml", rule("a", "Deny", "object.spec.containers[0].imagePullPolicy != 'Always'"))
	reviewed(t, "", 1, []string{"denied request: a (AlwaysPullImages changed the object before)"}, []string{"also denied"},
		"pod.yaml", "--policies=policies.yaml", "--enable-admission-plugins=AlwaysPullImages")
}

// TestReviewNotEvaluated has policies that could not deny: no binding selects the object, a match condition is false, or an
// expression fails and failurePolicy is Ignore.
func TestReviewNotEvaluated(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	f := func(old, replacement string, want ...string) {
		t.Helper()
		policies := strings.Replace(noLatest, old, replacement, 1)
		servertest.WriteFile(t, "policies.yaml", policies)
		reviewed(t, "", 2, want, nil, "pod.yaml", "--policies=policies.yaml", "--strict")
		reviewed(t, "", 0, want[:1], nil, "pod.yaml", "--policies=policies.yaml")
	}
	const unchecked = "unchecked: ValidatingAdmissionPolicy: none of the policies for it is evaluated: bindings do not select it"
	f("[Deny]", "[Deny], matchResources: {namespaceSelector: {matchLabels: {a: b}}}", unchecked, "--strict: no plugin checked 1 object")
	f("  validations:", "  matchConditions: [{name: never, expression: 'false'}]\n  validations:", unchecked, "no plugin checked 1 object")
	servertest.WriteFile(t, "pod.yaml", strings.Replace(latestPod, "latest", "1.29", 1))
	f("  validations:", "  failurePolicy: Ignore\n  validations:\n  - expression: object.spec.nope == 1",
		"'no-latest' cannot be evaluated, and its failurePolicy is Ignore: ", "--strict: 1 ignored failure", "no such key: nope")
	f("  validations:", "  failurePolicy: Ignore\n  matchConditions: [{name: fails, expression: object.spec.nope == 1}]\n  validations:",
		"'no-latest' cannot be evaluated, and its failurePolicy is Ignore: ", "--strict: ", "no such key: nope", unchecked)
	const warning = "::warning file=pod.yaml,line=1,title=ValidatingAdmissionPolicy no-latest.example.com fails and is ignored on Pod"
	reviewed(t, "", 0, []string{warning}, nil, "pod.yaml", "--policies=policies.yaml", "-o", "github")
}

// TestReviewIgnored has policies that fail beside one that does not: the first ones ignore that, --strict does not.
func TestReviewIgnored(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", strings.Replace(latestPod, "latest", "1.29", 1))
	servertest.WriteFile(t, "healthy.yaml", strings.ReplaceAll(noLatest, "no-latest", "healthy"))
	for kind, want := range map[string]string{"ConfigMap": "failed to configure binding: ", "ConfigMapp": "failed to configure "} {
		servertest.WriteFile(t, "policies.yaml", strings.NewReplacer(
			"  validations:", "  failurePolicy: Ignore\n  paramKind: {apiVersion: v1, kind: "+kind+"}\n  validations:",
			"[Deny]", "[Deny], paramRef: {name: c, namespace: default, parameterNotFoundAction: Deny}").Replace(noLatest))
		reviewed(t, "", 2, []string{"cannot be evaluated, and its failurePolicy is Ignore: " + want, "--strict: 1 ignored failure"}, nil,
			"pod.yaml", "--policies=policies.yaml,healthy.yaml", "--strict")
	}

	mutating := func(expression, condition, want string) {
		t.Helper()
		servertest.WriteFile(t, "policies.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: label.example.com}
spec:
  failurePolicy: Ignore
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: one, expression: '`+condition+`'}]
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: '`+expression+`'}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: label}
spec: {policyName: label.example.com}
`)
		ignored := "ignored: MutatingAdmissionPolicy: MutatingAdmissionPolicy 'label.example.com' with binding 'label' " +
			"cannot be evaluated, and its failurePolicy is Ignore: " + want
		reviewed(t, "", 2, []string{ignored, "--strict: 1 ignored failure"}, nil,
			"pod.yaml", "--policies=policies.yaml,healthy.yaml", "--strict")
	}
	mutating("Object{metadata: Object.metadata{labels: {\"a\": object.spec.nope}}}", "true", "expression 'Object{metadata: ")
	mutating("Object{metadata: Object.metadata{label: {\"a\": \"b\"}}}", "true", "error applying patch: ")
	mutating("Object{metadata: Object.metadata{labels: {\"a\": \"b\"}}}", "object.spec.nope == 1",
		"expression 'object.spec.nope == 1' resulted in error: no such key: nope")
}

// TestReviewIdle has a plugin that checks nothing beside one that checks the object.
func TestReviewIdle(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	const warning = "PodSecurity checked none of the objects that its rules select: the level of its namespace is privileged"
	both := func(more ...string) []string {
		return append([]string{"pod.yaml", "--enable-admission-plugins=AlwaysPullImages,PodSecurity"}, more...)
	}
	reviewed(t, "", 0, []string{"fastadmit: warning: " + warning}, nil, both()...)
	reviewed(t, "", 2, []string{"--strict: PodSecurity checked no object"}, nil, both("--strict")...)
	reviewed(t, "", 0, []string{"::warning title=fastadmit::" + warning}, nil, both("-o", "github")...)
	for _, format := range []string{"sarif", "html", "json"} {
		reviewed(t, "", 0, []string{"the level of its namespace is privileged"}, nil, both("-o", format)...)
	}
	reviewed(t, "", 0, nil, []string{warning}, both("--pod-security=baseline", "--strict")...)
	servertest.WriteFile(t, "pod.yaml", strings.Replace(latestPod, "spec: {", "spec: {hostPID: 'true', ", 1))
	reviewed(t, "", 2, []string{"pod.yaml:4: Pod default/web: broken: kube-apiserver cannot decode the object: spec.hostPID: got a string"},
		nil, both()...)
	reviewed(t, "", 2, []string{"fastadmit: warning: Kubernetes 1.20 cannot be emulated: the closest version that can be is 1.33"},
		nil, both("--emulated-version=1.20")...)
}

// TestReviewExceptions tests that exceptions of --policies and of the configuration lift denials, and that those in the
// input never do: who asks for a review would decide about it.
func TestReviewExceptions(t *testing.T) {
	t.Chdir(t.TempDir())
	const exception = "apiVersion: policies.fastadmit.io/v1\nkind: PolicyException\nmetadata: {name: web}\nspec:\n" +
		"  policies: [no-latest.example.com]\n  plugins: [AlwaysDeny]\n  reason: its images have no versions yet\n  neverExpires: true\n" +
		"  matchConstraints:\n    resourceRules:\n    - {apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}\n"
	servertest.WriteFile(t, "latest.yaml", noLatest)
	servertest.WriteFile(t, "exception.yaml", exception)
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "all.yaml", exception+"---\n"+latestPod)
	const unknown = `fastadmit: PolicyException "web" names the plugin "AlwaysDeny", which is not evaluated`
	reviewed(t, "", 0, []string{"pod.yaml:1: Pod default/web: allowed", unknown}, nil, "pod.yaml",
		"--policies=latest.yaml", "--policies=exception.yaml")
	reviewed(t, "", 0, []string{"pod.yaml:1: Pod default/web: allowed"}, []string{"AlwaysDeny"}, "pod.yaml",
		"--policies=latest.yaml,exception.yaml", "--enable-admission-plugins=AlwaysDeny")
	const ignored = `fastadmit: all.yaml:1: PolicyException "web" lifts nothing here: it is not from --policies, ` +
		"the configuration or the cluster"
	reviewed(t, "", 1, []string{"all.yaml:13: " + deniedLatest, "all.yaml:1: PolicyException web: allowed", ignored}, nil,
		"all.yaml", "--policies=latest.yaml")
	reviewed(t, exception+"---\n"+latestPod+"---\n"+noLatest, 1, []string{"stdin:13: " + deniedLatest}, nil, "-",
		"--enable-admission-plugins=ValidatingAdmissionPolicy")
	servertest.WriteFile(t, "config.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		"- name: ValidatingAdmissionPolicy\n  configuration: {apiVersion: apiserver.config.k8s.io/v1, "+
		"kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: own}\n")
	if err := os.Mkdir("own", 0o700); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "own/all.yaml", noLatest+"---\n"+exception)
	reviewed(t, "", 0, []string{"allowed"}, nil, "pod.yaml", "--admission-control-config-file=config.yaml",
		"--enable-admission-plugins=ValidatingAdmissionPolicy")
	testCustomException(t, exception)
	for _, wrong := range [][3]string{
		{"reason: its images have no versions yet", "", `exception.yaml:5: PolicyException "web": spec.reason: Required value`},
		{"neverExpires: true", "expiresAt: soon",
			`exception.yaml:8: PolicyException "web": spec.expiresAt: Invalid value: "soon": want a time`},
		{"fastadmit.io/v1", "fastadmit.io/v2",
			`exception.yaml:1: PolicyException "web": apiVersion of a PolicyException: got "policies.fastadmit.io/v2", ` +
				`want "policies.fastadmit.io/v1"`},
	} {
		servertest.WriteFile(t, "exception.yaml", strings.Replace(exception, wrong[0], wrong[1], 1))
		reviewed(t, "", 2, []string{wrong[2]}, nil, "pod.yaml", "--policies=exception.yaml")
	}
}

// testCustomException reviews with policies that are custom resources of a cluster: its exceptions count, and those of the
// input do not become a part of it.
func testCustomException(t *testing.T, exception string) {
	t.Helper()
	servertest.WriteFile(t, "custom.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		"- name: ValidatingAdmissionPolicy\n  configuration: {apiVersion: fastadmit.io/v1alpha1, "+
		"kind: ValidatingAdmissionPolicyConfiguration, customResources: true}\n")
	if err := os.Mkdir("cluster", 0o700); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "cluster/namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n")
	servertest.WriteFile(t, "cluster/policies.yaml",
		strings.ReplaceAll(noLatest, "admissionregistration.k8s.io/v1", "policies.fastadmit.io/v1"))
	flags := []string{"--admission-control-config-file=custom.yaml", "--enable-admission-plugins=ValidatingAdmissionPolicy",
		"--cluster-state-dir=cluster"}
	reviewed(t, exception+"---\n"+latestPod, 1, []string{deniedLatest}, nil, append(flags, "-")...)
	servertest.WriteFile(t, "cluster/exception.yaml", exception)
	reviewed(t, latestPod, 0, []string{"1 allowed"}, nil, append(flags, "-")...)
}

// TestReviewWrongPolicies tests policies that cannot be evaluated. The error has the
// position.
func TestReviewWrongPolicies(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	f := func(policy string, want ...string) {
		t.Helper()
		servertest.WriteFile(t, "bad.yaml", policy)
		reviewed(t, "", 2, want, []string{"1 allowed"}, "pod.yaml", "--policies=bad.yaml")
	}
	f(strings.ReplaceAll(noLatest, "':latest'))", "':latest')"),
		`bad.yaml:10: ValidatingAdmissionPolicy "no-latest.example.com": spec.validations[0].expression: Invalid value: `,
		"ERROR: <input>:1:59: Syntax error: missing ')'")
	f(strings.ReplaceAll(strings.ReplaceAll(noLatest, "message:", "mesage:"), "[Deny]", "[Denied]"),
		`bad.yaml:11: ValidatingAdmissionPolicy "no-latest.example.com": unknown field "spec.validations[0].mesage"`,
		`bad.yaml:16: ValidatingAdmissionPolicyBinding "no-latest": spec.validationActions[0]: Unsupported value: "Denied"`)
	f("apiVersion: v1\nkind: List\nitems:\n- "+strings.ReplaceAll(noLatest[strings.Index(noLatest, "---\n")+4:], "\n", "\n  ")+"nope: 1\n",
		`bad.yaml:4: ValidatingAdmissionPolicyBinding "no-latest": unknown field "nope"`)
	f(strings.ReplaceAll(noLatest, "validationActions: [Deny]", "\n  paramRef: {name: limits,\n    namespace: y}"), // y is true in YAML
		`bad.yaml:18: ValidatingAdmissionPolicyBinding "no-latest": spec.paramRef.namespace: got true or false, want a string: `+
			"write it in quotation marks")
	f(noLatest+"---\na: [\n", "bad.yaml:", "cannot be read")
	f(noLatest+"---\n"+noLatest, `duplicate name "no-latest.example.com" of a policy`, `duplicate name "no-latest" of a binding`)
	f(latestPod, "--policies: there is no policy in bad.yaml")
	f(noLatest+"---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmisionPolicy\nmetadata: {name: a}\n",
		`bad.yaml:18: got the kind "ValidatingAdmisionPolicy" of admissionregistration.k8s.io/v1, want ValidatingAdmissionPolicy, `)
	reviewed(t, "", 2, []string{"no such file"}, nil, "pod.yaml", "--policies=nowhere")
	reviewed(t, "", 2, []string{"the folder has no file"}, nil, "pod.yaml", "--policies="+t.TempDir())
	// The same for policies in the input.
	reviewed(t, strings.ReplaceAll(noLatest, "':latest'))", "':latest')"), 2,
		[]string{`stdin:2: ValidatingAdmissionPolicy "no-latest.example.com": spec.validations[0]`}, nil,
		"-", "--enable-admission-plugins=ValidatingAdmissionPolicy")
}

const limitReplicas = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas.example.com}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  validations:
  - expression: object.spec.replicas <= int(params.data.max)
    messageExpression: "'at most ' + params.data.max + ' replicas'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas}
spec:
  policyName: replicas.example.com
  validationActions: [Deny]
  paramRef: {selector: {matchLabels: {limits: "yes"}}, parameterNotFoundAction: Deny}
`

// TestReviewParams tests policies whose parameters are among the objects.
func TestReviewParams(t *testing.T) {
	t.Chdir(t.TempDir())
	const deployment = "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: " +
		"{replicas: 5, template: {spec: {}}}\n"
	limit := func(name, namespace, most string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: " + namespace +
			", labels: {limits: 'yes'}}\ndata: {max: '" + most + "'}\n"
	}
	servertest.WriteFile(t, "web.yaml", deployment)
	servertest.WriteFile(t, "policy.yaml", limitReplicas)
	f := func(code int, want string, args ...string) {
		t.Helper()
		reviewed(t, "", code, []string{want}, nil, append(args, "--no-workload-pods")...)
	}
	f(1, "no params found for policy binding with `Deny` parameterNotFoundAction", "web.yaml", "--policies=policy.yaml")
	// The parameters are in the file of the policy, in the input, and in another
	// namespace.
	servertest.WriteFile(t, "policy.yaml", limitReplicas+limit("a", "shop", "3"))
	f(1, "denied request: at most 3 replicas", "web.yaml", "--policies=policy.yaml")
	servertest.WriteFile(t, "policy.yaml", limitReplicas)
	servertest.WriteFile(t, "limit.yaml", limit("a", "shop", "5"))
	f(0, "2 allowed", "web.yaml", "limit.yaml", "--policies=policy.yaml")
	servertest.WriteFile(t, "limit.yaml", limit("a", "shop", "5")+limit("b", "shop", "4"))
	f(1, "denied request: at most 4 replicas", "web.yaml", "limit.yaml", "--policies=policy.yaml")
	servertest.WriteFile(t, "limit.yaml", limit("a", "other", "5"))
	f(1, "no params found", "web.yaml", "limit.yaml", "--policies=policy.yaml")
	// A parameter in the file of the policy is not replaced by one in the input.
	servertest.WriteFile(t, "policy.yaml", limitReplicas+limit("a", "shop", "3"))
	servertest.WriteFile(t, "limit.yaml", limit("a", "shop", "100"))
	f(2, `limit.yaml:2: ConfigMap "a" would replace that of policy.yaml:21`, "web.yaml", "limit.yaml", "--policies=policy.yaml")
	servertest.WriteFile(t, "limit.yaml", limit("a", "shop", "3"))
	f(1, "denied request: at most 3 replicas", "web.yaml", "limit.yaml", "--policies=policy.yaml")
	// Cluster-scoped custom resources.
	const crd = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: limits.example.com}\n" +
		"spec: {group: example.com, scope: Cluster, names: {kind: Limit, plural: limits}, versions: [{name: v1, served: true}]}\n"
	custom := strings.ReplaceAll(strings.ReplaceAll(limitReplicas, "{apiVersion: v1, kind: ConfigMap}",
		"{apiVersion: example.com/v1, kind: Limit}"),
		`selector: {matchLabels: {limits: "yes"}}`, "name: most")
	const object = "---\napiVersion: example.com/v1\nkind: Limit\nmetadata: {name: most}\ndata: {max: '2'}\n"
	servertest.WriteFile(t, "policy.yaml", custom)
	f(1, "paramKind kind `&ParamKind{APIVersion:example.com/v1,Kind:Limit,}` not known", "web.yaml", "--policies=policy.yaml")
	servertest.WriteFile(t, "policy.yaml", custom+crd+object)
	f(1, "denied request: at most 2 replicas", "web.yaml", "--policies=policy.yaml")
	// A suite.
	servertest.WriteFile(t, "fastadmit-test.yaml", suiteHead+`policies: [policy.yaml]
cases:
- name: too many
  object: web.yaml
  expect: {decision: denied, message: at most 2 replicas}
- name: as many as may be
  cluster: [{apiVersion: example.com/v1, kind: Limit, metadata: {name: most}, data: {max: "5"}}]
  object: web.yaml
  expect: {decision: allowed}
`)
	tested(t, 0, []string{"2 passed"}, nil)
}

// TestPolicyTypes has policies with fields that the selected kinds do not have.
func TestPolicyTypes(t *testing.T) {
	t.Chdir(t.TempDir())
	const gadgets = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gadgets.example.com}\nspec:\n" +
		"  group: example.com\n  scope: Namespaced\n  names: {kind: Gadget, plural: gadgets}\n  versions:\n" +
		"  - name: v1\n    served: true\n    schema:\n      openAPIV3Schema: {type: object, properties: {spec: {type: object, " +
		"properties: {size: {type: integer}}}}}\n"
	misspelt := strings.NewReplacer("c.image.ends", "c.imag.ends", "message: images must",
		"messageExpression: string(object.spec.hostname)\n    message: images must").Replace(noLatest)
	gadget := strings.NewReplacer("no-latest", "gadget", "apiGroups: [\"\"]", "apiGroups: [example.com]", "[pods]", "[gadgets]",
		"object.spec.containers.all(c, !c.image.endsWith(':latest'))", "object.spec.sise > 1").Replace(noLatest)
	servertest.WriteFile(t, "policies.yaml", misspelt+"---\n"+gadget)
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "gadgets.yaml", gadgets)
	const pod = `fastadmit: policies.yaml:10: ValidatingAdmissionPolicy "no-latest.example.com": spec.validations[0].expression: ` +
		"c.imag: no such field, did you mean image or imagePullPolicy?\n"
	const custom = `fastadmit: policies.yaml:28: ValidatingAdmissionPolicy "gadget.example.com": spec.validations[0].expression: ` +
		"object.spec.sise: no such field, did you mean size?\n"
	reviewed(t, "", 1, []string{pod, "denied"}, []string{custom, "hostname"}, "pod.yaml", "--policies=policies.yaml")
	reviewed(t, "", 0, []string{pod, custom}, nil, "gadgets.yaml", "--policies=policies.yaml", "--warnings-as-errors")
	reviewed(t, "", 1, []string{pod, custom}, nil, "pod.yaml", "--policies=policies.yaml,gadgets.yaml")
	// A policy of the input is checked if it is evaluated. One that does not compile is an error.
	reviewed(t, misspelt, 0, []string{`stdin:2: ValidatingAdmissionPolicy "no-latest.example.com": spec.validations[0].expression: c.imag`},
		nil, "-", "--enable-admission-plugins=ValidatingAdmissionPolicy")
	reviewed(t, misspelt, 0, nil, []string{"c.imag"}, "-", "--enable-admission-plugins=AlwaysAdmit")
	servertest.WriteFile(t, "bad.yaml", strings.Replace(misspelt, "all(c,", "all(", 1))
	reviewed(t, "", 2, []string{"bad.yaml:10: "}, []string{"no such field"}, "pod.yaml", "--policies=bad.yaml")
	// A text that is not quoted is a tag for YAML.
	passes := strings.Replace(misspelt, "object.spec.containers.all(c, !c.imag.endsWith(':latest'))", `"!has(object.spec.hostNam)"`, 1)
	servertest.WriteFile(t, "tag.yaml", strings.Replace(passes, `"!has(object.spec.hostNam)"`, "!has(object.spec.hostNam)", 1))
	reviewed(t, "", 2, []string{"tag.yaml:10: ValidatingAdmissionPolicy \"no-latest.example.com\": spec.validations[0].expression: " +
		"Required value: expression is not specified; YAML takes `!` for its own syntax here: write >-, and the text"}, nil,
		"pod.yaml", "--policies=tag.yaml")
	for output, want := range map[string]string{
		"github": "::error file=bad.yaml,line=10,title=cannot review::ValidatingAdmissionPolicy", "json": `"line": 10`,
		"junit": `file="bad.yaml" line="10"`, "sarif": `"startLine": 10`, "yaml": "line: 10",
	} {
		reviewed(t, "", 2, []string{want, "fastadmit: bad.yaml:10: "}, nil, "pod.yaml", "--policies=bad.yaml", "-o="+output)
	}
	// Other programs see it, and --strict is about it.
	servertest.WriteFile(t, "passes.yaml", passes)
	const hostName = `spec.validations[0].expression: object.spec.hostNam: no such field, did you mean hostname or hostnameOverride?`
	note := `ValidatingAdmissionPolicy "no-latest.example.com": ` + hostName
	reviewed(t, "", 0, []string{"1 allowed"}, nil, "pod.yaml", "--policies=passes.yaml")
	reviewed(t, "", 2, []string{"1 allowed", "--strict: " + note}, nil, "pod.yaml",
		"--policies=passes.yaml", "--strict")
	reviewed(t, "", 0, []string{"::warning file=passes.yaml,line=10,title=a policy may not do what it says::" + note}, nil, "pod.yaml",
		"--policies=passes.yaml", "-o=github")
	reviewed(t, "", 0, []string{"<system-out>passes.yaml:10: ValidatingAdmissionPolicy &#34;no-latest.example.com&#34;: spec.valid"}, nil,
		"pod.yaml", "--policies=passes.yaml", "-o=junit")
	reviewed(t, "", 0, []string{`"ruleId": "policy"`, `"startLine": 10`, `"text": "a policy may not`}, nil,
		"pod.yaml", "--policies=passes.yaml", "-o=sarif")
	reviewed(t, "", 0, []string{`"policyNotes": [`, `"line": 10`}, nil, "pod.yaml", "--policies=passes.yaml", "-o=json")
	// So is a policy that is not evaluated.
	unbound, _, _ := strings.Cut(strings.ReplaceAll(noLatest, "no-latest", "unbound"), "---")
	servertest.WriteFile(t, "unbound.yaml", unbound)
	reviewed(t, "", 2, []string{`"policyNotes": [`, `--strict: ValidatingAdmissionPolicy "unbound.example.com" has no binding`},
		nil, "pod.yaml", "--policies=unbound.yaml", "--pod-security=baseline", "-o=json", "--strict")
	// A suite says it once for all cases, and its cases decide.
	servertest.WriteFile(t, "fastadmit-test.yaml", suiteHead+`policies: [policies.yaml]
cluster: [gadgets.yaml]
cases:
- {name: a, object: pod.yaml, expect: {decision: denied}}
- {name: b, object: pod.yaml, expect: {decision: denied}}
- {name: c, cluster: [{apiVersion: v1, kind: Namespace, metadata: {name: a}}], object: pod.yaml, expect: {decision: denied}}
`)
	stdout, stderr, code := execute("", "test")
	const idle = "fastadmit: fastadmit-test.yaml: policy gadget.example.com is evaluated in no case, so nothing tests it " +
		"(policies.yaml:20)\n"
	if code != 0 || stderr != pod+custom+idle || !strings.Contains(stdout, "3 passed") {
		t.Errorf("got exit code %d, %q\n%s", code, stderr, stdout)
	}
	servertest.WriteFile(t, "policies.yaml", strings.Replace(misspelt, "all(c,", "all(", 1))
	stdout, stderr, code = execute("", "test")
	if code != 2 || stderr != "" || strings.Count(stdout, "policies.yaml:10: ") != 1 ||
		strings.Count(stdout, "as in fastadmit-test.yaml/") != 2 {
		t.Errorf("got exit code %d, %q, want the error once\n%s", code, stderr, stdout)
	}
	// A rule that selects nothing is said where all cases pass.
	servertest.WriteFile(t, "policies.yaml", strings.Replace(noLatest, "[pods]", "[pod]", 1))
	servertest.WriteFile(t, "fastadmit-test.yaml",
		suiteHead+"policies: [policies.yaml]\ncases:\n- {name: a, object: pod.yaml, expect: {decision: allowed}}\n")
	stdout, stderr, code = execute("", "test")
	const rule = `fastadmit: policies.yaml:8: ValidatingAdmissionPolicy "no-latest.example.com": spec.matchConstraints.resourceRules[0].` +
		"resources[0]: the group \"\" has no resource \"pod\", did you mean pods or podtemplates?\n" +
		"fastadmit: fastadmit-test.yaml: policy no-latest.example.com is evaluated in no case, so nothing tests it (policies.yaml:2)\n"
	if code != 0 || stderr != rule || !strings.Contains(stdout, "1 passed") {
		t.Errorf("got exit code %d, %q\n%s", code, stderr, stdout)
	}
}
