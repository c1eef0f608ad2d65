package app

import (
	"os"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestReviewOrdinaryTree reviews a folder with files for other programs, as most repositories have.
func TestReviewOrdinaryTree(t *testing.T) {
	t.Chdir(t.TempDir())
	mkdirs(t, "tree/ui", "tree/only")
	servertest.WriteFile(t, "tree/pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: w}\nspec: {containers: [{name: a, image: b}]}\n")
	servertest.WriteFile(t, "tree/datasources.yaml", "apiVersion: 1\ndatasources: []\n")
	servertest.WriteFile(t, "tree/ui/tsconfig.json", "{\n  // the target\n  \"target\": \"es5\",\n}\n")
	servertest.WriteFile(t, "tree/only/kind.yaml", "apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\nnodes: []\n")
	const security = "--pod-security=baseline"
	reviewed(t, "", 0, []string{"tree/only/kind.yaml:1: Cluster: skipped: no API server has such objects: this one is for kind",
		"2 files have no manifests", "1 allowed, 0 denied, 2 skipped"}, nil, "tree", security)
	reviewed(t, "", 2, []string{"1 skipped", "there is nothing to review"}, nil, "tree/only", security)
	reviewed(t, "", 2, []string{"tree/ui/tsconfig.json:3: broken: cannot be read"}, nil, "tree/ui/tsconfig.json", security)
	servertest.WriteFile(t, "tree/only/misspelt.yaml", "apiVersion: v1\nkind: Confg\n")
	reviewed(t, "", 2, []string{"1 broken", `unknown kind "Confg"`}, nil, "tree", security)
}

func mkdirs(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReviewClusterStateDir reviews with a folder that has the parameter of a policy, and objects that nothing reads.
func TestReviewClusterStateDir(t *testing.T) {
	t.Chdir(t.TempDir())
	mkdirs(t, "state")
	servertest.WriteFile(t, "state/all.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n---\n"+
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: names, namespace: default}\ndata: {bad: evil}\n---\n"+
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: default}\n")
	servertest.WriteFile(t, "policy.yaml", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: names}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [services]}]}
  validations: [{expression: "object.metadata.name != params.data.bad", message: it is bad}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: names}
spec: {policyName: names, validationActions: [Deny], paramRef: {name: names, namespace: default, parameterNotFoundAction: Deny}}
`)
	service := func(name string) string { return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\n" }
	reviewed(t, service("good"), 0, nil, nil, "-", "--policies=policy.yaml", "--cluster-state-dir=state")
	reviewed(t, service("evil"), 1, []string{"it is bad"}, nil, "-", "--policies=policy.yaml", "--cluster-state-dir=state")
	reviewed(t, service("evil"), 2, []string{"--cluster-state-dir: nope: no such folder"}, []string{"open ."}, "-",
		"--policies=policy.yaml", "--cluster-state-dir=nope")
	reviewed(t, service("evil"), 2, []string{"--cluster-state-dir: policy.yaml: got a file, want a folder"}, nil, "-",
		"--policies=policy.yaml", "--cluster-state-dir=policy.yaml")
	servertest.WriteFile(t, "state/misspelt.yaml", "apiVersion: v1\nkind: Namespac\nmetadata: {name: shop}\n")
	reviewed(t, service("good"), 2, []string{"state/misspelt.yaml:1: document 1", "did you mean Namespace?"}, nil, "-",
		"--policies=policy.yaml", "--cluster-state-dir=state")
}
