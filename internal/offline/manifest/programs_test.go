package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestProgramsAreNoAPIs compares with the kinds that API servers have: none is read by a program.
func TestProgramsAreNoAPIs(t *testing.T) {
	kinds := 0
	for _, name := range []string{"resources.txt", "custom.txt"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "discovery", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			gvk := schema.FromAPIVersionAndKind(fields[0], fields[1])
			if name == "custom.txt" { // which has groups
				gvk = schema.GroupVersionKind{Group: fields[0], Version: "v1", Kind: fields[1]}
			}
			kinds++
			if err := ReadByProgram(gvk); err != nil {
				t.Errorf("%s: %v", gvk, err)
			}
		}
	}
	if kinds < 200 {
		t.Errorf("got %d kinds, want all", kinds)
	}
}
