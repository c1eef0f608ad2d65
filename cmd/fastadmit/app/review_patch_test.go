package app

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestReviewPatchOfWrongType has a mutation whose patch kube-apiserver cannot decode, so it refuses every request.
func TestReviewPatchOfWrongType(t *testing.T) {
	t.Chdir(t.TempDir())
	const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: replicas}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/spec/replicas", value: VALUE}]'}
`
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {selector: {matchLabels: {a: b}}, template: " +
		"{metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: 'a:1'}]}}}\n"
	servertest.WriteFile(t, "deployment.yaml", deployment)
	servertest.WriteFile(t, "good.yaml", strings.Replace(policy, "VALUE", "3", 1))
	servertest.WriteFile(t, "bad.yaml", strings.Replace(policy, "VALUE", `"3"`, 1))
	const refused = "kube-apiserver cannot decode the object that MutatingAdmissionPolicy patched: spec.replicas: got a string"
	reviewed(t, "", 2, []string{"d: failed: " + refused, "1 failed"}, []string{"allowed, patched"},
		"deployment.yaml", "--policies=bad.yaml", "--bind-policies", "--no-workload-pods")
	reviewed(t, "", 0, []string{"allowed, patched"}, []string{refused}, "deployment.yaml", "--policies=good.yaml", "--bind-policies")

	servertest.WriteFile(t, "suite.test.yaml", "apiVersion: fastadmit.io/v1alpha1\nkind: TestSuite\npolicies: [bad.yaml]\n"+
		"bindPolicies: Deny\ncases:\n- name: a\n  object: deployment.yaml\n  expect: {decision: patched}\n")
	if out, errs, code := execute("", "test", "suite.test.yaml"); code != exitDenied || !strings.Contains(out, refused) {
		t.Errorf("got exit code %d, %s%s", code, out, errs)
	}
}

// TestReviewPolicyOfWrongType has a policy that cannot be decoded. The error names the field without the structs of Go.
func TestReviewPolicyOfWrongType(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "list.yaml", strings.Replace(noLatest, "apiVersions: [v1]", "apiVersions: v1", 1))
	reviewed(t, latestPod, 2, []string{`spec.matchConstraints.resourceRules[0].apiVersions: got a string, want a list`}, nil, "-",
		"--policies=list.yaml")
}
