package app

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestReviewUnchecked expects every format to say that nothing checked the objects, and --strict to fail.
func TestReviewUnchecked(t *testing.T) {
	const pod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
		"spec": {"hostPID": true, "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}}
`
	const namespace = `---
{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
`
	const policy = `---
{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no"}, "spec": {
	"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
		"resources": ["services"]}]},
	"validations": [{"expression": "false"}]}}
---
{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no"},
	"spec": {"policyName": "no", "validationActions": ["Deny"]}}
`
	const deployment = `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
		"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
		"spec": {"containers": [{"name": "c", "image": "i"}]}}}}
`
	const podSecurity = "--enable-admission-plugins=PodSecurity"
	const reason = "unchecked: PodSecurity: the level of its namespace is privileged"
	const warning = "fastadmit: warning: nothing that is enabled checks any of these objects"
	f := func(stdin string, args []string, code int, stdout, stderr string) {
		t.Helper()
		got, errs, gotCode := execute(stdin, append([]string{"review", "-"}, args...)...)
		if gotCode != code || !strings.Contains(got, stdout) || !strings.Contains(errs, stderr) || stderr == "" && errs != "" {
			t.Errorf("%q: got exit code %d, stdout\n%s\nstderr\n%s\nwant %d, %q, %q", args, gotCode, got, errs, code, stdout, stderr)
		}
	}
	f(pod, []string{podSecurity}, 0, reason, warning)
	f(pod, []string{podSecurity}, 0, "1 allowed, 0 denied, 1 that no plugin checked", warning)
	f(pod, []string{podSecurity, "-o", "json"}, 0, `"leftOut": 1`, warning)
	f(pod, []string{podSecurity, "-o", "yaml"}, 0, "unchecked: true", warning)
	f(pod, []string{podSecurity, "-o", "junit"}, 0, reason, warning)
	f(pod, []string{podSecurity, "-o", "junit"}, 0, `<skipped message="nothing that is enabled checks any of these objects`, warning)
	f(pod, []string{podSecurity, "-o", "sarif"}, 0, `"level": "note"`, warning)
	f(pod, []string{podSecurity, "-o", "sarif"}, 0, `"toolExecutionNotifications": [`, warning)
	f(pod, []string{podSecurity, "-o", "github"}, 0, "::notice file=stdin,line=1,title=PodSecurity did not check Pod default/p::", "")
	f(pod, []string{podSecurity, "-o", "github"}, 0, "::warning title=fastadmit::nothing that is enabled checks", "")
	for _, format := range []string{"object", "diff", "response"} {
		f(pod, []string{podSecurity, "-o", format}, 0, "", reason)
	}
	f(pod, []string{podSecurity, "--strict"}, 2, reason, "--strict: no plugin checked 1 object")
	f(deployment, []string{podSecurity, "--strict"}, 2, reason, warning)
	f(deployment, []string{"--pod-security=baseline", "--strict"}, 0, "3 allowed", "")
	f(deployment, []string{"--pod-security=baseline", "--strict", "--no-workload-pods"}, 2, "only its pods are checked", warning)

	f(pod, []string{"--pod-security=restricted"}, 1, `violates PodSecurity "restricted:latest"`, "")
	f(pod, []string{"--pod-security=restricted:v1.25"}, 1, `violates PodSecurity "restricted:v1.25"`, "")
	f(pod+namespace, []string{podSecurity, "--strict"}, 1, `violates PodSecurity "baseline:latest"`, "")
	f(pod, []string{"--pod-security=baseline", "--disable-admission-plugins=PodSecurity"}, 2, "",
		"is disabled, but --pod-security enables it")
	for _, level := range []string{"strict", "baseline:1.25", ":v1.25", "baseline:", "restricted:v1.99"} {
		f(pod, []string{"--pod-security=" + level}, 2, "", "--pod-security: got \""+level+"\", want privileged, baseline or restricted")
	}

	// Somebody who configures a plugin wants it to run.
	config := filepath.Join(t.TempDir(), "config.yaml")
	servertest.WriteFile(t, config, configHead+"plugins: [{name: PodSecurity, timeout: 1s}]\n")
	unused := []string{"--config=" + config, "--enable-admission-plugins=AlwaysPullImages"}
	f(pod, unused, 0, "1 allowed", "fastadmit: warning: PodSecurity is configured and not enabled")
	f(pod, append(unused, "-o", "json"), 0, `"unused": [`, "fastadmit: warning: PodSecurity is configured and not enabled")
	f(pod, append(unused, "-o", "github"), 0, "::warning title=fastadmit::PodSecurity is configured and not enabled", "")
	f(pod, append(unused, "--strict"), 2, "1 allowed", "--strict: PodSecurity is configured and not enabled")
	f(pod, append(unused, "--strict", "--disable-admission-plugins=PodSecurity"), 0, "1 allowed", "")

	// A policy for other resources checks nothing. Beside what is checked, that is only counted.
	f(pod+policy, []string{"--strict", "--enable-admission-plugins=ValidatingAdmissionPolicy"}, 2, "", "--strict: no plugin checked")
	const service = `---
{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {}}
`
	f(deployment+service, []string{"--pod-security=baseline", "--strict"}, 0, "1 that no plugin checked", "")
}

