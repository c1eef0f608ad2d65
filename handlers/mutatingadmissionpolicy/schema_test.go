package mutatingadmissionpolicy

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/fastadmit/fastadmit/codec"
)

// TestSchema compares schema.yaml.gz with the schema of the client-go that the module
// requires. With -update it writes it.
func TestSchema(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations/internal/internal.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, _ = strings.Cut(text, "`)")
	if flag.Lookup("update").Value.String() == "true" {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if _, err := io.WriteString(w, text); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("schema.yaml.gz", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	r, err := gzip.NewReader(bytes.NewReader(builtIn))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != text {
		t.Errorf("schema.yaml.gz is not that of client-go (%v); go test -run TestSchema -update writes it", err)
	}
	if _, err := typed.NewParser(typed.YAMLObject(text)); err != nil { // this also checks it
		t.Fatal(err)
	}
}

// TestTypeName compares the names of all kinds of Kubernetes with those of client-go.
func TestTypeName(t *testing.T) {
	known := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		name, err := scheme.Scheme.ToOpenAPIDefinitionName(gvk)
		if err != nil || !builtInSchemas().Type(name).IsValid() {
			continue
		}
		if !strings.HasPrefix(name, "io.k8s.api.") { // WatchEvent and similar types
			continue
		}
		if got := typeName(kindOf(gvk)); got != name {
			t.Errorf("%s: got %s, want %s", gvk, got, name)
		}
		known++
	}
	if known < 100 {
		t.Errorf("got %d kinds, want all of Kubernetes", known)
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Group: "core.example.com", Version: "v1", Kind: "Pod"}, {Group: "apps.example.com", Version: "v1", Kind: "Deployment"},
		{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "Ingress"}, {Group: "core", Version: "v2", Kind: "Pod"},
	} {
		if name := typeName(kindOf(gvk)); builtInSchemas().Type(name).IsValid() {
			t.Errorf("%s: got the schema %s of another kind", gvk, name)
		}
	}
}

func kindOf(gvk schema.GroupVersionKind) codec.GroupVersionKind {
	return codec.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
}
