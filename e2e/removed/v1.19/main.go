// The command v1.19 answers AdmissionReviews as an admission plugin of Kubernetes v1.19 would. Its
// argument is the plugin's name: PodPreset, which v1.19 was the last release to have, or
// DenyEscalatingExec or DenyExecOnPrivileged, which were removed after v1.20 and have the same
// sources in v1.19.16 as in v1.20.15. Package removed says what it reads and writes.
package main

import (
	"fmt"
	"log"
	"os"

	"k8s.io/kubernetes/plugin/pkg/admission/exec"
	"k8s.io/kubernetes/plugin/pkg/admission/podpreset"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(arguments []string) error {
	if len(arguments) == 1 {
		switch arguments[0] {
		case podpreset.PluginName:
			return runPodPreset()
		case exec.DenyEscalatingExec:
			return runDenyExec(exec.NewDenyEscalatingExec())
		case exec.DenyExecOnPrivileged:
			return runDenyExec(exec.NewDenyExecOnPrivileged())
		}
	}
	return fmt.Errorf("got arguments %q, want %s, %s or %s", arguments, podpreset.PluginName, exec.DenyEscalatingExec, exec.DenyExecOnPrivileged)
}
