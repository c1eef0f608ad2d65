package app

import (
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
