package audit

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// pluginOfKubectl lets kubectl run fastadmit, which krew installs as kubectl-fastadmit, also as a symbolic link.
func pluginOfKubectl(t *testing.T, s *cluster.APIServer) {
	t.Helper()
	folder := t.TempDir()
	program, err := filepath.Abs(*binary)
	if err == nil {
		err = os.Symlink(program, filepath.Join(folder, "kubectl-fastadmit"))
	}
	if err != nil {
		t.Fatal(err)
	}
	f := func(stdin string, code int, arguments []string, wanted ...string) {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.Command(cluster.Built("kubernetes/kubectl"), arguments...)
		cmd.Env = []string{"KUBECONFIG=" + s.Kubeconfig(t), "HOME=" + folder, "PATH=" + folder}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &out
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != code {
			t.Errorf("kubectl %q: got %v and %s, want exit code %d", arguments, err, out.String(), code)
		}
		for _, want := range wanted {
			if !strings.Contains(out.String(), want) {
				t.Errorf("kubectl %q: got %s, want %q in it", arguments, out.String(), want)
			}
		}
	}
	const team = `
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: team}
---`
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: plugin, namespace: team}
spec:
  containers: [{name: web, image: registry.example.com/web:1}]
`
	f("", 0, []string{"plugin", "list"}, folder+"/kubectl-fastadmit\n")
	f("", 0, []string{"fastadmit", "--help"}, "\n  kubectl fastadmit [command]\n")
	f("", 0, []string{"fastadmit", "audit", "--help"}, "\n  kubectl fastadmit audit [flags]\n", "\n  kubectl fastadmit audit --config=")
	f("", 2, []string{"fastadmit", "audit", "--nothing"}, "kubectl fastadmit audit --help shows the usage.\n")

	const denied = `Pod team/plugin: denied by PodSecurity (403 Forbidden): pods "plugin" is forbidden: violates PodSecurity "restricted:`
	f(pod, 1, []string{"fastadmit", "review", "-", "--pod-security=restricted"}, denied)
	f(pod, 1, []string{"fastadmit", "review", "-", "--pod-security=restricted", "--explain"}, denied,
		"of namespace team: level from defaults.enforce")
	f(pod, 0, []string{"fastadmit", "review", "-", "--pod-security=baseline"}, "1 object: 1 allowed")

	// The cluster is kubectl's.
	s.MustKubectl(t, team+pod, "apply", "-f", "-")
	restricted := cluster.WriteFile(t, "admission.yaml", []byte(cluster.RestrictedPods))
	f("", 1, []string{"fastadmit", "audit", "-n", "team", "--enable-admission-plugins=PodSecurity",
		"--admission-control-config-file=" + restricted}, "Pod team/plugin: denied by PodSecurity")
	s.MustKubectl(t, "", "delete", "pods", "--namespace=team", "--all", "--force")
}
