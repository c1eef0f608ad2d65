package twins

import (
	"slices"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	_ "k8s.io/kubernetes/pkg/features" // the features of the API server
	standards "k8s.io/pod-security-admission/test"

	"github.com/fastadmit/fastadmit/admission"
)

// standards runs Kubernetes' own tests of the Pod Security Standards, which test each check of
// each version, against the API server with fastadmit.
func (tw *twins) standards(t *testing.T) {
	table := pluginsOf(tw.release)
	own := slices.IndexFunc(table, func(p admission.Plugin) bool { return p.Name == "PodSecurity" })
	on := tw.withFastadmit(t, table[own])
	standards.Run(t, standards.Options{ClientConfig: on.Config, Features: utilfeature.DefaultFeatureGate})
}
