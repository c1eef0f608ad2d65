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

// TestImage builds the image of each platform and checks its content. The binaries stand for those that make image builds.
func TestImage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("buildah"); err != nil {
		t.Skip("there is no buildah")
	}
	files := t.TempDir()
	platforms := []string{"linux/amd64", "linux/arm64"}
	for _, platform := range platforms {
		folder := filepath.Join(files, "bin/image", platform)
		err := os.MkdirAll(folder, 0o755)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, "fastadmit"), []byte("binary for "+platform), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, platform := range platforms {
		testImage(t, files, platform)
	}
}

func testImage(t *testing.T, files, platform string) {
	t.Helper()
	const driver = "--storage-driver=vfs" // it also works in containers
	dir := t.TempDir()
	idFile := filepath.Join(t.TempDir(), "id")
	run(t, "buildah", driver, "build", "--platform", platform, "--iidfile", idFile, "-f", "Dockerfile",
		"--ignorefile", "Dockerfile.dockerignore", files)
	id := strings.TrimSpace(readFile(t, idFile))
	defer run(t, "buildah", driver, "rmi", id)
	run(t, "buildah", driver, "push", id, "dir:"+dir)

	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	blob := func(digest string) string { return filepath.Join(dir, strings.TrimPrefix(digest, "sha256:")) }
	var image struct {
		OS, Architecture string
		Config           struct {
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
	var packed []string
	for _, layer := range manifest.Layers {
		packed = append(packed, archived(t, blob(layer.Digest))...)
	}
	if !slices.Equal(packed, []string{"fastadmit -rwxr-xr-x binary for " + platform}) {
		t.Errorf("%s: got files %q, want the binary of the platform alone", platform, packed)
	}
	if got := image.OS + "/" + image.Architecture; got != platform {
		t.Errorf("got an image for %s, want %s", got, platform)
	}
	c := image.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/fastadmit"}) || !slices.Contains(c.Env, "PATH=/") {
		t.Errorf("got %+v, want a user that is not root, and the binary to be run and found", c)
	}
}

// archived returns the names, modes and contents of the files in a layer.
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
		if header.Typeflag == tar.TypeDir {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, header.Name+" "+header.FileInfo().Mode().String()+" "+string(content))
	}
}
