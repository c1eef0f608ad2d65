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
	const denied = `Pods of deployments.apps "web" would be denied: pods "web-674cf774b8-" is forbidden: ` +
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

// TestWorkloadPodsAutogen tests that a Deployment is told once by a policy of Kyverno that has variants for workloads, and not at all
// if its autogen is disabled.
func TestWorkloadPodsAutogen(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "config.yaml", strings.ReplaceAll(workloadPodsConfig, "PodSecurity", "ValidatingAdmissionPolicy"))
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
		"spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: 'nginx:latest'}]}}}\n"
	f := func(policy string, code int, want, not []string) {
		t.Helper()
		servertest.WriteFile(t, "policy.yaml", policy)
		reviewed(t, deployment, code, want, append(not, "would be denied", "Pods of"), "-f", "-", "--config=config.yaml",
			"--policies=policy.yaml", "--no-workload-pods")
	}
	const denied = "'no-latest.autogen-defaults' with binding 'no-latest.autogen-defaults' denied request: images must have a version"
	f(kyvernoLatest, 1, []string{denied}, []string{"'no-latest' with binding"})
	warns := strings.Replace(kyvernoLatest, "spec:\n", "spec:\n  validationActions: [Warn]\n", 1)
	f(warns, 0, []string{"1 object: 1 allowed, 0 denied, 1 warning", "'no-latest.autogen-defaults' with binding"},
		[]string{"'no-latest' with binding"})
	f(kyvernoLatest+"  autogen: {podControllers: {controllers: []}}\n", 0, []string{"1 object: 1 allowed"}, []string{"no-latest"})
	const classic = `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: classic}
spec:
  validationFailureAction: Enforce
  rules:
  - name: latest
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: images must have a version
      cel: {expressions: [{expression: "object.spec.containers.all(c, !c.image.endsWith(':latest'))"}]}
`
	f(classic, 1, []string{"'classic.autogen-latest' with binding"}, []string{"'classic.latest' with binding"})
	none := strings.Replace(classic, "{name: classic}",
		"{name: classic, annotations: {pod-policies.kyverno.io/autogen-controllers: none}}", 1)
	f(none, 0, []string{"1 object: 1 allowed"}, []string{"classic"})

	// The annotation of a document counts, and so does a policy of which Kyverno makes no variants.
	own := strings.Replace(kyvernoLatest, "  name: no-latest\n",
		"  name: no-latest\n  annotations: {policies.fastadmit.io/workload-pods: deny}\n", 1)
	servertest.WriteFile(t, "policy.yaml", own+"  autogen: {podControllers: {controllers: []}}\n")
	reviewed(t, deployment, 1, []string{`Pods of deployments.apps "web" would be denied: `}, nil, "-f", "-", "--config=config.yaml",
		"--policies=policy.yaml", "--no-workload-pods")
	servertest.WriteFile(t, "policy.yaml", strings.Replace(kyvernoLatest, "matchConstraints:\n",
		"matchConstraints:\n    objectSelector: {matchLabels: {a: b}}\n", 1))
	reviewed(t, deployment, 1, []string{`Pods of deployments.apps "web" would be denied: `}, nil, "-f", "-", "--config=config.yaml",
		"--policies=policy.yaml", "--no-workload-pods")
}

// TestWorkloadPodsSuite runs a suite whose configuration sets workloadPods.
func TestWorkloadPodsSuite(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "config.yaml", strings.ReplaceAll(workloadPodsConfig, "PodSecurity", "ValidatingAdmissionPolicy"))
	servertest.WriteFile(t, "policy.yaml", noLatest)
	servertest.WriteFile(t, "kyverno.yaml", kyvernoLatest)
	const suite = suiteHead + `config: config.yaml
bindPolicies: Deny
cases:
- name: of Kubernetes
  policies: [policy.yaml]
  object: &web
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web}
    spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: 'nginx:latest'}]}}}
  expect:
    decision: denied
    policy: no-latest.example.com
    message: {matches: '^Pods of deployments.apps "web" would be denied: pods "web-'}
- name: of Kyverno
  policies: [kyverno.yaml]
  object: *web
  expect:
    decision: denied
    message: {matches: "^deployments.apps \"web\" is forbidden: .*'no-latest.autogen-defaults'"}
    warnings: []
    policies: [{names: [no-latest.autogen-defaults], outcomes: [denied]}, {names: [no-latest], outcomes: [unmatched]}]
`
	servertest.WriteFile(t, "fastadmit-test.yaml", suite)
	tested(t, 0, []string{"2 cases in 1 suite: 2 passed, 0 failed"}, nil)
	servertest.WriteFile(t, "config.yaml", "apiVersion: fastadmit.io/v1alpha1\nkind: Configuration\n")
	tested(t, 1, []string{"1 passed, 1 failed", "FAIL   fastadmit-test.yaml/of Kubernetes"}, nil)
}
