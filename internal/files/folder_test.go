package files_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/files"
)

func TestReadFolder(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, bytes int) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat("x", bytes)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("b.yaml", 1)
	write("a.JSON", 2)
	write("c.txt", 3)
	if err := os.Mkdir(filepath.Join(dir, "d.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	read := func() (names []string, err error) {
		all, err := files.ReadFolder(dir, ".yaml", ".json")
		for _, file := range all {
			names = append(names, filepath.Base(file.Name))
		}
		return names, err
	}
	if names, err := read(); err != nil || strings.Join(names, " ") != "a.JSON b.yaml" {
		t.Errorf("got %q, %v, want the two", names, err)
	}
	for _, over := range [...]int{-1, 0, 1} {
		write("b.yaml", files.BytesMax-2+over)
		if _, err := read(); (err != nil) != (over > 0) {
			t.Errorf("%d bytes over the limit: got %v", over, err)
		}
	}
	if _, err := files.ReadFolder(filepath.Join(dir, "none"), ".yaml"); err == nil {
		t.Error("got no error for a folder that is not there")
	}
}
