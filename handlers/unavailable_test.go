package handlers_test

import (
	"maps"
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/handlers"
)

// TestReleases checks that every admission plugin of a Kubernetes release is either in the
// table of plugins or in NotHere, with the releases in testdata/releases.yaml.
func TestReleases(t *testing.T) {
	content, err := os.ReadFile("testdata/releases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var releases map[string]struct{ First, Last string }
	if err := yaml.UnmarshalStrict(content, &releases); err != nil {
		t.Fatal(err)
	}
	const newest = "1.37"
	last := make(map[string]string)
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		if last[p.Name] = p.LastRelease; p.LastRelease == "" {
			last[p.Name] = newest
		}
	}
	for _, p := range handlers.NotHere() {
		if _, ok := last[p.Name]; ok {
			t.Errorf("%s: got it among the plugins, and among those that are not here", p.Name)
		}
		if last[p.Name] = p.Last; p.First != releases[p.Name].First {
			t.Errorf("%s: got first release %s, want %s", p.Name, p.First, releases[p.Name].First)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(releases)) {
		got, ok := last[name]
		if !ok {
			t.Errorf("%s: got neither a plugin nor a reason why there is none", name)
			continue
		}
		if want := releases[name].Last; got != want {
			t.Errorf("%s: got last release %q, want %s", name, got, want)
		}
		delete(last, name)
	}
	for name := range last {
		t.Errorf("%s: got a plugin that no release of Kubernetes had", name)
	}
}
