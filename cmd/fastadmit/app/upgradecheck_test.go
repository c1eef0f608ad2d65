package app

import (
	"os"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// upgraded runs upgrade-check and expects its exit code and parts of its output.
func upgraded(t *testing.T, code int, want []string, args ...string) string {
	t.Helper()
	return ran(t, "", code, want, append([]string{"upgrade-check"}, args...)...)
}

const (
	upgradedRange = `apiVersion: v1
kind: LimitRange
metadata: {name: small, namespace: shop}
spec: {limits: [{type: Pod, max: {cpu: "1"}}]}
---
`
	upgradedPod = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  resources: {limits: {cpu: "2"}}
  securityContext: {sysctls: [{name: net.ipv4.tcp_notsent_lowat, value: "1"}]}
  containers: [{name: web, image: web:v1, resources: {limits: {cpu: 500m}}}]
`
	upgradedJob = `apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: shop}
spec:
  template:
    spec:
      restartPolicy: Never
      resources: {limits: {cpu: "2"}}
      containers: [{name: job, image: job:v1, resources: {limits: {cpu: 500m}}}]
`
)

func TestUpgradeCheck(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", upgradedRange+upgradedPod)
	const limited = "pod.yaml:6: Pod shop/web: 1 review differs, allowed to denied by LimitRanger, as here: allowed\n" +
		`    now denied by LimitRanger: pods "web" is forbidden: maximum cpu usage per Pod is 1, but limit is 2`
	upgraded(t, 1, []string{
		limited, "2 reviews: 1 with the same answer, 1 with another, of which 1 would not be allowed any more, from",
		"from Kubernetes 1.33 to 1.34",
	}, "--from=1.33", "--to=1.34", "pod.yaml", "--enable-admission-plugins=LimitRanger")
	upgraded(t, 0, []string{"2 reviews: 2 with the same answer, 0 with another, from Kubernetes 1.34 to 1.37"},
		"--from=1.34", "--to=1.37", "pod.yaml", "--enable-admission-plugins=LimitRanger")
	upgraded(t, 0, []string{"2 reviews: 2 with the same answer"},
		"--from=1.34", "--to=1.37", "-f", "pod.yaml", "--enable-admission-plugins=LimitRanger")
	upgraded(t, 0, []string{"denied to allowed by LimitRanger"},
		"--from=1.34", "--to=1.33", "pod.yaml", "--enable-admission-plugins=LimitRanger")
	upgraded(t, 0, []string{"::warning file=pod.yaml,line=6,title=1 review differs%2C denied to allowed by LimitRanger"},
		"--from=1.34", "--to=1.33", "pod.yaml", "--enable-admission-plugins=LimitRanger", "-o", "github")
	upgraded(t, 1, []string{"::error file=pod.yaml,line=6,title=1 review differs%2C allowed to denied by LimitRanger"},
		"--from=1.33", "--to=1.34", "pod.yaml", "--enable-admission-plugins=LimitRanger", "-o", "github")
	upgraded(t, 0, []string{`failures="0"`, "denied to allowed by LimitRanger"},
		"--from=1.34", "--to=1.33", "pod.yaml", "--enable-admission-plugins=LimitRanger", "-o", "junit")

	upgraded(t, 0, []string{
		`<testsuite name="fastadmit upgrade-check" tests="1" failures="0"`, "2 reviews: 2 with the same answer",
		"note: kube-apiserver 1.37 ",
	}, "--from=1.36", "--to=1.37", "pod.yaml", "--enable-admission-plugins=LimitRanger", "-o", "junit")

	// Plugins that each release runs by default, and the names that ServiceAccount generates.
	upgraded(t, 1, []string{
		limited, "note: kube-apiserver 1.35 runs the plugin PodTopologyLabels by default\n",
		"note: plugins that count or write are left out: NamespaceLifecycle, ResourceQuota",
	}, "--from=1.33", "--to=1.35", "--in-tree", "pod.yaml")
	upgraded(t, 0, []string{
		"note: kube-apiserver 1.37 does not have the plugin JobValidation any more; fastadmit runs it because it is enabled\n",
		"1 with another, from Kubernetes 1.36 to 1.37", "denied to allowed by PodSecurity",
	}, "--from=1.36", "--to=1.37", "--enable-admission-plugins=JobValidation", "--pod-security=baseline", "pod.yaml")

	// PodSecurity does not look at a LimitRange.
	servertest.WriteFile(t, "range.yaml", strings.TrimSuffix(upgradedRange, "---\n"))
	upgraded(t, 0, []string{"note: in both releases, no enabled plugin checks 1 of 1 object\n"},
		"--from=1.36", "--to=1.37", "--pod-security=baseline", "range.yaml")

	// What controllers make of an object is compared, too.
	servertest.WriteFile(t, "job.yaml", upgradedRange+upgradedJob)
	upgraded(t, 1, []string{"job.yaml:6: Pod shop/job-*: 1 review differs, allowed to denied by LimitRanger"},
		"--from=1.33", "--to=1.34", "job.yaml", "--enable-admission-plugins=LimitRanger")
}

func TestUpgradeCheckPolicies(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", upgradedPod)
	const policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: names.example.com}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations:
  - expression: EXPRESSION
`
	write := func(expression string) {
		servertest.WriteFile(t, "policy.yaml", strings.Replace(policy, "EXPRESSION", expression, 1))
	}
	const cost = "note: policy.yaml:1: ValidatingAdmissionPolicy \"names.example.com\": spec.validations[0].expression calls " +
		"matches(text, expression), which costs more since 1.37\n"
	write(`matches(object.metadata.name, '^w') && object.metadata.?labels.orValue({}).size() == 0`)
	upgraded(t, 0, []string{cost}, "--from=1.36", "--to=1.37", "--policies=policy.yaml", "--bind-policies", "pod.yaml")
	silent := func(from, to string) {
		t.Helper()
		got := upgraded(t, 0, nil, from, to, "--policies=policy.yaml", "--bind-policies", "pod.yaml")
		if strings.Contains(got, "costs") {
			t.Errorf("got %s, want nothing about costs", got)
		}
	}
	silent("--from=1.35", "--to=1.36")
	write(`object.metadata.name.matches('^w')`)
	silent("--from=1.36", "--to=1.37")
	write(`object.spec.containers.map(c, c.name).distinct().size() > 0`)
	upgraded(t, 2, []string{"--from=1.33: policy.yaml:7: ValidatingAdmissionPolicy", "undeclared reference to 'distinct'"},
		"--from=1.33", "--to=1.34", "--policies=policy.yaml", "--bind-policies", "pod.yaml")
	upgraded(t, 2, []string{"--to=1.33: policy.yaml:7: ValidatingAdmissionPolicy", "undeclared reference to 'distinct'"},
		"--from=1.34", "--to=1.33", "--policies=policy.yaml", "--bind-policies", "pod.yaml")
}