// TestReviewIdlePolicies expects a note, and --strict to fail, where a policy is given that nothing evaluates.
func TestReviewIdlePolicies(t *testing.T) {
	t.Chdir(t.TempDir())
	const policy = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n" +
		"  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n" +
		"  validations: [{expression: 'true'}]\n"
	const template = "apiVersion: templates.gatekeeper.sh/v1\nkind: ConstraintTemplate\nmetadata: {name: deny}\nspec:\n" +
		"  crd: {spec: {names: {kind: Deny}}}\n  targets:\n  - target: admission.k8s.gatekeeper.sh\n" +
		"    code:\n    - engine: K8sNativeValidation\n" +
		"      source: {validations: [{expression: 'true', message: denied}]}\n"
	const constraint = "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: Deny\nmetadata: {name: deny}\n" +
		"spec: {match: {kinds: [{apiGroups: [''], kinds: [Pod, %s]}]}}\n"
	servertest.WriteFile(t, "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n")
	servertest.WriteFile(t, "policy.yaml", policy)
	servertest.WriteFile(t, "template.yaml", template)
	servertest.WriteFile(t, "good.yaml", fmt.Sprintf(constraint, "Service"))
	servertest.WriteFile(t, "misspelt.yaml", fmt.Sprintf(constraint, "Servise"))
	f := func(code int, stderr string, args ...string) {
		t.Helper()
		got, errs, gotCode := execute("", append([]string{"review", "pod.yaml", "--strict", "--pod-security=baseline"}, args...)...)
		if gotCode != code || !strings.Contains(errs, stderr) || stderr == "" && errs != "" {
			t.Errorf("%q: got exit code %d, %s%s, want %d and %q", args, gotCode, got, errs, code, stderr)
		}
	}
	f(2, `--strict: ValidatingAdmissionPolicy "p" is reviewed, but not evaluated`, "policy.yaml")
	f(0, "", "policy.yaml", "--enable-admission-plugins=ValidatingAdmissionPolicy", "--bind-policies")
	f(2, `--strict: ConstraintTemplate "deny" has no Constraint of the kind Deny`,
		"--policies=policy.yaml,template.yaml", "--bind-policies")
	f(0, "", "--policies=template.yaml,good.yaml")
	f(0, `template.yaml:1: ConstraintTemplate "deny" is reviewed, but not evaluated`, "template.yaml")
	f(2, `--strict: Deny "deny": spec.match.kinds: unknown kind "Servise" of apiVersion "v1", did you mean Service?`,
		"--policies=template.yaml,misspelt.yaml")
	_, errs, code := execute("", "review", "pod.yaml", "--policies=template.yaml")
	if code != 2 || !strings.Contains(errs, `template.yaml:1: ConstraintTemplate "deny" has no Constraint of the kind Deny`) {
		t.Errorf("a template alone: got exit code %d, %s", code, errs)
	}
}

// TestReviewRollout reviews the Pods of Argo's Rollouts.
func TestReviewRollout(t *testing.T) {
	const rollout = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: "
	reviewed(t, rollout+"{template: {spec: {hostPID: true, containers: [{name: c, image: i}]}}}\n", 1,
		[]string{"makes Pod default/r-*: denied by PodSecurity"}, nil, "-", "--pod-security=baseline")
	reviewed(t, rollout+"{workloadRef: {apiVersion: apps/v1, kind: Deployment, name: d}}\n", 0, []string{"1 object: 1 allowed"}, nil,
		"-", "--pod-security=baseline")
}

