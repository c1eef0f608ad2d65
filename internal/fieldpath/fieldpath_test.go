package fieldpath

import (
	"slices"
	"testing"
)

func TestSteps(t *testing.T) {
	f := func(path string, want ...string) {
		t.Helper()
		if got := Steps(path); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	f("")
	f("spec", "spec")
	f("spec.containers[0].image", "spec", "containers", "0", "image")
	f(`metadata.labels["a.b/c"]`, "metadata", "labels", "a.b/c")
	f(`metadata.labels["a]b"].x`, "metadata", "labels", "a]b", "x")
	f("spec.containers[*]", "spec", "containers", "*")
	f("spec.containers[0")
	f("spec..containers")
	f(".spec")
}
