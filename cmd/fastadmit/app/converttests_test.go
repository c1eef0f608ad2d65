package app

import (
	"encoding/xml"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// endings runs the suites of a file, and returns how each case ends: passed, failed, broken or skipped.
func endings(t *testing.T, file string) map[string]string {
	t.Helper()
	stdout, stderr, _ := execute("", "test", "-o", "junit", file)
	var report struct {
		Suites []struct {
			Cases []struct {
				Name    string    `xml:"name,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatalf("%s: %v\n%s%s", file, err, stdout, stderr)
	}
	all := make(map[string]string)
	for _, s := range report.Suites {
		for _, c := range s.Cases {
			switch {
			case c.Error != nil:
				all[c.Name] = "broken"
			case c.Failure != nil:
				all[c.Name] = "failed"
			case c.Skipped != nil:
				all[c.Name] = "skipped"
			default:
				all[c.Name] = "passed"
			}
		}
	}
	return all
}

// roundTrip converts a test of another engine, and compares how the cases of both end. It returns how many pass and fail. Cases
// that are not converted must have errors.
func roundTrip(t *testing.T, file string) (passed, failed, without int) {
	t.Helper()
	stdout, stderr, code := execute("", "test", "--convert-tests", "--skip-untranslatable", file)
	if code != 0 {
		t.Fatalf("got exit code %d and %s", code, stderr)
	}
	servertest.WriteFile(t, "fastadmit-test.yaml", stdout)
	defer os.Remove("fastadmit-test.yaml")
	want, got := endings(t, file), endings(t, "fastadmit-test.yaml")
	for name, ending := range want {
		if _, ok := got[name]; !ok || ending == "skipped" {
			delete(want, name)
			if ending != "skipped" {
				without++
			}
		}
	}
	if !maps.Equal(got, want) || without != strings.Count(stderr, "fastadmit: ") {
		out, _, _ := execute("", "test", "fastadmit-test.yaml")
		t.Errorf("%s: got %v\nwant %v\n%s\n%s\n%s", file, got, want, stdout, stderr, out)
	}
	for _, ending := range got {
		switch ending {
		case "passed":
			passed++
		case "failed":
			failed++
		}
	}
	return passed, failed, without
}

// The policies of a test of Kyverno: with all actions, of all kinds, and with an exception.
const (
	kyvernoImages = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: no-latest}
spec:
  validationActions: [Audit]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
  matchConditions: [{name: c, expression: "!has(object.metadata.labels)"}]
  validations:
  - {expression: "object.spec.containers.all(c, !c.image.endsWith(':latest'))", message: images must have a version}
  - {expression: "!object.spec.?hostPID.orValue(false)", message: no hostPID}
---
apiVersion: policies.kyverno.io/v1
kind: NamespacedValidatingPolicy
metadata: {name: small, namespace: prod}
spec:
  validationActions: [Warn]
  evaluation: {admission: {enabled: false}}
  matchConstraints:
    namespaceSelector: {matchLabels: {team: a}}
    resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: ['*'], resources: [widgets]}]
  validations: [{expression: object.spec.size < 3, message: too large}]
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: classic}
spec:
  validationFailureAction: Enforce
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {cel: {expressions: [{expression: "has(object.metadata.labels.team)", message: no team}]}}
`
	kyvernoLabels = `apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: labels}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: c, expression: "object.metadata.name == 'good'"}]
  autogen: {podControllers: {controllers: []}}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{annotations: {"a": "b"}}}'}
`
	kyvernoException = `apiVersion: policies.kyverno.io/v1
kind: PolicyException
metadata: {name: e}
spec:
  policyRefs: [{name: no-latest, kind: ValidatingPolicy}]
  matchConditions: [{name: c, expression: "object.metadata.name == 'excepted'"}]
`
	kyvernoEverything = `apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: everything, labels: {a: b}}
policies: [images.yaml, labels.yaml]
exceptions: [exception.yaml]
resources: [resources.yaml, one.yaml]
values:
  namespaces: [{metadata: {name: prod, labels: {team: a}}}]
userinfo: user.yaml
results:
- {policy: no-latest, kind: Pod, resources: [web, hostile], result: RESULT}
- {policy: no-latest, kind: Pod, resources: [good, default/one], result: RESULT}
- {policy: no-latest, kind: Deployment, resources: [made], result: RESULT, isValidatingPolicy: true}
- {policy: no-latest, kind: Pod, resources: [excepted, labelled], result: RESULT}
- {policy: no-latest, kind: Pod, resources: [wrong], result: RESULT}
- {policy: no-latest, kind: Pod, resources: [web], operation: DELETE, result: RESULT}
- {policy: prod/small, kind: Widget, resources: [w, x], result: RESULT}
- {policy: small, kind: Widget, resources: [good], result: RESULT}
- {policy: classic, rule: team, kind: Pod, resources: [good, labelled, made, w], result: RESULT}
- {policy: labels, kind: Pod, resources: [good], patchedResources: patched.yaml, result: RESULT}
- {policy: labels, kind: Pod, resources: [web], result: RESULT}
- {policy: no-latest, result: RESULT}
`
)

func kyvernoFiles(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	pod := func(name, more, spec string) string {
		return "---\napiVersion: v1\nkind: Pod\nmetadata: {name: \"" + name + "\"" + more + "}\nspec: {" + spec + "}\n"
	}
	good := "containers: [{name: a, image: 'nginx:1'}]"
	for name, text := range map[string]string{
		"images.yaml": kyvernoImages, "labels.yaml": kyvernoLabels, "exception.yaml": kyvernoException,
		"user.yaml": "apiVersion: cli.kyverno.io/v1alpha1\nkind: UserInfo\nuserInfo: {username: joe}\n",
		"resources.yaml": latestPod + pod("good", "", good) + pod("labelled", ", labels: {team: x}", good) +
			pod("wrong", "", "containers: [{name: a}]") + pod("hostile", "", "hostPID: true, containers: [{name: a, image: 'x:latest'}]") +
			pod("excepted", "", "containers: [{name: a, image: 'x:latest'}]") +
			"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: made}\n" +
			"spec: {template: {metadata: {name: x}, spec: {containers: [{name: a, image: 'nginx:latest'}]}}}\n" +
			"---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, namespace: prod}\nspec: {size: 5}\n" +
			"---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {name: x, namespace: prod}\nspec: {size: 1}\n",
		"one.yaml":     strings.TrimPrefix(pod("one", "", good), "---\n"),
		"patched.yaml": pod("good", ", namespace: default, annotations: {a: b}", good),
	} {
		servertest.WriteFile(t, name, text)
	}
}

// TestConvertKyvernoTests converts tests of Kyverno with all results, right and wrong ones, and runs both.
func TestConvertKyvernoTests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many seconds with the race detector; TestForeignTests runs such tests, too")
	}
	kyvernoFiles(t)
	ends := make(map[string]int)
	for _, result := range []string{"pass", "fail", "skip", "error", "warn"} {
		servertest.WriteFile(t, "kyverno-test.yaml", strings.ReplaceAll(kyvernoEverything, "RESULT", result))
		passed, failed, without := roundTrip(t, "kyverno-test.yaml")
		if passed == 0 || failed == 0 {
			t.Errorf("%s: got %d passed and %d failed cases, want some of both", result, passed, failed)
		}
		ends[result] = without
	}
	// An error of a ClusterPolicy is a failure, and a mutating policy does not fail.
	if ends["pass"] != 0 || ends["skip"] != 0 || ends["error"] != 4 || ends["fail"] != 2 || ends["warn"] != 2 {
		t.Errorf("got %v cases without a translation", ends)
	}
}

// TestConvertKyvernoTest reads a suite.
func TestConvertKyvernoTest(t *testing.T) {
	kyvernoFiles(t)
	test := strings.Replace(strings.ReplaceAll(kyvernoEverything, "RESULT", "pass"), "- {policy: no-latest, result: pass}\n", "", 1)
	servertest.WriteFile(t, "kyverno-test.yaml", test)
	stdout, stderr, code := execute("", "test", "--convert-tests")
	if code != 0 || stderr != "" {
		t.Fatalf("got exit code %d and %q", code, stderr)
	}
	for _, want := range []string{
		"# From kyverno-test.yaml, for its folder.\n" +
			"# Without fields that no result depends on: metadata.labels, results[].isValidatingPolicy, results[].kind.\n" +
			"apiVersion: fastadmit.io/v1alpha1\nkind: TestSuite\nname: everything\npolicies:\n  - labels.yaml\n  - exception.yaml\n" +
			"bindPolicies: Deny\n",
		"user:\n  username: joe\ndefaults: false\ncases:\n", "plural: widgets\n",
		"  - name: no-latest/default/one#2\n    policies:\n      - images.yaml\n    object: one.yaml\n    expect:\n      policies:\n" +
			"        - names:\n            - no-latest\n            - no-latest.autogen-defaults\n" +
			"            - no-latest.autogen-cronjobs\n          outcomes:\n            - allowed\n",
		"      wholeObject: patched.yaml\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("got no\n%s\nin\n%s", want, stdout)
		}
	}
}

// TestConvertRefusesTests has tests that say what a suite cannot.
func TestConvertRefusesTests(t *testing.T) {
	kyvernoFiles(t)
	f := func(old, with, want string, args ...string) {
		t.Helper()
		text := strings.ReplaceAll(kyvernoEverything, "RESULT", "pass")
		servertest.WriteFile(t, "kyverno-test.yaml", strings.Replace(text, old, with, 1))
		stdout, stderr, code := execute("", append([]string{"test", "--convert-tests"}, args...)...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: got exit code %d, want 1, and %s%s, want %s", with, code, stdout, stderr, want)
		}
	}
	f("userinfo:", "apiCallResponses: []\nuserinfo:", "kyverno-test.yaml:9: apiCallResponses: a suite cannot say it; remove it")
	f("result: pass", "result: excluded", `kyverno-test.yaml:11: results[0].result: got "excluded", want pass, fail, skip, error or warn`)
	f("rule: team", "rule: other", "results[8].result: the policy has no rule other")
	f("policies: [images.yaml, labels.yaml]", "policies: [../images.yaml]", "leads out of the folder")
	f("patchedResources: patched.yaml", "patchedResources: one.yaml",
		"results[9].resources: 1 of these objects are not in one.yaml, so Kyverno compares nothing; add them there, or leave them out")
	servertest.WriteFile(t, "labels.yaml", kyvernoLabels+"---\n"+kyvernoImages)
	f("images.yaml, ", "", "labels.yaml has validating and mutating policies, and results have patchedResources: put the validating ones")
	servertest.WriteFile(t, "labels.yaml", kyvernoLabels)
	servertest.WriteFile(t, "exception.yaml", kyvernoException+"  expiresAt: 2027-01-31T00:00:00Z\n")
	f("", "", `exceptions: exception.yaml:1: spec.expiresAt: got "2027-01-31T00:00:00Z"`)
	if err := os.Remove("kyverno-test.yaml"); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, "fastadmit-test.yaml", suiteHead)
	if _, stderr, code := execute("", "test", "--convert-tests"); code != 1 || !strings.Contains(stderr, "there is nothing to convert") {
		t.Errorf("got exit code %d and %s", code, stderr)
	}
	for _, args := range [][]string{{"--convert-tests", "--run=x"}, {"--skip-untranslatable"}} {
		if _, stderr, code := execute("", append([]string{"test"}, args...)...); code != 2 || !strings.Contains(stderr, args[0][2:]) {
			t.Errorf("%q: got exit code %d and %s", args, code, stderr)
		}
	}
}