// TestReviewNotesPodTemplates has a custom resource with a template of Pods, beside an object that is checked.
func TestReviewNotesPodTemplates(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "pod.yaml", latestPod)
	servertest.WriteFile(t, "game.yaml", "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: a}\n"+
		"spec: {template: {spec: {hostPID: true, containers: [{image: 'a:1'}]}}}\n---\n"+
		"apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: b}\n"+
		"spec: {template: {spec: {containers: [{image: 'a:1'}]}}}\n")
	const security, flag = "--pod-security=baseline", "--pod-template-path=services.serving.knative.dev=.spec.template"
	const note = `fastadmit: game.yaml:1: Service "a" has a template of Pods, which are not reviewed: ` + flag
	reviewed(t, "", 0, []string{note}, []string{`Service "b" has`}, "game.yaml", "pod.yaml", security)
	reviewed(t, "", 2, []string{note}, nil, "game.yaml", "pod.yaml", security, "--strict")
	reviewed(t, "", 1, []string{"hostPID=true"}, []string{note}, "game.yaml", "pod.yaml", security, "--strict", flag)
	reviewed(t, "", 0, nil, []string{note}, "game.yaml", "pod.yaml", security, "--no-workload-pods")
	reviewed(t, "", 0, nil, []string{note}, "game.yaml", "--enable-admission-plugins=DefaultStorageClass") // it does not handle Pods
	servertest.WriteFile(t, "flow.yaml", "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\n"+
		"spec: {templates: [{name: a, container: {image: 'a:1', securityContext: {privileged: true}}}]}\n")
	const makes = `fastadmit: flow.yaml:1: Workflow "w" makes Pods, which are not reviewed: no --pod-template-path can name them`
	reviewed(t, "", 2, []string{makes}, nil, "flow.yaml", "pod.yaml", security, "--strict")
	servertest.WriteFile(t, "flow.yaml", "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: w}\n"+
		"spec: {workflowTemplateRef: {name: a}}\n")
	reviewed(t, "", 0, nil, []string{makes}, "flow.yaml", "pod.yaml", security, "--strict")
	reviewed(t, "", 2, []string{"got Service.serving.knative.dev, want the plural of a resource"}, nil, "game.yaml", security,
		"--pod-template-path=Service.serving.knative.dev=.spec.template")
}

// TestReviewNotesTwice has objects that decide about others twice, as the overlays of a repository.
func TestReviewNotesTwice(t *testing.T) {
	t.Chdir(t.TempDir())
	namespace := func(level string) string {
		return "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {pod-security.kubernetes.io/enforce: " + level + "}}\n"
	}
	servertest.WriteFile(t, "pod.yaml", strings.Replace(latestPod, "name: web", "name: web, namespace: shop", 1))
	servertest.WriteFile(t, "prod.yaml", namespace("restricted"))
	servertest.WriteFile(t, "dev.yaml", namespace("baseline"))
	servertest.WriteFile(t, "same.yaml", "# again\n"+namespace("baseline")+"spec: {}\n")
	const security = "--enable-admission-plugins=PodSecurity"
	const note = `fastadmit: dev.yaml:1: Namespace "shop" is also in prod.yaml:1 with other labels or annotations, and one of them counts`
	reviewed(t, "", 2, []string{note}, nil, "prod.yaml", "dev.yaml", "pod.yaml", security, "--strict")
	reviewed(t, "", 0, []string{"also in prod.yaml:1"}, nil, "prod.yaml", "dev.yaml", "pod.yaml", security, "-o", "json")
	reviewed(t, "", 0, nil, []string{"also in"}, "dev.yaml", "same.yaml", "pod.yaml", security, "--strict")
	reviewed(t, "", 0, nil, []string{"also in"}, "pod.yaml", "-", "dev.yaml", security) // Pods decide about no others

	crd := func(kind string) string {
		return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: games.example.com}\nspec: {group: " +
			"example.com, names: {kind: Game, plural: games}, versions: [{name: v1, schema: {openAPIV3Schema: {type: " + kind + "}}}]}\n"
	}
	servertest.WriteFile(t, "full.yaml", crd("object"))
	servertest.WriteFile(t, "minimal.yaml", crd("string"))
	reviewed(t, "", 0, []string{`CustomResourceDefinition "games.example.com" is also in full.yaml:1 with other contents`}, nil,
		"full.yaml", "minimal.yaml", "dev.yaml", security)
	reviewed(t, "", 0, nil, []string{"is also in"}, "full.yaml", "full.yaml", "dev.yaml", security)

	servertest.WriteFile(t, "param.yaml", strings.NewReplacer(
		"  validations:", "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations:", "[Deny]",
		"[Deny], paramRef: {name: c, parameterNotFoundAction: Deny}").Replace(noLatest))
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {min: '2'}\n---\n"
	servertest.WriteFile(t, "maps.yaml", config+strings.Replace(config, "'2'", "'1'", 1))
	reviewed(t, "", 0, []string{`maps.yaml:6: ConfigMap "c" is also in maps.yaml:1`}, nil, "maps.yaml", "dev.yaml", security,
		"--policies=param.yaml")
	reviewed(t, "", 0, nil, []string{"is also in"}, "maps.yaml", "dev.yaml", security) // nothing reads them
}
