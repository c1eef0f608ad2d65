package app

import (
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestReviewPodSecurityPaths requires that findings of PodSecurity name fields, and are on the lines of these.
func TestReviewPodSecurityPaths(t *testing.T) {
	t.Chdir(t.TempDir())
	const spec = `spec:
  hostPID: true
  initContainers:
  - {name: first, image: a}
  containers:
  - name: app
    image: a
    securityContext:
      privileged: true
  - {name: side, image: a}
`
	servertest.WriteFile(t, "pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"+spec)
	const host, privileged = `"spec.hostPID"`, `"spec.containers[0].securityContext.privileged"`
	reviewed(t, "", 1, []string{host, privileged, `"fieldLine": 12`}, []string{`"spec.containers[1]`}, "pod.yaml",
		"--pod-security=baseline", "-o", "json")
	reviewed(t, "", 1, []string{privileged, `"spec.initContainers[0]"`, `"spec.containers[1]"`, `"fieldLine": 13`}, nil, "pod.yaml",
		"--pod-security=restricted", "-o", "json")
	reviewed(t, "", 1, []string{"::error file=pod.yaml,line=12,title=PodSecurity denies Pod default/web"}, nil, "pod.yaml",
		"--pod-security=baseline", "-o", "github")

	servertest.WriteFile(t, "namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {"+
		"pod-security.kubernetes.io/enforce: privileged, pod-security.kubernetes.io/warn: baseline}}\n")
	servertest.WriteFile(t, "job.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {\n"+
		"  restartPolicy: Never, volumes: [\n    {name: node, hostPath: {path: /}}], containers: [{name: a, image: a}]}}}\n")
	reviewed(t, "", 0, []string{`"spec.template.spec.volumes[0]"`, `"line": 6`}, nil, "job.yaml", "namespace.yaml",
		"--enable-admission-plugins=PodSecurity", "-o", "json")
}

// TestReviewPodSecurityTwice has a level in a file, which the flag would replace.
func TestReviewPodSecurityTwice(t *testing.T) {
	t.Chdir(t.TempDir())
	servertest.WriteFile(t, "admission.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		"- name: PodSecurity\n  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, "+
		"kind: PodSecurityConfiguration, defaults: {enforce: restricted}}\n")
	const flag, file = "--pod-security=baseline", "--admission-control-config-file=admission.yaml"
	const want = "fastadmit: --pod-security=baseline: the configuration file configures PodSecurity too; use one of them"
	reviewed(t, latestPod, 2, []string{want}, nil, "-", flag, file)
	reviewed(t, latestPod, 2, []string{want}, nil, "-", flag, file, "--enable-admission-plugins=PodSecurity")
}
