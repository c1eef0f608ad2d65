package app

import (
	"os"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

const kyvernoLatest = `# Images must be known.
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata:
  name: no-latest
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}
  validations:
  # latest can change
  - expression: object.spec.containers.all(c, !c.image.endsWith(':latest')) # and it does
    message: images must have a version
`

const deniedConverted = "ValidatingAdmissionPolicy 'no-latest' with binding 'no-latest' denied request: images must have a version"

// TestConvert reviews with a policy of Kyverno, with its translation, and with the translation of a folder.
func TestConvert(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "latest.yaml", kyvernoLatest)
	servertest.WriteFile(t, "pod.yaml", latestPod)
	stdout, stderr, code := execute("", "convert", "latest.yaml")
	if code != 0 || stderr != "" {
		t.Fatalf("got exit code %d and %q", code, stderr)
	}
	for _, comment := range []string{"# latest can change\n", ":latest')) # and it does\n",
		`# From ValidatingPolicy "no-latest" in latest.yaml:2.`} {
		if !strings.Contains(stdout, comment) {
			t.Errorf("got no %q in\n%s", comment, stdout)
		}
	}
	servertest.WriteFile(t, "converted.yaml", stdout)
	servertest.WriteFile(t, "admission.yaml", `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ValidatingAdmissionPolicyConfiguration
    staticManifestsDir: manifests
`)
	if err := os.Mkdir("manifests", 0o750); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "manifests/latest.yaml", kyvernoLatest)
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
		"spec: {template: {spec: {containers: [{name: a, image: 'nginx:latest'}]}}}\n"
	servertest.WriteFile(t, "deployment.yaml", deployment)
	for _, flags := range [][]string{{"--policies=latest.yaml"}, {"--policies=converted.yaml"},
		{"--enable-admission-plugins=ValidatingAdmissionPolicy", "--admission-control-config-file=admission.yaml"}} {
		reviewed(t, "", 1, []string{deniedConverted}, nil, append(flags, "pod.yaml")...)
		reviewed(t, "", 1, []string{"'no-latest.autogen-defaults' with binding"}, nil, append(flags, "deployment.yaml")...)
	}
}

// TestConvertRefuses has documents without a translation.
func TestConvertRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	wrong := strings.Replace(kyvernoLatest, "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
		"resource.List('v1', 'pods', '').items == []", 1)
	servertest.WriteFile(t, "both.yaml", strings.Replace(kyvernoLatest, "name: no-latest", "name: other", 1)+"---\n"+wrong)
	const located = `both.yaml:26: ValidatingPolicy "no-latest": spec.validations[0].expression: the function resource.List of ` +
		`Kyverno has no translation`
	stdout, stderr, code := execute("", "convert", "both.yaml")
	if code != 1 || stdout != "" || !strings.Contains(stderr, located) {
		t.Errorf("got exit code %d, want 1, and %q, want %q", code, stdout+stderr, located)
	}
	stdout, stderr, code = execute("", "convert", "both.yaml", "--skip-untranslatable")
	if code != 0 || !strings.Contains(stdout, "name: other\n") || strings.Contains(stdout, "no-latest") ||
		!strings.Contains(stderr, located) {
		t.Errorf("got exit code %d and %q", code, stdout+stderr)
	}
	// fastadmit evaluates it: there is no other Pod.
	reviewed(t, "", 1, []string{"'other' with binding"}, []string{"'no-latest' with binding"}, "pod.yaml", "--policies=both.yaml")
	if _, stderr, code = execute("", "convert", "pod.yaml"); code != 1 || !strings.Contains(stderr, "there is nothing to convert") {
		t.Errorf("got exit code %d and %q", code, stderr)
	}
	// An error of the engine in a translation is located in the document.
	servertest.WriteFile(t, "wrong.yaml", strings.Replace(kyvernoLatest, "c.image.endsWith", "c.image.ends", 1))
	reviewed(t, "", 2, []string{`wrong.yaml:12: ValidatingPolicy "no-latest", in its translation: `}, nil, "pod.yaml",
		"--policies=wrong.yaml")
}

