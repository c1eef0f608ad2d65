package app

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// tested runs the test command. It returns an error text unless the command ends
// with that code and prints all wanted texts and no unwanted ones.
func tested(t *testing.T, code int, want, not []string, args ...string) string {
	t.Helper()
	stdout, stderr, got := execute("", append([]string{"test"}, args...)...)
	if got != code {
		t.Errorf("%q: got exit code %d, want %d\n%s%s", args, got, code, stdout, stderr)
	}
	for _, text := range want {
		if !strings.Contains(stdout+stderr, text) {
			t.Errorf("%q: got no %q in\n%s%s", args, text, stdout, stderr)
		}
	}
	for _, text := range not {
		if strings.Contains(stdout+stderr, text) {
			t.Errorf("%q: got %q in\n%s%s", args, text, stdout, stderr)
		}
	}
	return stdout
}

// TestPoliciesOfTheChart runs the suites of the chart's policies, of which each has one. They compile with the libraries of
// the oldest release of Kubernetes, too.
func TestPoliciesOfTheChart(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many seconds with the race detector; TestTest runs suites, too")
	}
	const folder = "../../../deploy/chart/policies"
	suites, err := filepath.Glob(folder + "/*.test.yaml")
	if err != nil || len(suites) < 10 {
		t.Fatalf("got suites %q, %v", suites, err)
	}
	files, err := filepath.Glob(folder + "/*.yaml")
	if err != nil || len(files) != 2*len(suites) {
		t.Errorf("got %d files, %v, want a policy for each of %d suites", len(files), err, len(suites))
	}
	out := tested(t, 0, []string{fmt.Sprintf("in %d suites: ", len(suites)), " passed, 0 failed"}, []string{"broken"}, folder, "-v")
	if passed := strings.Count(out, "PASS   "); passed < 5*len(suites) {
		t.Errorf("got %d cases, want all of %d policies", passed, len(suites))
	}
	oldest := admission.Oldest().String()
	stdout, stderr, code := execute("", "review", "../../../testdata/pod.yaml", "--policies="+folder, "--bind-policies",
		"--emulated-version="+oldest)
	if code == 2 || !strings.Contains(stdout, "as Kubernetes "+oldest) {
		t.Errorf("got exit code %d\n%s%s", code, stdout, stderr)
	}
	if strings.Contains(stderr, "expression: ") {
		t.Errorf("types show errors: %s", stderr)
	}
}

// TestSuitesOfAnotherRelease runs a suite whose policy calls a function that Kubernetes has since 1.34.
func TestSuitesOfAnotherRelease(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "latest.yaml",
		strings.Replace(noLatest, "expression: object", "expression: lists.range(1) == [0] && object", 1))
	const cases = "cases:\n- {name: a, object: pod.yaml, expect: {decision: denied}}\n"
	servertest.WriteFile(t, "a.test.yaml", suiteHead+"policies: [latest.yaml]\n"+cases)
	tested(t, 0, []string{"1 passed"}, nil)
	tested(t, 0, []string{"1 passed"}, nil, "--emulated-version=1.34")
	tested(t, 2, []string{"undeclared reference to 'lists'"}, nil, "--emulated-version=1.33")
	tested(t, 2, []string{`--emulated-version: got version "x", want`}, nil, "--emulated-version=x")
	// The flag replaces the version of a configuration, as that of review does.
	servertest.WriteFile(t, "fastadmit.yaml", "apiVersion: fastadmit.io/v1alpha1\nkind: Configuration\nemulatedVersion: '1.33'\n")
	servertest.WriteFile(t, "a.test.yaml", suiteHead+"policies: [latest.yaml]\nconfig: fastadmit.yaml\n"+cases)
	tested(t, 2, []string{"undeclared reference to 'lists'"}, nil)
	tested(t, 0, []string{"1 passed"}, nil, "--emulated-version=1.34")
}

const suiteHead = "apiVersion: fastadmit.io/v1alpha1\nkind: TestSuite\n"

const passingSuite = suiteHead + `name: latest
policies: [latest.yaml]
cases:
- name: denied
  object: pod.yaml
  expect: {decision: denied, policy: no-latest.example.com, plugin: ValidatingAdmissionPolicy, code: 422, reason: Invalid,
    message: images must have a version}
- name: allowed
  object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: 'nginx:1'}]}}
  expect: {decision: allowed, warnings: []}
- name: made by a Deployment
  workloadPods: true
  object:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec: {template: {spec: {containers: [{name: a, image: 'nginx:latest'}]}}}
  expect: {decision: denied, message: {matches: 'pods "web-[0-9a-z]+-" is forbidden'}}
- name: not looked at
  operation: DELETE
  object: pod.yaml
  expect: {decision: allowed}
`

