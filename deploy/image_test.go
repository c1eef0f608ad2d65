package deploy_test

import (
	"archive/tar"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBinaryIsStatic checks that the binary needs nothing from an image.
func TestBinaryIsStatic(t *testing.T) {
	t.Parallel()
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil || len(libraries) > 0 {
		t.Errorf("got libraries %q, %v, want none", libraries, err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("got an interpreter, want none")
		}
	}
}

// TestImage builds the image and checks its content.
func TestImage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Skip("there is no buildah")
	}
	const driver = "--storage-driver=vfs" // it also works in containers
	dir := t.TempDir()
	idFile := filepath.Join(t.TempDir(), "id")
	run(t, "buildah", driver, "build", "--iidfile", idFile, "-f", "Dockerfile", "--ignorefile", "Dockerfile.dockerignore", "..")
	id := strings.TrimSpace(readFile(t, idFile))
	defer run(t, "buildah", driver, "rmi", id)
	run(t, "buildah", driver, "push", id, "dir:"+dir)

	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	blob := func(digest string) string { return filepath.Join(dir, strings.TrimPrefix(digest, "sha256:")) }
	var image struct {
		Config struct {
			User            string
			Entrypoint, Cmd []string
			Env             []string
		} `json:"config"`
	}
	err := json.Unmarshal([]byte(readFile(t, filepath.Join(dir, "manifest.json"))), &manifest)
	if err == nil {
		err = json.Unmarshal([]byte(readFile(t, blob(manifest.Config.Digest))), &image)
	}
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, layer := range manifest.Layers {
		files = append(files, archived(t, blob(layer.Digest))...)
	}
	if !slices.Equal(files, []string{"fastadmit -rwxr-xr-x"}) {
		t.Errorf("got files %q, want the binary alone", files)
	}
	c := image.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/fastadmit"}) || !slices.Contains(c.Env, "PATH=/") {
		t.Errorf("got %+v, want a user that is not root, and the binary to be run and found", c)
	}
}

// archived returns the names and modes of the files in a layer.
func archived(t *testing.T, name string) (files []string) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(unpacked); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeDir {
			files = append(files, header.Name+" "+header.FileInfo().Mode().String())
		}
	}
}
