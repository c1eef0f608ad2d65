package app

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// ownCalls finds the calls of fastadmit in examples: at the start of a line or after a pipe. Others run in a pod.
var ownCalls = regexp.MustCompile(`(?m)(^ *|[|] )fastadmit `)

// nameAfter shows the command in help texts under the name by which the user calls it. kubectl runs a program kubectl-NAME
// as its command NAME, in which - and _ of the program are a space and - (k8s.io/kubectl pkg/cmd/plugin.go).
func nameAfter(cmd *cobra.Command, program string) {
	name, isPlugin := strings.CutPrefix(strings.TrimSuffix(filepath.Base(program), ".exe"), "kubectl-")
	if !isPlugin {
		return
	}
	name = "kubectl " + strings.NewReplacer("-", " ", "_", "-").Replace(name)
	root := cmd.Root()
	if root.Annotations == nil {
		root.Annotations = make(map[string]string)
	}
	root.Annotations[cobra.CommandDisplayNameAnnotation] = name
	renameExamples(root, name)
}

func renameExamples(cmd *cobra.Command, name string) {
	cmd.Example = ownCalls.ReplaceAllString(cmd.Example, "${1}"+strings.ReplaceAll(name, "$", "$$")+" ")
	for _, sub := range cmd.Commands() {
		renameExamples(sub, name)
	}
}