// TestSkipUntranslatable reviews with a policy of which another part of the file has no translation.
func TestSkipUntranslatable(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	pattern := "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: pattern}\nspec:\n  rules:\n  - name: a\n" +
		"    match: {any: [{resources: {kinds: [Pod]}}]}\n    validate: {message: no, pattern: {spec: {hostPID: false}}}\n"
	servertest.WriteFile(t, "both.yaml", kyvernoLatest+"---\n"+pattern)
	servertest.WriteFile(t, "pattern.yaml", pattern)
	const refused = `: ClusterPolicy "pattern": spec.rules[0].validate.pattern: it has no translation`
	const leftOut = `: ClusterPolicy "pattern" is left out: spec.rules[0].validate.pattern: it has no translation`
	const other = "--skip-untranslatable evaluates the other policies"
	reviewed(t, "", 2, []string{refused, other}, []string{deniedConverted}, "pod.yaml", "--policies=both.yaml")
	reviewed(t, "", 1, []string{leftOut, deniedConverted}, []string{refused, other}, "pod.yaml", "--policies=both.yaml",
		"--skip-untranslatable")
	reviewed(t, "", 1, []string{`"policyNotes": [`, leftOut}, nil, "pod.yaml", "--policies=both.yaml", "--skip-untranslatable", "-o=json")
	reviewed(t, "", 2, []string{leftOut}, []string{other}, "pod.yaml", "--policies=pattern.yaml", "--skip-untranslatable")
	servertest.WriteFile(t, "kubernetes.yaml", noLatest)
	reviewed(t, "", 1, []string{leftOut, deniedLatest}, []string{refused}, "pod.yaml", "--policies=pattern.yaml,kubernetes.yaml",
		"--skip-untranslatable")
	if _, stderr, code := execute("", "convert", "pattern.yaml", "--skip-untranslatable"); code != 1 ||
		!strings.Contains(stderr, "left out: pattern.yaml:8: ClusterPolicy") || !strings.Contains(stderr, "there is nothing to convert") {
		t.Errorf("got exit code %d and %q", code, stderr)
	}
	servertest.WriteFile(t, "twice.yaml", kyvernoLatest+"---\n"+strings.Replace(kyvernoLatest, "endsWith(':latest')", "endsWith(':v1')", 1))
	const twice = `ValidatingPolicy "no-latest"`
	const also = "metadata.name: the translation of another document is also ValidatingAdmissionPolicy"
	reviewed(t, "", 2, []string{twice + ": " + also}, []string{".autogen-defaults"}, "pod.yaml", "--policies=twice.yaml")
	reviewed(t, "", 1, []string{twice + " is left out: " + also, deniedConverted}, nil, "pod.yaml", "--policies=twice.yaml",
		"--skip-untranslatable")
	good := strings.Replace(latestPod, ":latest", ":v1", 1)
	reviewed(t, good, 0, []string{leftOut}, nil, "-", "--policies=both.yaml", "--skip-untranslatable")
	reviewed(t, good, 2, []string{"--strict: ClusterPolicy"}, nil, "-", "--policies=both.yaml", "--skip-untranslatable", "--strict")
}

// TestReads reviews with a policy that reads an object, which is in one of the places where a review has objects.
func TestReads(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"state", "empty", "manifests"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "policy.yaml", strings.Replace(kyvernoLatest, "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
		"resource.Get('v1', 'configmaps', 'default', 'for-' + object.metadata.name) != null", 1))
	servertest.WriteFile(t, "map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: for-web, namespace: default}\n")
	servertest.WriteFile(t, "state/all.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: for-web, namespace: default}\n---\n"+
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n---\n"+
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: default}\n")
	servertest.WriteFile(t, "empty/all.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n---\n"+
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: default}\n")
	const denied = "'no-latest' with binding 'no-latest' denied request: images must have a version"
	reviewed(t, "", 1, []string{denied}, nil, "pod.yaml", "--policies=policy.yaml")
	reviewed(t, "", 1, []string{denied}, nil, "pod.yaml", "--policies=policy.yaml", "--cluster-state-dir=empty")
	reviewed(t, "", 0, nil, []string{denied}, "pod.yaml", "map.yaml", "--policies=policy.yaml")
	reviewed(t, "", 0, nil, []string{denied}, "pod.yaml", "--policies=policy.yaml", "--policies=map.yaml")
	reviewed(t, "", 0, nil, []string{denied}, "pod.yaml", "--policies=policy.yaml", "--cluster-state-dir=state")
	const refused = "the function resource.Get of Kyverno has no translation: expressions of Kubernetes read no other objects"
	reviewed(t, "", 2, []string{refused}, nil, "pod.yaml", "--policies=policy.yaml", "--kubeconfig=none")
	servertest.WriteFile(t, "manifests/policy.yaml", strings.Replace(kyvernoLatest, "!c.image.endsWith(':latest')",
		"resource.List('v1', 'pods', '') != c", 1))
	servertest.WriteFile(t, "admission.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		"- name: ValidatingAdmissionPolicy\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n"+
		"    kind: ValidatingAdmissionPolicyConfiguration\n    staticManifestsDir: manifests\n")
	reviewed(t, "", 2, []string{"the function resource.List of Kyverno has no translation"}, nil, "pod.yaml",
		"--enable-admission-plugins=ValidatingAdmissionPolicy", "--admission-control-config-file=admission.yaml")
}

