package handlers_test

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/handlers"
)

// TestOnByDefault checks which plugins are on by default before and after a release (k8s.io/kubernetes
// pkg/kubeapiserver/options/plugins.go and pkg/features/kube_features.go).
func TestOnByDefault(t *testing.T) {
	f := func(plugin, version string, want bool) {
		t.Helper()
		options := handlers.DefaultOptions()
		var err error
		if options.Version, _, err = admission.ParseVersion(version); err != nil {
			t.Fatal(err)
		}
		for _, p := range handlers.InTree(options) {
			if p.Name == plugin && p.OnByDefault != want {
				t.Errorf("%s in %s: got %t, want %t", plugin, version, p.OnByDefault, want)
			}
		}
	}
	f("PodTopologyLabels", "1.34", false)
	f("PodTopologyLabels", "1.35", true)
	f("NodeDeclaredFeatureValidator", "1.35", false)
	f("NodeDeclaredFeatureValidator", "1.36", true)
	f("PodResizeValidator", "1.35", false)
	f("PodResizeValidator", "1.36", true)
	f("JobValidation", "1.36", true)
	f("JobValidation", "1.37", false)
	f("NodeRestriction", "1.36", false)
	f("Priority", "1.33", true)
}
