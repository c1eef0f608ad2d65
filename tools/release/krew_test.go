package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// sums returns the checksums of the release, by file.
func sums(t *testing.T, r *release) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for line := range strings.Lines(string(read(t, r, sumsName))) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Fatalf("%s: got %q", sumsName, line)
		}
		all[name] = sum
	}
	return all
}

// unpacked returns the files in an archive of the release: contents by name, with modes.
func unpacked(t *testing.T, r *release, name string) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(read(t, r, name)))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil || header.Uid != 0 || !header.ModTime.Equal(r.time) {
			t.Errorf("%s: got %+v, %v, want root and the time of the commit", name, header, err)
		}
		files[header.Name] = header.FileInfo().Mode().String() + " " + string(content)
	}
}

// TestKrew installs the plugin of each platform by the manifest, as krew does.
func TestKrew(t *testing.T) {
	r := made(t, "", "registry.example.com")
	var p krewPlugin
	if err := yaml.UnmarshalStrict(read(t, r, krewName), &p); err != nil {
		t.Fatal(err)
	}
	// What krew requires (internal/index/validation/validate.go), and its index of the short description.
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" ||
		strings.ContainsAny(p.Spec.ShortDescription, "\r\n") {
		t.Errorf("got %s %s, %q", p.APIVersion, p.Kind, p.Spec.ShortDescription)
	}
	if p.Metadata["name"] != "fastadmit" || p.Spec.Version != "v1.2.3-rc.1" || p.Spec.Homepage != source ||
		p.Spec.ShortDescription == "" || len(p.Spec.ShortDescription) > 50 || len(p.Spec.Platforms) != len(platforms) {
		t.Errorf("got %+v", p)
	}
	license, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	released := sums(t, r)
	for _, platform := range p.Spec.Platforms {
		goos, goarch := platform.Selector["matchLabels"]["os"], platform.Selector["matchLabels"]["arch"]
		folder, name := path.Split(platform.URI)
		if folder != "https://github.com/fastadmit/fastadmit/releases/download/v1.2.3-rc.1/" || released[name] == "" ||
			platform.SHA256 != released[name] {
			t.Errorf("%s/%s: got %s with %s, want a file of the release with its checksum", goos, goarch, platform.URI, platform.SHA256)
			continue
		}
		archive := unpacked(t, r, name)
		installed := make(map[string]string)
		for _, file := range platform.Files {
			if archive[file.From] == "" || file.To != "." {
				t.Errorf("%s/%s: got %+v, want files of the archive", goos, goarch, file)
			}
			installed[file.From] = archive[file.From]
		}
		if got, want := installed[platform.Bin], "-rwxr-xr-x binary of "+goos+" "+goarch; got != want {
			t.Errorf("%s/%s: got %s with %q, want %q", goos, goarch, platform.Bin, got, want)
		}
		if installed["LICENSE"] != "-rw-r--r-- "+string(license) || len(archive) != len(installed) {
			t.Errorf("%s/%s: got %d files, want the binary and the license", goos, goarch, len(archive))
		}
	}
}