const kyvernoSuite = `apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: latest}
policies: [../latest.yaml]
resources: [../resources.yaml]
results:
- {policy: no-latest, kind: Pod, resources: [web], result: fail}
- {policy: no-latest, kind: Pod, resources: [good, default/good], result: pass}
- {policy: no-latest, kind: Pod, resources: [made], result: fail}
- {policy: no-latest, kind: Pod, resources: [skipped], result: skip}
- {policy: no-latest, kind: Pod, resources: [wrong], result: error}
- {policy: labels, kind: Pod, resources: [good], patchedResources: ../patched.yaml, result: pass}
`

// TestForeignTests runs tests of Kyverno and Gatekeeper.
func TestForeignTests(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "latest.yaml", strings.Replace(kyvernoLatest, "  validations:",
		"  matchConditions: [{name: c, expression: \"!has(object.metadata.labels)\"}]\n  validations:", 1)+`---
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: labels}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: c, expression: "object.metadata.name == 'good'"}]
  autogen: {podControllers: {controllers: []}}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{annotations: {"a": "b"}}}'}
`)
	pod := func(name, more, spec string) string {
		return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: " + name + more + "}\nspec: {" + spec + "}\n"
	}
	good := "containers: [{name: a, image: 'nginx:1'}]"
	servertest.WriteFile(t, "resources.yaml", latestPod+pod("good", "", good)+pod("skipped", ", labels: {a: b}", good)+
		pod("wrong", "", "containers: [{name: a}]")+
		"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: made}\n"+
		"spec: {template: {metadata: {name: x}, spec: {containers: [{name: a, image: 'nginx:latest'}]}}}\n")
	servertest.WriteFile(t, "patched.yaml", pod("good", ", namespace: default, annotations: {a: b}", good))
	if err := os.Mkdir(".kyverno-test", 0o750); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, ".kyverno-test/kyverno-test.yaml", kyvernoSuite)
	tested(t, 0, []string{"7 cases in 1 suite: 7 passed, 0 failed"}, nil, ".", "-v")
	// Each expected result can fail.
	servertest.WriteFile(t, ".kyverno-test/kyverno-test.yaml",
		strings.NewReplacer("result: fail", "result: pass", "result: pass", "result: fail",
			"result: skip", "result: pass", "result: error", "result: fail").Replace(kyvernoSuite))
	tested(t, 1,
		[]string{"7 cases in 1 suite: 0 passed, 7 failed", `Pod "web":`, "+ got  fail images must have a version",
			`Deployment "made", autogen-defaults`, "+ got  skip"}, nil, ".")
	servertest.WriteFile(t, ".kyverno-test/kyverno-test.yaml", kyvernoSuite)
	servertest.WriteFile(t, "patched.yaml", pod("good", ", annotations: {a: c}", good))
	tested(t, 1, []string{"6 passed, 1 failed", "-    a: c", "+    a: b"}, nil, ".")
}

