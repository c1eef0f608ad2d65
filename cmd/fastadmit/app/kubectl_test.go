package app

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestPluginOfKubectl checks the names in help texts and errors if kubectl runs the program. An e2e test lets kubectl do so.
func TestPluginOfKubectl(t *testing.T) {
	f := func(program string, args []string, wanted ...string) {
		t.Helper()
		defer func(arguments []string) { os.Args = arguments }(os.Args)
		os.Args = append([]string{program}, args...)
		var out bytes.Buffer
		cmd := NewCommand()
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		Execute(cmd)
		for _, want := range wanted {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s %q: got %s, want %q in it", program, args, out.String(), want)
			}
		}
	}
	const plugin = "/usr/local/bin/kubectl-fastadmit"
	f(plugin, []string{"--help"}, "\n  kubectl fastadmit [command]\n", `Use "kubectl fastadmit [command] --help"`)
	f(plugin, []string{"review", "--help"}, "\n  kubectl fastadmit review [FILE|FOLDER|-]... [flags]\n",
		"\n  kubectl fastadmit review deploy/ pod.yaml ", "\n  kustomize build . | kubectl fastadmit review - ")
	f(plugin, []string{"replay", "--help"},
		"\n  kubectl exec deploy/fastadmit -- fastadmit recordings | kubectl fastadmit replay - ")
	f(plugin, []string{"review", "--nothing"}, "unknown flag: --nothing\nkubectl fastadmit review --help shows the usage.\n")
	f("kubectl-my_own-fastadmit.exe", []string{"review", "--help"}, "\n  kubectl my-own fastadmit review deploy/ pod.yaml ")
	f("bin/fastadmit", []string{"review", "--help"}, "\n  fastadmit review [FILE", "\n  fastadmit review deploy/ pod.yaml ",
		" | fastadmit review - ")
}
