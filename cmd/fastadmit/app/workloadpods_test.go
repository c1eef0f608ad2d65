package app

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

const (
	workloadPodsConfig = `apiVersion: fastadmit.io/v1alpha1
kind: Configuration
enableAdmissionPlugins: [PodSecurity]
plugins:
- name: PodSecurity
  workloadPods: deny
`
	shopNamespace  = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: baseline}}\n"
	hostDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {hostPID: true, containers: [{name: a, image: nginx}]}
`
	hostDenied = `deployments.apps "web" would be denied: pods is forbidden: ` +
		`violates PodSecurity "baseline:latest": host namespaces (hostPID=true)`
)

// TestWorkloadPodsReview tests that a Deployment is denied because of its Pods, with a plugin and with a policy.
func TestWorkloadPodsReview(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config.yaml", workloadPodsConfig)
	write("policies.yaml", strings.ReplaceAll(workloadPodsConfig, "PodSecurity", "ValidatingAdmissionPolicy"))
	const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: host}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  validations:
  - expression: "!object.spec.?hostPID.orValue(false)"
    messageExpression: "'spec.hostPID: ' + request.userInfo.username + ' must not set it'"
`
	write("policy.yaml", policy)
	reviewed(t, shopNamespace+"---\n"+hostDeployment, 1, []string{
		"Deployment shop/web: denied by PodSecurity (403 Forbidden): Pods of " + hostDenied, "2 objects: 1 allowed, 1 denied"},
		[]string{"ReplicaSet"}, "-f", "-", "--config=config.yaml")
	const denied = `Pods of deployments.apps "web" would be denied: pods "web-5878d4dbdf-" is forbidden: ` +
		`ValidatingAdmissionPolicy 'host' with binding 'host' denied request: spec.template.spec.hostPID: ` +
		`system:serviceaccount:kube-system:replicaset-controller must not set it`
	reviewed(t, shopNamespace+"---\n"+hostDeployment, 1, []string{denied}, nil, "-f", "-", "--config=policies.yaml",
		"--policies=policy.yaml", "--bind-policies")

	// An annotation of a policy can do less than its plugin.
	annotated := func(value string) {
		t.Helper()
		with := `{name: host, annotations: {policies.fastadmit.io/workload-pods: "` + value + `"}}`
		write("policy.yaml", strings.Replace(policy, "{name: host}", with, 1))
	}
	args := []string{"-f", "-", "--config=policies.yaml", "--policies=policy.yaml", "--bind-policies", "--no-workload-pods"}
	annotated("deny")
	reviewed(t, hostDeployment, 1, []string{"would be denied"}, nil, args...)
	annotated("warn")
	reviewed(t, hostDeployment, 0, []string{`Deployment shop/web: allowed`,
		`warning: ValidatingAdmissionPolicy: Pods of deployments.apps "web": ValidatingAdmissionPolicy 'host' with binding 'host' ` +
			`denied request: spec.template.spec.hostPID: `}, nil, args...)
	annotated("off")
	reviewed(t, hostDeployment, 0, []string{`Deployment shop/web: allowed`}, []string{"hostPID"}, args...)
	annotated("on")
	reviewed(t, hostDeployment, 2, []string{
		`metadata.annotations[policies.fastadmit.io/workload-pods]: Unsupported value: "on": supported values: "off", "warn", "deny"`,
	}, nil, args...)
}

// TestWorkloadPodsServe tests the endpoints that get workloads, and that the webhook that calls them is registered.
func TestWorkloadPodsServe(t *testing.T) {
	config := servertest.TempFile(t, "config.yaml", strings.ReplaceAll(workloadPodsConfig, "PodSecurity", "LimitRanger"))
	state := t.TempDir()
	servertest.WriteFile(t, filepath.Join(state, "state.yaml"), shopNamespace+"---\n"+`apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: shop}
spec: {limits: [{type: Container, max: {cpu: "1"}}]}
`)
	server := serve(t, nil, "--config="+config, "--cluster-state-dir="+state)
	x := server.Open(t)
	body := func(cpu string) []byte {
		containers := `[{"name":"a","resources":{"limits":{"cpu":"` + cpu + `"}}}]`
		return bytes.Replace(admissiontest.Body(codec.Create, "apps/v1/deployments", `{"apiVersion":"apps/v1","kind":"Deployment",`+
			`"metadata":{"name":"web","namespace":"shop"},"spec":{"template":{"spec":{"containers":`+containers+`}}}}`),
			[]byte(`"namespace":"namespace"`), []byte(`"namespace":"shop"`), 1)
	}
	f := func(path, cpu, want string) {
		t.Helper()
		if _, answer := x.Send(servertest.Request(path, body(cpu))); !strings.Contains(string(answer), want) {
			t.Errorf("%s: got %s, want %s", path, answer, want)
		}
	}
	const denied = `LimitRanger: Pods of deployments.apps \"name\" would be denied: pods \"web-`
	for _, path := range []string{"/validate", "/validate/fail", "/validate/LimitRanger"} {
		f(path, "2", denied)
		f(path, "1", `"allowed":true`)
	}
	for _, path := range []string{"/mutate", "/validate/ignore"} {
		f(path, "2", `"allowed":true`)
	}
	manifests, _, code := execute("", "manifests", "--config="+config, "--kind=ValidatingWebhookConfiguration")
	if code != 0 || !strings.Contains(manifests, "- deployments\n") {
		t.Errorf("got %d, %s, want a rule for deployments", code, manifests)
	}
}