// TestForeignOperations has values that say the operation of a request for an object, which Kyverno reads for ClusterPolicies alone.
func TestForeignOperations(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "policies.yaml", `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: classic}
spec:
  validationFailureAction: Enforce
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    validate: {cel: {expressions: [{expression: "request.operation != 'UPDATE'", message: no updates}]}}
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: newer}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]}
  validations: [{expression: "request.operation != 'UPDATE'", message: no updates}]
`)
	object := func(name string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
	}
	servertest.WriteFile(t, "resources.yaml", object("a")+object("b"))
	values := func(global string) string {
		return `{globalValues: {request.operation: ` + global + `}, policies: [` +
			`{name: classic, resources: [{name: a, values: {request.operation: UPDATE}}]}, ` +
			`{name: newer, resources: [{name: a, values: {request.operation: UPDATE}}]}]}`
	}
	write := func(global, classic, newer string) {
		servertest.WriteFile(t, "kyverno-test.yaml", `apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: operations}
policies: [policies.yaml]
resources: [resources.yaml]
values: `+values(global)+`
results:
- {policy: classic, rule: r, kind: ConfigMap, resources: [a], result: fail}
- {policy: classic, rule: r, kind: ConfigMap, resources: [b], result: `+classic+`}
- {policy: newer, kind: ConfigMap, resources: [a, b], result: `+newer+"}\n")
	}
	write("CREATE", "pass", "pass")
	tested(t, 0, []string{"4 cases in 1 suite: 4 passed, 0 failed"}, nil, ".")
	write("UPDATE", "fail", "fail")
	tested(t, 0, []string{"4 cases in 1 suite: 4 passed, 0 failed"}, nil, ".")
}

const gatekeeperPolicy = `apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8slabel}
spec:
  crd: {spec: {names: {kind: K8sLabel}}}
  targets:
  - target: admission.k8s.gatekeeper.sh
    code:
    - engine: K8sNativeValidation
      source:
        validations:
        - expression: variables.params.labels.all(l, has(variables.anyObject.metadata.labels) && l in variables.anyObject.metadata.labels)
          message: a label is missing
---
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sLabel
metadata: {name: owner}
spec: {match: {kinds: [{apiGroups: [""], kinds: [Pod]}]}, parameters: {labels: [owner]}}
`

const gatekeeperSuite = `apiVersion: test.gatekeeper.sh/v1alpha1
kind: Suite
tests:
- name: labels
  template: template.yaml
  constraint: constraint.yaml
  cases:
  - {name: missing, object: pod.yaml, assertions: [{violations: yes}, {violations: 1, message: "label is"}]}
  - {name: there, object: labeled.yaml, assertions: [{violations: no}]}
  - {name: recorded, object: review.yaml, assertions: [{violations: "yes"}]}
  - {name: later, skip: true, object: none.yaml}
`

func TestGatekeeperTests(t *testing.T) {
	t.Chdir(t.TempDir())
	template, constraint, _ := strings.Cut(gatekeeperPolicy, "---\n")
	servertest.WriteFile(t, "template.yaml", template)
	servertest.WriteFile(t, "constraint.yaml", constraint)
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "labeled.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {owner: me}}\n")
	servertest.WriteFile(t, "review.yaml",
		"apiVersion: admission.k8s.io/v1beta1\nkind: AdmissionReview\n"+
			"request: {operation: UPDATE, object: {apiVersion: v1, kind: Pod, metadata: {name: a}}}\n")
	servertest.WriteFile(t, "suite.yaml", gatekeeperSuite)
	tested(t, 0, []string{"4 cases in 1 suite: 3 passed, 0 failed, 1 skipped"}, nil, ".")
	servertest.WriteFile(t, "suite.yaml",
		strings.NewReplacer("violations: yes", "violations: 2", "violations: no", "violations: yes", `"yes"`,
			`"no"`).Replace(gatekeeperSuite))
	tested(t, 1, []string{"0 passed, 3 failed", `+ got  1: ["a label is missing"]`}, nil, ".")
	servertest.WriteFile(t, "suite.yaml", strings.Replace(gatekeeperSuite, "[{violations: no}]", "[]", 1))
	tested(t, 2, []string{"suite.yaml:9: tests[0].cases[1]: got no assertions"}, nil, ".")
	reviewed(t, "", 1, []string{"'k8slabel.owner' denied request: a label is missing"}, nil, "pod.yaml",
		"--policies=template.yaml,constraint.yaml")
}
