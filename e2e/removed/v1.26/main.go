// The command v1.26 answers AdmissionReviews as an admission plugin of Kubernetes v1.26 would. Its
// first argument is the plugin's name: PersistentVolumeLabel, which has a second, its configuration,
// and for which v1.26 was the last release with AWS, GCE, Azure and vSphere; or SecurityContextDeny,
// which was removed after v1.29. What differs until v1.29.15 is that a feature gate must permit it
// to be enabled. Package removed says what it reads and writes.
package main

import (
	"fmt"
	"log"
	"os"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/kubernetes/plugin/pkg/admission/securitycontext/scdeny"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/persistentvolume/label"
)

func main() {
	utilruntime.ErrorHandlers = nil
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == label.PluginName:
		return runPersistentVolumeLabel(arguments[1])
	case len(arguments) == 1 && arguments[0] == scdeny.PluginName:
		return runSecurityContextDeny()
	}
	return fmt.Errorf("got arguments %q, want %s and a configuration, or %s", arguments, label.PluginName, scdeny.PluginName)
}
