package app

import (
	"os"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

const kyvernoFunctions = `apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: functions}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations:
  - message: the image has the wrong digest
    expression: sha256(object.spec.containers[0].image) == 'e98de8e3a54bcb921de9cc72741522823cb30ef9dda17cfd228416ead4ce3760'
  - message: it is too late
    expression: time.now() < timestamp('9999-01-01T00:00:00Z') && time.toCron(time.truncate(time.now(), duration('1h'))).startsWith('0 ')
  - message: the name is not that of itself
    expression: >-
      json.unmarshal('{"a":[1]}').a == yaml.parse('a:\n- 1').a &&
      json.marshal(listObjToMap([object.metadata], [object.metadata], 'name', 'name')) ==
      '{"' + object.metadata.name + '":"' + object.metadata.name + '"}'
`

const kyvernoHashes = `apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: hashes}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  autogen: {podControllers: {controllers: []}}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{annotations: {"md5": hash.md5(object.metadata.name)}}}'}
`

// TestKyvernoFunctions evaluates policies that call Kyverno's functions in all ways in which fastadmit evaluates documents
// of Kyverno, and does not convert them.
func TestKyvernoFunctions(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"manifests", ".kyverno-test"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	pod := func(name, image string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {containers: [{name: a, image: '" + image + "'}]}\n"
	}
	servertest.WriteFile(t, "good.yaml", pod("good", "ghcr.io/kyverno/kyverno:latest"))
	servertest.WriteFile(t, "bad.yaml", pod("bad", "other"))
	servertest.WriteFile(t, "policy.yaml", kyvernoFunctions)
	servertest.WriteFile(t, "manifests/policy.yaml", kyvernoFunctions)
	servertest.WriteFile(t, "admission.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		"- name: ValidatingAdmissionPolicy\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n"+
		"    kind: ValidatingAdmissionPolicyConfiguration\n    staticManifestsDir: manifests\n")
	const denied = "'functions' with binding 'functions' denied request: the image has the wrong digest"
	for _, flags := range [][]string{{"--policies=policy.yaml"},
		{"--enable-admission-plugins=ValidatingAdmissionPolicy", "--admission-control-config-file=admission.yaml"}} {
		reviewed(t, "", 0, nil, []string{denied}, append(flags, "good.yaml")...)
		reviewed(t, "", 1, []string{denied}, []string{"too late"}, append(flags, "bad.yaml")...)
	}
	servertest.WriteFile(t, "hashes.yaml", kyvernoHashes)
	servertest.WriteFile(t, "patched.yaml", strings.Replace(pod("good", "ghcr.io/kyverno/kyverno:latest"), "name: good",
		"name: good, namespace: default, annotations: {md5: 755f85c2723bb39381c7379a604160d8}", 1))
	servertest.WriteFile(t, ".kyverno-test/kyverno-test.yaml", `apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: functions}
policies: [../policy.yaml, ../hashes.yaml]
resources: [../good.yaml, ../bad.yaml]
results:
- {policy: functions, kind: Pod, resources: [good], result: pass}
- {policy: functions, kind: Pod, resources: [bad], result: fail}
- {policy: hashes, kind: Pod, resources: [good], patchedResources: ../patched.yaml, result: pass}
`)
	tested(t, 0, []string{"3 cases in 1 suite: 3 passed, 0 failed"}, nil, ".", "-v")
	stdout, stderr, code := execute("", "convert", "policy.yaml")
	const refused = `policy.yaml:8: ValidatingPolicy "functions": spec.validations[0].expression: the function sha256 of Kyverno has no ` +
		"translation: Kubernetes' expressions have no such function: write the rule without it, or have fastadmit evaluate the document " +
		"itself (--policies, staticManifestsDir or policies.read)"
	if code != 1 || stdout != "" || !strings.Contains(stderr, refused) {
		t.Errorf("got exit code %d and %s, want %s", code, stdout+stderr, refused)
	}
}
