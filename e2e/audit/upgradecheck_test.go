package audit

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// upgraded has objects whose decisions an upgrade changes (docs/versions.md): PodSecurity's version latest allows another
// sysctl since 1.37, and a call of the function matches costs more, of which the policy makes too many for long texts.
const upgraded = `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: tuned, namespace: shop}
spec:
  securityContext: {sysctls: [{name: net.ipv4.tcp_notsent_lowat, value: "1"}]}
  containers: [{name: web, image: registry.example.com/web:1}]
---
apiVersion: v1
kind: Pod
metadata: {name: described, namespace: shop, annotations: {example.com/description: "TEXT"}}
spec:
  containers: [{name: web, image: registry.example.com/web:1}]
---
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: shop}
spec:
  containers: [{name: web, image: registry.example.com/web:1}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: descriptions.example.com}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  validations:
  - expression: "object.metadata.?annotations['example.com/description'].orValue('').split(',').all(w, !matches(w, '^(FORBIDDEN)$'))"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: descriptions.example.com}
spec: {policyName: descriptions.example.com, validationActions: [Deny]}
`

// upgradeCheck asks what upgrades of a cluster would change, as a user does who has no fastadmit there. It leaves no pods.
func upgradeCheck(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	objects := strings.NewReplacer("TEXT", strings.Repeat("word,", 3000), "FORBIDDEN", strings.Repeat("a|", 1000)+"b").Replace(upgraded)
	s.MustKubectl(t, objects, "apply", "-f", "-")
	policies := cluster.WriteFile(t, "policies.yaml", []byte(s.MustKubectl(t, "", "get",
		"validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "yaml")))
	check := func(code int, flags ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		cmd := exec.Command(*binary, append([]string{
			"upgrade-check", "--from=1.35", "--kubeconfig=" + s.Kubeconfig(t), "--in-tree", "--policies=" + policies, "--kube-api-qps=1000",
		}, flags...)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != code || stderr.Len() > 0 {
			t.Errorf("%q: %v, want exit code %d: %s%s", flags, err, code, stdout.String(), stderr.String())
		}
		return stdout.String()
	}
	const denied = "Pod shop/described: 1 review differs, allowed to denied by ValidatingAdmissionPolicy descriptions.example.com, " +
		"as here: allowed\n    now denied by ValidatingAdmissionPolicy: "
	text := check(1, "--to=1.37")
	for _, want := range []string{
		"Pod shop/tuned: 1 review differs, denied to allowed by PodSecurity", denied,
		"resulted in error: operation cancelled: actual cost limit exceeded\n",
		" 2 with another, of which 1 would not be allowed any more, from Kubernetes 1.35 to 1.37\n",
		"calls matches(text, expression), which costs more since 1.37\n",
		"kube-apiserver 1.37 runs the plugin NodeDeclaredFeatureValidator by default\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %q in it", text, want)
		}
	}
	if text := check(0, "--to=1.36"); !strings.Contains(text, "the same answer, 0 with another, from Kubernetes 1.35 to 1.36\n") {
		t.Errorf("got %s, want no difference", text)
	}
	var got outcome
	if err := json.Unmarshal([]byte(check(1, "--to=1.37", "-o=json")), &got); err != nil {
		t.Fatal(err)
	}
	if counted := got.Summary.Replay; counted.Worse != 1 || counted.Differing != 2 || len(got.Results) != 2 {
		t.Errorf("got %+v and %d results, want 1 worse of 2", counted, len(got.Results))
	}
	for _, r := range got.Results {
		if r.Namespace != "shop" || r.Name != "tuned" && r.Name != "described" || r.Decision != report.Differs {
			t.Errorf("got %+v, want the pods that differ", r)
		}
	}
	s.MustKubectl(t, "", "delete", "pods", "--namespace=shop", "--all", "--force")
}