const failingSuite = suiteHead + `policies: [latest.yaml]
bindPolicies: Warn
enableAdmissionPlugins: [AlwaysPullImages]
cases:
- name: wrong decision
  object: pod.yaml
  expect: {decision: allowed}
- name: wrong message
  object: pod.yaml
  expect: {decision: denied, message: images must have a tag, code: 403, warnings: [careful]}
- name: wrong change
  object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: 'nginx:1', imagePullPolicy: Never}]}}
  expect:
    decision: patched
    patch: [{op: replace, path: /spec/containers/0/imagePullPolicy, value: IfNotPresent}]
    object: {metadata: {name: a}, spec: {containers: [{imagePullPolicy: Never}]}}
    auditAnnotations: {nothing: ""}
- name: right change
  object: {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: 'nginx:1'}]}}
  expect:
    decision: patched
    patch: [{op: replace, path: /spec/containers/0/imagePullPolicy, value: Always}]
    object: {spec: {containers: [{imagePullPolicy: Always, tty: null}], hostNetwork: null}}
`

func TestTest(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "latest.yaml", noLatest)
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "fastadmit-test.yaml", passingSuite)
	tested(t, 0, []string{"4 cases in 1 suite: 4 passed, 0 failed\n"}, []string{"PASS"})
	tested(t, 0, []string{"PASS   latest/made by a Deployment (", "4 passed"}, nil, ".", "-v")
	servertest.WriteFile(t, "more.test.yaml", failingSuite)
	tested(t, 1, []string{
		"FAIL   more.test.yaml/wrong decision (more.test.yaml:7)\n  decision:\n  - want allowed\n  + got  denied by " +
			"ValidatingAdmissionPolicy (422 Invalid): pods \"web\"",
		"FAIL   more.test.yaml/wrong message (more.test.yaml:10)\n  code:\n  - want 403\n  + got  422\n  message:\n  - want " +
			"\"images must have a tag\"\n  + got  \"pods",
		"warnings:\n  - want \"careful\"\n  + got  []",
		"  patch:\n  --- want\n  +++ got\n", "  -  value: IfNotPresent\n  +  value: Always\n",
		"  -    imagePullPolicy: Never\n", "  +    imagePullPolicy: Always\n",
		"auditAnnotations: nothing:\n  - want \"\"\n  + got  none of that key",
		"8 cases in 2 suites: 5 passed, 3 failed\n",
	}, []string{"right change"})
	tested(t, 1, []string{"1 case in 1 suite: 0 passed, 1 failed"}, nil, "--run=more.*/wrong d")
	tested(t, 0, []string{"1 case in 1 suite: 1 passed"}, nil, "--run=right change$", "more.test.yaml")
	tested(t, 1, []string{"skipped"}, nil, "--fail-fast")
	out := tested(t, 1, nil, nil, "-o", "junit")
	var report struct {
		Suites []struct {
			Name     string `xml:"name,attr"`
			Tests    int    `xml:"tests,attr"`
			Failures int    `xml:"failures,attr"`
			Cases    []struct {
				Name    string `xml:"name,attr"`
				Failure string `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal([]byte(out), &report); err != nil || len(report.Suites) != 2 || report.Suites[1].Tests != 4 ||
		report.Suites[1].Failures != 3 || !strings.Contains(report.Suites[1].Cases[0].Failure, "want allowed") {
		t.Errorf("got %+v, %v from\n%s", report, err, out)
	}
}

// TestTestCluster runs cases that need objects of a cluster, users and old objects.
func TestTestCluster(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "namespaces.yaml",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: baseline}}\n")
	servertest.WriteFile(t, "policy.yaml", strings.Replace(noLatest, "object.spec.containers.all(c, !c.image.endsWith(':latest'))",
		"request.userInfo.username == 'admin' || (oldObject != null && oldObject.metadata.name == 'web')", 1))
	servertest.WriteFile(t, "admission.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: []\n")
	servertest.WriteFile(t, "fastadmit-test.yaml", suiteHead+`enableAdmissionPlugins: [PodSecurity]
admissionControlConfigFile: admission.yaml
policies: [policy.yaml]
namespace: strict
user: {username: admin}
cluster: [namespaces.yaml]
cases:
- name: privileged
  object: &pod {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {hostNetwork: true, containers: [{name: a, image: a}]}}
  expect: {decision: denied, plugin: PodSecurity, message: {contains: 'violates PodSecurity "baseline:latest": host namespaces'}}
- name: another namespace
  namespace: other
  object: *pod
  expect: {decision: allowed}
- name: a namespace of the case
  cluster: [{apiVersion: v1, kind: Namespace, metadata: {name: other, labels: {pod-security.kubernetes.io/warn: baseline}}}]
  namespace: other
  object: *pod
  expect: {decision: allowed, warnings: [{contains: would violate}]}
- name: another user
  namespace: other
  user: {username: joe, groups: [devs]}
  object: *pod
  expect: {decision: denied, message: images must have a version}
- name: an update
  namespace: other
  user: {username: joe}
  object: *pod
  oldObject: *pod
  expect: {decision: allowed}
`)
	tested(t, 0, []string{"5 cases in 1 suite: 5 passed"}, nil)
}

// TestTestWrong tests suites that cannot be run, and wrong usage.
func TestTestWrong(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "latest.yaml", noLatest)
	servertest.WriteFile(t, "pod.yaml", latestPod)
	f := func(suite string, want ...string) {
		t.Helper()
		servertest.WriteFile(t, "a.test.yaml", suite)
		tested(t, 2, append(want, "BROKEN"), nil, "a.test.yaml")
	}
	f("", "a.test.yaml: got an empty file")
	f(passingSuite[:len(passingSuite)-30]+"[", "a.test.yaml: ")
	f(suiteHead+"polices: [latest.yaml]\ncases: []\n",
		"a.test.yaml:3: polices: unknown field, did you mean policies?",
		"a.test.yaml:4: cases: got none")
	f(suiteHead+"cases:\n- name: a\n  object: pod.yaml\n  expect: {decision: refused, mesage: a}\n",
		"a.test.yaml:6: cases[0].expect.mesage: unknown field",
		`a.test.yaml:6: cases[0].expect.decision: got "refused", want one of allowed, patched, denied, failed`)
	f("apiVersion: v2\nkind: Suite\nbindPolicies: No\ncases: [{name: a, object: no.yaml, operation: EAT, expect: {decision: "+
		"allowed}}, {name: a, expect: {decision: allowed}}]\n",
		`:1: apiVersion: got "v2", want "fastadmit.io/v1alpha1"`, `:2: kind: got "Suite"`, `:3: bindPolicies: got "No"`,
		"no.yaml: stat no.yaml: no such file",
		`operation: got "EAT"`, "that no other case has", "cases[1].object: got none")
	f(suiteHead+"policies: [latest.yaml]\ncases: [{name: a, object: 5, expect: {decision: denied, message: {like: a}}}]\n",
		"cases[0].object: got 5: want the path of a file, or an object", `want a text, or {contains: "text"}`)
	f(suiteHead+"policies: [latest.yaml]\ncases: [{name: a, object: {apiVersion: example.com/v1, kind: Thing}, expect: "+
		"{decision: denied}}]\n",
		`BROKEN a.test.yaml/a (a.test.yaml:4)`, `Thing cannot be reviewed: unknown kind "Thing"`)
	f(suiteHead+"cases: [{name: a, object: pod.yaml, expect: {decision: denied}}]\n",
		"a.test.yaml:1: policies: no admission plugin is enabled: name files with policies here, or plugins in enableAdmissionPlugins; ")
	f(suiteHead+"config: none.yaml\ncases: [{name: a, object: pod.yaml, expect: {decision: denied}}]\n",
		"a.test.yaml:3: config: ", "none.yaml: no such file")
	servertest.WriteFile(t, "bad.yaml", strings.ReplaceAll(noLatest, "':latest'))", "':latest')"))
	f(suiteHead+"policies: [bad.yaml]\ncases: [{name: a, object: pod.yaml, expect: {decision: denied}}]\n",
		`bad.yaml:10: ValidatingAdmissionPolicy "no-latest.example.com": spec.validations[0].expression`)
	// The other suites still run.
	servertest.WriteFile(t, "fastadmit-test.yaml", passingSuite)
	tested(t, 2, []string{"BROKEN a.test.yaml", "4 passed, 0 failed, 1 broken"}, nil)
	// The output names policies without a binding.
	servertest.WriteFile(t, "a.test.yaml",
		suiteHead+"policies: [unbound.yaml]\ncases: [{name: a, object: pod.yaml, expect: {decision: denied}}]\n")
	unbound, _, _ := strings.Cut(noLatest, "---")
	servertest.WriteFile(t, "unbound.yaml", unbound)
	tested(t, 1, []string{"- want denied\n  + got  allowed",
		`unbound.yaml:2: ValidatingAdmissionPolicy "no-latest.example.com" has no binding`}, nil, "a.test.yaml")
	// So it does if the case passes, although nothing was checked.
	servertest.WriteFile(t, "a.test.yaml",
		suiteHead+"policies: [unbound.yaml]\ncases: [{name: a, object: pod.yaml, expect: {decision: allowed}}]\n")
	tested(t, 0, []string{`fastadmit: unbound.yaml:2: ValidatingAdmissionPolicy "no-latest.example.com" has no binding, so it is not ` +
		"evaluated; bindPolicies: Deny in the suite evaluates it\n"}, nil, "a.test.yaml")
	servertest.WriteFile(t, "unbound.yaml", strings.Replace(unbound, "kind: Validating", "kind: Validatng", 1))
	tested(t, 2, []string{`unbound.yaml:2: got the kind "ValidatngAdmissionPolicy" of admissionregistration`}, nil, "a.test.yaml")
	tested(t, 2, []string{"there is no suite: no file has one of the names fastadmit-test.yaml"}, nil, t.TempDir())
	tested(t, 2, []string{"no such file"}, nil, "nowhere")
	tested(t, 2, []string{"no case matches --run=nothing"}, nil, "fastadmit-test.yaml", "--run=nothing")
	tested(t, 2, []string{"--run: error parsing regexp"}, nil, "--run=(")
	tested(t, 2, []string{`--output: got "sarif", want one of text, junit`}, nil, "-o", "sarif")
}
