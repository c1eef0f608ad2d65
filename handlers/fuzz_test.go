package handlers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/handlers"
)

// FuzzConfig starts each plugin that has a configuration with any text as its configuration. The
// seeds are the configurations of the golden cases. A plugin starts or returns an error; it must not
// panic or hang.
func FuzzConfig(f *testing.F) {
	plugins := make(map[string]admission.Plugin)
	for _, plugin := range handlers.InTree(handlers.DefaultOptions()) {
		cases, err := filepath.Glob(filepath.Join(strings.ToLower(plugin.Name), "testdata", "*.yaml"))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range cases {
			content, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			var golden struct {
				Config string `json:"config"`
			}
			if err := yaml.Unmarshal(content, &golden); err == nil && golden.Config != "" {
				plugins[plugin.Name] = plugin
				f.Add(plugin.Name, golden.Config)
			}
		}
	}
	if len(plugins) < 10 {
		f.Fatalf("got %d plugins with a configuration in their golden cases", len(plugins))
	}
	f.Fuzz(func(_ *testing.T, name, config string) {
		if plugin, ok := plugins[name]; ok {
			_, _ = admissiontest.NewChain(plugin, config)
		}
	})
}
