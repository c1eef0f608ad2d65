// Package walkthrough follows the documents step by step on the cluster of a test: it runs their
// commands and applies their files, as an administrator would.
package walkthrough

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

// An Admin follows a document, at first docs/operations.md, in a folder with the files that the
// document names: deploy, values.yaml, tls.crt, tls.key and ca.crt. The kubeconfig is also at
// kubectl's default path.
type Admin struct {
	Document string // its text
	dir      string
	env      []string
}

// New returns an Admin whose kubectl and helm use the cluster of the kubeconfig. values.yaml has the
// document's values for an installation.
func New(t testing.TB, kubeconfig string) *Admin {
	t.Helper()
	document, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	a := &Admin{dir: t.TempDir(), Document: string(document)}
	home := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(home, ".kube"), 0o700),
		os.Symlink(kubeconfig, filepath.Join(home, ".kube", "config"))); err != nil {
		t.Fatal(err)
	}
	a.env = []string{
		"PATH=" + a.dir + ":" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig, "HOME=" + home,
		"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
	}
	for name, path := range map[string]string{
		"deploy": "../../deploy", "helm": Tool(t, "helm"), "kubectl": cluster.Built("kubernetes/kubectl"),
		"fastadmit": cluster.Binary, "my-fastadmit": cluster.Built("example"),
	} {
		a.Link(t, name, path)
	}
	certificate, key := NewCertificate(t)
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate} {
		if err := os.WriteFile(filepath.Join(a.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.Values(t, a.Installed(t))
	return a
}

// On returns an Admin who follows another document of docs in the same folder.
func (a *Admin) On(t testing.TB, name string) *Admin {
	t.Helper()
	document, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	other := *a
	other.Document = string(document)
	return &other
}

// Installed returns the document's values for an installation. Pods end sooner with it than with
// the default.
func (a *Admin) Installed(t testing.TB) string {
	t.Helper()
	return a.Documented(t, "yaml", "image: ") + "\nshutdownDelaySeconds: 2\nshutdownIdleSeconds: 0\n"
}

// Values writes values.yaml.
func (a *Admin) Values(t testing.TB, text string) { a.Write(t, "values.yaml", text) }

// Write writes a file for the document's commands.
func (a *Admin) Write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Link lets the document's commands find a file or folder by a name, instead of what had the name.
func (a *Admin) Link(t testing.TB, name, path string) {
	t.Helper()
	absolute, err := filepath.Abs(path)
	if err == nil {
		link := filepath.Join(a.dir, name)
		_ = os.Remove(link) // there may be none
		err = os.Symlink(absolute, link)
	}
	if err != nil {
		t.Fatal(err)
	}
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// Documented returns the document's only block of the language that has all of these words.
func (a *Admin) Documented(t testing.TB, language string, words ...string) string {
	t.Helper()
	var found []string
	for _, match := range fence.FindAllStringSubmatch(a.Document, -1) {
		lacks := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(match[2], word) })
		if match[1] == language && !lacks {
			found = append(found, match[2])
		}
	}
	if len(found) != 1 {
		t.Fatalf("the document: got %d blocks of %s with %q, want 1", len(found), language, words)
	}
	return found[0]
}

// Does runs the shell block with these words, which must succeed, and returns what it prints.
func (a *Admin) Does(t testing.TB, words ...string) string {
	t.Helper()
	printed, err := a.Tries(t, words...)
	if err != nil {
		t.Fatal(err)
	}
	return printed
}

// Tries is Does for a block that may fail.
func (a *Admin) Tries(t testing.TB, words ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("sh", "-euc", a.Documented(t, "sh", words...))
	// helm and kubectl run for less than a second, a third of which is garbage collection.
	cmd.Dir, cmd.Env = a.dir, append(append(os.Environ(), "GOGC=400"), a.env...)
	printed, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", cmd, err, printed)
	}
	return string(printed), err
}

// Tool returns the path of a tool that tools/deploy/go.mod pins and make chart builds.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../bin/tools", name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v: run make chart", err)
	}
	return path
}

// Run runs a command that must succeed, and returns what it prints.
func Run(t testing.TB, env []string, command string, arguments ...string) string {
	t.Helper()
	cmd := exec.Command(command, arguments...)
	cmd.Env = append(append(os.Environ(), "GOGC=400"), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v: %s%s", command, strings.Join(arguments, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// NewCertificate returns a self-signed certificate for the Service, and its key, in PEM.
func NewCertificate(t testing.TB) (certificate, encodedKey []byte) {
	t.Helper()
	return cluster.SelfSigned(t, cluster.Serving(time.Now().Add(24*time.Hour), "fastadmit.fastadmit.svc"))
}
