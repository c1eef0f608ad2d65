package app

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// fifo replaces a file by a named pipe that has no writer.
func fifo(t *testing.T, file string) {
	t.Helper()
	if err := syscall.Mkfifo(file+".tmp", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		t.Fatal(err)
	}
}

// served are all files that a server reads, by the name that error messages use.
func served(t *testing.T, dir string) (files map[string]string, args []string) {
	t.Helper()
	authority := servertest.NewAuthority(t)
	pair := authority.Sign("fastadmit", x509.ExtKeyUsageServerAuth, time.Hour)
	files = map[string]string{
		"config.yaml": configHead + "enableAdmissionPlugins: [EventRateLimit]\n",
		"admission.yaml": "kind: AdmissionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nplugins: [{name: " +
			"EventRateLimit, path: limits.yaml}]\n",
		"limits.yaml": "kind: Configuration\napiVersion: eventratelimit.admission.k8s.io/v1alpha1\nlimits: [{type: Server, " +
			"qps: 1, burst: 1}]\n",
		"tls.crt": servertest.CertPEM(pair.Leaf), "tls.key": servertest.KeyPEM(t, pair),
		"ca.crt": servertest.CertPEM(authority.Cert), "tokens.csv": "t,u,1\n", "passwords.csv": "p,u,1\n",
	}
	for name, content := range files {
		servertest.WriteFile(t, filepath.Join(dir, name), content)
	}
	for flag, name := range map[string]string{
		"config": "config.yaml", "admission-control-config-file": "admission.yaml", "tls-cert-file": "tls.crt",
		"tls-private-key-file": "tls.key",
		"client-ca-file":       "ca.crt", "token-auth-file": "tokens.csv", "basic-auth-file": "passwords.csv",
	} {
		args = append(args, "--"+flag+"="+filepath.Join(dir, name))
	}
	return files, args
}

const notRegular = "got a named pipe, want a regular file"

// TestFIFOWhileServing replaces each file by a named pipe. The server refuses
// the change, continues with the former content, and sees the next change.
func TestFIFOWhileServing(t *testing.T) {
	dir := t.TempDir()
	files, args := served(t, dir)
	s := serve(t, nil, args...)
	readyz := func() string { return s.Get(t, "/readyz?verbose", 200) }
	if strings.Contains(readyz(), "refused") {
		t.Fatal(readyz())
	}
	for name, content := range files {
		file := filepath.Join(dir, name)
		fifo(t, file)
		servertest.Until(t, name+" is refused", func() bool { return strings.Contains(readyz(), file+": "+notRegular) })
		servertest.WriteFile(t, file, content)
		servertest.Until(t, name+" is read again", func() bool { return !strings.Contains(readyz(), "refused") })
	}
}

// TestFIFOAtStart starts the server with a named pipe as each of its files.
func TestFIFOAtStart(t *testing.T) {
	dir := t.TempDir()
	files, args := served(t, dir)
	args = append([]string{"serve", "--secure-port=0", "--bind-address=127.0.0.1", "--metrics-bind-address="}, args...)
	for name, content := range files {
		file := filepath.Join(dir, name)
		fifo(t, file)
		if _, errs, code := execute("", args...); code != 1 || !strings.Contains(errs, file+": "+notRegular) {
			t.Errorf("%s: got exit code %d, %s", name, code, errs)
		}
		servertest.WriteFile(t, file, content)
	}
	config := filepath.Join(dir, "namespaces.yaml")
	servertest.WriteFile(t, config, configHead+"enableAdmissionPlugins: [NamespaceExists]\n")
	file := filepath.Join(dir, "kubeconfig")
	fifo(t, file)
	args = []string{"serve", "--secure-port=0", "--bind-address=127.0.0.1", "--metrics-bind-address=", "--config=" + config}
	if _, errs, code := execute("", append(args, "--kubeconfig="+file)...); code != 1 || !strings.Contains(errs, file+": "+notRegular) {
		t.Errorf("kubeconfig: got exit code %d, %s", code, errs)
	}
	tracing := filepath.Join(dir, "tracing.yaml")
	fifo(t, tracing)
	if _, errs, code := execute("", "serve", "--secure-port=0", "--bind-address=127.0.0.1", "--metrics-bind-address=",
		"--enable-admission-plugins=AlwaysPullImages", "--tracing-config-file="+tracing); code != 1 ||
		!strings.Contains(errs, tracing+": "+notRegular) {
		t.Errorf("tracing: got exit code %d, %s", code, errs)
	}
	for _, field := range []string{"cluster: {server: 'https://127.0.0.1:1', certificate-authority: %}", "user: {tokenFile: %}",
		"user: {client-certificate: %, client-key: tls.key}", "user: {client-certificate: tls.crt, client-key: %}"} {
		named := filepath.Join(dir, "named")
		fifo(t, named)
		cluster, user, _ := strings.Cut(strings.ReplaceAll(field, "%", named), "user: ")
		if cluster == "" {
			cluster, user = "cluster: {server: 'https://127.0.0.1:1'}", ", user: "+user
		}
		other := filepath.Join(dir, "other")
		servertest.WriteFile(t, other,
			"apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"+
				"clusters: [{name: c, "+cluster+"}]\nusers: [{name: u"+user+"}]\n")
		if _, errs, code := execute("", append(args, "--kubeconfig="+other)...); code != 1 ||
			!strings.Contains(errs, named+": "+notRegular) {
			t.Errorf("%s: got exit code %d, %s", field, code, errs)
		}
	}
	state := t.TempDir()
	fifo(t, filepath.Join(state, "pods.yaml"))
	if _, errs, code := execute("", append(args, "--cluster-state-dir="+state)...); code != 1 ||
		!strings.Contains(errs, "pods.yaml: "+notRegular) {
		t.Errorf("cluster state: got exit code %d, %s", code, errs)
	}
}

// TestReviewReadsPipes tests that the commands that run once read the pipes that
// a shell makes of <(command).
func TestReviewReadsPipes(t *testing.T) {
	dir := t.TempDir()
	pipe := func(name, content string) string {
		file := filepath.Join(dir, name)
		fifo(t, file)
		go func() {
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteString(content)
			}
			if err != nil {
				t.Error(err)
			}
			f.Close()
		}()
		return file
	}
	config := configHead + "enableAdmissionPlugins: [AlwaysPullImages]\n"
	got, errs, code := execute("", "review", "-f", pipe("manifests", manifests), "--config="+pipe("config", config))
	if code != 0 || !strings.Contains(got, ": Pod default/web: allowed, patched by AlwaysPullImages\n") {
		t.Errorf("review: got exit code %d, %s %s", code, got, errs)
	}
	got, errs, code = execute("", "manifests", "--config="+pipe("config", config), "--url=https://example.com",
		"--ca-bundle-file="+pipe("ca", servertest.CertPEM(servertest.NewAuthority(t).Cert)))
	if code != 0 || !strings.Contains(got, "caBundle: ") {
		t.Errorf("manifests: got exit code %d, %s %s", code, got, errs)
	}
}