// TestConvertGatekeeperTests converts suites of Gatekeeper with right and wrong assertions, and runs both.
func TestConvertGatekeeperTests(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many seconds with the race detector; TestForeignTests runs such tests, too")
	}
	t.Chdir(t.TempDir())
	template, constraint, _ := strings.Cut(gatekeeperPolicy, "---\n")
	two := strings.Replace(template, "          message: a label is missing\n", "          message: a label is missing\n"+
		"        - expression: variables.anyObject.metadata.name != 'web'\n          message: not this name\n", 1)
	for name, text := range map[string]string{
		"template.yaml": template, "two.yaml": two, "pod.yaml": latestPod,
		"constraint.yaml": strings.Replace(constraint, "spec: {match", "spec: {enforcementAction: dryrun, match", 1),
		"labeled.yaml":    "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {owner: me}}\n",
		"review.yaml": "apiVersion: admission.k8s.io/v1beta1\nkind: AdmissionReview\n" +
			"request: {operation: UPDATE, object: {apiVersion: v1, kind: Pod, metadata: {name: a}}, userInfo: {username: joe}}\n",
	} {
		servertest.WriteFile(t, name, text)
	}
	suite := gatekeeperSuite + `- name: two
  template: two.yaml
  constraint: constraint.yaml
  cases:
  - {name: both, object: pod.yaml, inventory: [labeled.yaml], assertions: [{violations: 2}, {violations: yes, message: "not this"}]}
  - {name: one, object: pod.yaml, assertions: [{violations: 1, message: "^a label"}, {violations: no, message: other}]}
`
	servertest.WriteFile(t, "suite.yaml", suite)
	if passed, failed, without := roundTrip(t, "suite.yaml"); passed != 5 || failed != 0 || without != 0 {
		t.Errorf("got %d passed, %d failed, %d without a translation", passed, failed, without)
	}
	for _, change := range []*strings.Replacer{
		strings.NewReplacer("violations: yes", "violations: 2", "violations: no", "violations: yes", `"yes"`, `"no"`),
		strings.NewReplacer("violations: yes", "violations: no", "violations: 2", "violations: 1", "violations: 1", "violations: 0"),
	} {
		servertest.WriteFile(t, "suite.yaml", change.Replace(suite))
		if _, failed, without := roundTrip(t, "suite.yaml"); failed < 3 || without != 0 {
			t.Errorf("got %d failed, %d without a translation", failed, without)
		}
	}
	servertest.WriteFile(t, "suite.yaml", strings.Replace(suite, "[{violations: no}]", "[]", 1))
	tested(t, 1, []string{"suite.yaml:9: tests[0].cases[1]: got no assertions"}, []string{"TestSuite"}, "--convert-tests", ".")
	tested(t, 0, []string{"# Without a case that is skipped there: labels/later.\n"}, []string{"labels/there"}, "--convert-tests",
		"--skip-untranslatable", ".")
	servertest.WriteFile(t, "constraint.yaml", strings.Replace(constraint, "spec: {match",
		"spec: {enforcementAction: scoped, scopedEnforcementActions: "+
			"[{action: deny, enforcementPoints: [{name: gator.gatekeeper.sh}]}], match", 1))
	const others = "the scopedEnforcementActions of the Constraint in constraint.yaml are others for gator.gatekeeper.sh than for requests"
	tested(t, 1, []string{others}, nil, "--convert-tests", ".")
}