// TestUpgradeCheckCluster reviews the objects of a cluster.
func TestUpgradeCheckCluster(t *testing.T) {
	t.Chdir(t.TempDir())
	documents := auditedCluster(t, 2, 5)
	text := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[{"name":"c","image":"i",` +
		`"securityContext":{"windowsOptions":{}}}],"securityContext":{"sysctls":[{"name":"net.ipv4.tcp_notsent_lowat","value":"1"}]}}}`
	documents["/api/v1"] = `{"kind":"APIResourceList","groupVersion":"v1","resources":[` +
		`{"name":"namespaces","kind":"Namespace","verbs":["list"]},{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list"]}]}`
	documents["/api/v1/pods"] = `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` + text + `]}`
	args := []string{"--kubeconfig=kubeconfig", "--pod-security=baseline"}
	const differs = "Pod shop/web: 1 review differs, "
	upgraded(t, 0, []string{differs + "denied to allowed by PodSecurity"}, append(args, "--from=1.36", "--to=1.37")...)
	upgraded(t, 1, []string{differs + "allowed to denied by PodSecurity"}, append(args, "--from=1.37", "--to=1.36")...)
	upgraded(t, 0, []string{"4 reviews: 4 with the same answer, 0 with another"}, append(args, "--from=1.35", "--to=1.36")...)
	if err := os.Remove("kubeconfig"); err != nil {
		t.Fatal(err)
	}
	upgraded(t, 2, []string{"--from=1.36: cannot read the cluster"}, append(args, "--from=1.36", "--to=1.37")...)
}

func TestUpgradeCheckUsage(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		upgraded(t, 2, []string{want}, args...)
	}
	f(`required flag(s) "to" not set`, "--from=1.34", "x")
	f(`--to: got "1.99", want one of 1.33, 1.34, 1.35, 1.36, 1.37`, "--from=1.34", "--to=1.99", "x")
	f(`--from: got "latest", want one of`, "--from=latest", "--to=1.34", "x")
	f("--from and --to are both 1.34", "--from=1.34", "--to=1.34", "x")
	f("--from and --to are both 1.34", "--from=v1.34.2-eks-1a2b3c", "--to=1.34.9", "x")
	f(`--from: got "v1.34.x"`, "--from=v1.34.x", "--to=1.34", "x")
	f("--emulated-version cannot be used", "--from=1.34", "--to=1.35", "--emulated-version=1.34", "x")
	f(`--operation: got "DELETE", want CREATE or UPDATE`, "--from=1.34", "--to=1.35", "--operation=DELETE", "x")
	f(`--output: got "object", want one of text`, "--from=1.34", "--to=1.35", "-o", "object", "x")
	f("--kube-api-qps: got 0, want more than 0", "--from=1.34", "--to=1.35", "--kube-api-qps=0", "x")
	f("name files or folders with objects", "--from=1.34", "--to=1.35")
	f("1 not asked", "--from=1.34", "--to=1.35", "--in-tree", t.TempDir())
	f("no admission plugin is enabled: name some with --enable-admission-plugins, or use --pod-security or --policies or --in-tree;",
		"--from=1.34", "--to=1.35", t.TempDir())
}
