// Package operator follows docs/operations.md on the cluster of a test.
package operator

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

// An Operator is somebody who follows docs/operations.md, in a folder with what it
// names: deploy, values.yaml, tls.crt, tls.key and ca.crt. The kubeconfig is also where
// kubectl has it.
type Operator struct {
	Document string // whose blocks are run
	dir      string
	env      []string
}

// New returns one whose kubectl and helm talk to the cluster of the kubeconfig. The
// values are the document's for an installation.
func New(t testing.TB, kubeconfig string) *Operator {
	t.Helper()
	document, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	o := &Operator{dir: t.TempDir(), Document: string(document)}
	home := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(home, ".kube"), 0o700), os.Symlink(kubeconfig, filepath.Join(home, ".kube", "config"))); err != nil {
		t.Fatal(err)
	}
	o.env = []string{
		"PATH=" + o.dir + ":" + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig, "HOME=" + home,
		"HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home,
	}
	for name, path := range map[string]string{
		"deploy": "../../deploy", "helm": Tool(t, "helm"), "kubectl": cluster.Built("kubernetes/kubectl"),
		"fastadmit": cluster.Binary, "my-fastadmit": cluster.Built("example"),
	} {
		o.Link(t, name, path)
	}
	certificate, key := NewCertificate(t)
	for name, text := range map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate} {
		if err := os.WriteFile(filepath.Join(o.dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Values(t, o.Installed(t))
	return o
}

// On returns one in the same folder who follows another document of docs.
func (o *Operator) On(t testing.TB, name string) *Operator {
	t.Helper()
	document, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	other := *o
	other.Document = string(document)
	return &other
}

// Installed are the document's values, with which pods end sooner than users
// would have it.
func (o *Operator) Installed(t testing.TB) string {
	t.Helper()
	return o.Documented(t, "yaml", "image: ") + "\nshutdownDelaySeconds: 2\n"
}

// Values writes the operator's file of that name.
func (o *Operator) Values(t testing.TB, text string) { o.Write(t, "values.yaml", text) }

// Write writes a file for the operator's commands.
func (o *Operator) Write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Link lets the operator's commands find a file or folder by a name.
func (o *Operator) Link(t testing.TB, name, path string) {
	t.Helper()
	absolute, err := filepath.Abs(path)
	if err == nil {
		err = os.Symlink(absolute, filepath.Join(o.dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// Documented returns the block of the document with all of these words.
func (o *Operator) Documented(t testing.TB, language string, words ...string) string {
	t.Helper()
	var found []string
	for _, match := range fence.FindAllStringSubmatch(o.Document, -1) {
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

// Does runs such a block and returns what it prints.
func (o *Operator) Does(t testing.TB, words ...string) string {
	t.Helper()
	printed, err := o.Tries(t, words...)
	if err != nil {
		t.Fatal(err)
	}
	return printed
}

// Tries is does for what may fail.
func (o *Operator) Tries(t testing.TB, words ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("sh", "-euc", o.Documented(t, "sh", words...))
	cmd.Dir, cmd.Env = o.dir, append(os.Environ(), o.env...)
	printed, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", cmd, err, printed)
	}
	return string(printed), err
}

// Tool returns the path of a tool that tools/deploy/go.mod pins, which make chart has built.
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
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v: %s%s", command, strings.Join(arguments, " "), err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// NewCertificate returns one for the Service that is its own authority, and its
// key, in PEM.
func NewCertificate(t testing.TB) (certificate, encodedKey []byte) {
	t.Helper()
	return cluster.SelfSigned(t, cluster.Serving(time.Now().Add(24*time.Hour), "fastadmit.fastadmit.svc"))
}
