package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// made returns a release made of placeholder binaries, signed with the key.
func made(t *testing.T, key, registry string) *release {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release{version: "1.2.3-rc.1", root: root, registry: registry, out: t.TempDir(), commit: strings.Repeat("c", 40),
		time: time.Unix(1700000000, 0).UTC()}
	for _, p := range platforms {
		if err := os.WriteFile(r.path(binaryName(p.os, p.arch)), []byte("binary of "+p.os+" "+p.arch), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []func() error{
		func() error { return r.archives(t.Context()) },
		func() error { return r.image(t.Context()) },
		func() error { return r.chart(t.Context()) },
		func() error { return r.krew(t.Context()) },
		func() error { return r.homebrew(t.Context()) },
		func() error { return r.provenance(t.Context()) },
		func() error { return r.checksums(t.Context()) },
		func() error { return r.sign(key) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// newKey writes a secret key and returns its file and the public key.
func newKey(t *testing.T, password string) (string, minisign.PublicKey) {
	t.Helper()
	t.Setenv("MINISIGN_PASSWORD", password)
	public, private, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := minisign.EncryptKey(password, private)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "minisign.key")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file, public
}

func read(t *testing.T, r *release, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(r.path(name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestCosign signs checksums with a key as cosign writes it.
func TestCosign(t *testing.T) {
	t.Setenv("COSIGN_PASSWORD", "secret")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := encrypted.Encrypt(text, []byte("secret"))
	if err != nil {
		t.Fatal(err)
	}
	r, file := &release{out: t.TempDir()}, filepath.Join(t.TempDir(), "cosign.key")
	for name, content := range map[string][]byte{
		file: pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED SIGSTORE PRIVATE KEY", Bytes: secret}), r.path(sumsName): []byte("sums"),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	digest := sha256.Sum256([]byte("sums"))
	var first []byte
	for range 2 {
		if err := r.cosign(file); err != nil {
			t.Fatal(err)
		}
		signature, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(read(t, r, cosignName))))
		if err != nil || !ecdsa.VerifyASN1(&key.PublicKey, digest[:], signature) || first != nil && !bytes.Equal(first, signature) {
			t.Errorf("got %x, %v, want the same valid signature each time", signature, err)
		}
		first = signature
	}
	t.Setenv("COSIGN_PASSWORD", "other")
	if err := r.cosign(file); err == nil || !strings.Contains(err.Error(), "with the password in COSIGN_PASSWORD") {
		t.Errorf("got %v with another password", err)
	}
	if err := r.cosign(r.path(sumsName)); err == nil || !strings.Contains(err.Error(), "want the file cosign.key") {
		t.Errorf("got %v with another file", err)
	}
}

// TestReproducible makes a release twice, with two folders and some time between.
func TestReproducible(t *testing.T) {
	key, public := newKey(t, "secret")
	a := made(t, key, "registry.example.com")
	time.Sleep(1100 * time.Millisecond) // tar and gzip store seconds
	b := made(t, key, "registry.example.com")
	if sums := read(t, a, sumsName); !bytes.Equal(sums, read(t, b, sumsName)) {
		t.Errorf("got\n%s\nand\n%s", sums, read(t, b, sumsName))
	}
	if !minisign.Verify(public, read(t, a, sumsName), read(t, a, signatureName)) {
		t.Error("the signature is not valid")
	}
	var s statement
	if err := json.Unmarshal(read(t, a, provenanceName), &s); err != nil {
		t.Fatal(err)
	}
	const files = 15 // 5 binaries and their archives, image, chart as file and as image, the manifests of krew and Homebrew
	if len(s.Subject) != files || s.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] != a.commit {
		t.Errorf("provenance: got %+v", s)
	}
}

// TestImportName checks that containerd imports the image by the name in the chart.
func TestImportName(t *testing.T) {
	r := made(t, "", "registry.example.com/owner")
	if err := r.withLayout(imageArchive, func(_ v1.ImageIndex, entry v1.Descriptor) error {
		if got, want := entry.Annotations["io.containerd.image.name"], "registry.example.com/owner/fastadmit:1.2.3-rc.1"; got != want {
			t.Errorf("got name %q, want %q", got, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestPublish pushes to a registry and reads back what users pull.
func TestPublish(t *testing.T) {
	key, _ := newKey(t, "")
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	r := made(t, key, host+"/owner")
	if err := r.publish(t.Context()); err != nil {
		t.Fatal(err)
	}

	ref, err := name.ParseReference(host + "/owner/fastadmit:" + r.version)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		image, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image, arch)
	}

	pulled := t.TempDir()
	if _, err := output(t.Context(), r.root, "bin/tools/helm", "pull", "--plain-http",
		"oci://"+host+"/owner/charts/fastadmit", "--version", r.version, "--destination", pulled); err != nil {
		t.Fatal(err)
	}
	chart, err := os.ReadFile(filepath.Join(pulled, filepath.Base(r.chartFile())))
	if err != nil || !bytes.Equal(chart, read(t, r, filepath.Base(r.chartFile()))) {
		t.Errorf("helm pulls another chart than was packaged (%v)", err)
	}

	rendered, err := output(t.Context(), r.root, "bin/tools/helm", "template", r.chartFile(),
		"--set", "plugins.AlwaysPullImages.failurePolicy=Fail")
	if err != nil || !strings.Contains(rendered, r.registry+"/fastadmit:"+r.version) {
		t.Errorf("the chart does not run the image that was published (%v)", err)
	}

	// A file that was changed after signing is not published.
	if err := os.WriteFile(r.path("fastadmit-linux-amd64"), []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.publish(t.Context()); err == nil || !strings.Contains(err.Error(), "make the release again") {
		t.Errorf("got %v", err)
	}
}

// checkImage compares an image with what the Dockerfile says and the binary.
func checkImage(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	dockerfile, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(list []string) string { return `["` + strings.Join(list, `", "`) + `"]` }
	for _, line := range []string{
		"USER " + config.Config.User, "ENV " + strings.Join(config.Config.Env, " "),
		"ENTRYPOINT " + quoted(config.Config.Entrypoint), "CMD " + quoted(config.Config.Cmd),
	} {
		if !strings.Contains(string(dockerfile), "\n"+line+"\n") {
			t.Errorf("deploy/Dockerfile has no line %q", line)
		}
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("got %d layers, %v", len(layers), err)
	}
	layer, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(layer)
	if err != nil || !bytes.Contains(content, []byte("binary of linux "+arch)) {
		t.Errorf("%s: got %d bytes without its binary, %v", arch, len(content), err)
	}
}

func TestWrongKey(t *testing.T) {
	key, _ := newKey(t, "secret")
	t.Setenv("MINISIGN_PASSWORD", "another")
	r := &release{version: "1.2.3", out: t.TempDir()}
	if err := r.sign(key); err == nil || !strings.Contains(err.Error(), "MINISIGN_PASSWORD") {
		t.Errorf("got %v", err)
	}
}

func TestVersion(t *testing.T) {
	for version, ok := range map[string]bool{"1.2.3": true, "1.2.3-rc.1": true, "v1.2.3": false, "1.2": false, "": false,
		"1.2.3+a": false} {
		if _, err := newRelease(t.Context(), version, t.TempDir()); (err == nil) != ok {
			t.Errorf("%q: got %v", version, err)
		}
	}
}

func TestNotes(t *testing.T) {
	root := t.TempDir()
	changelog := "# Changelog\n\n## Unreleased\n\n- new\n\n## 1.2.3 (2026-01-02)\n\n- old\n\n### More\n\n- older\n\n## 1.2.2\n\n- oldest\n"
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(changelog), 0o644); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{
		"1.2.3": "# fastadmit 1.2.3\n\n- old\n\n### More\n\n- older\n", "1.2.2": "# fastadmit 1.2.2\n\n- oldest\n",
		"1.3.0-rc.1": "# fastadmit 1.3.0-rc.1\n\n- new\n", "1.3.0": "",
	} {
		r := &release{version: version, root: root}
		got, err := r.notes()
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v", version, got, err)
		}
	}
}
