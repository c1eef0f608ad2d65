package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestAuditFlags tests that audit rejects wrong flags before it calls the
// cluster.
func TestAuditFlags(t *testing.T) {
	nobody := filepath.Join(t.TempDir(), "kubeconfig")
	const kubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:1"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a"}}]}`
	if err := os.WriteFile(nobody, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	enabled := "--enable-admission-plugins=AlwaysAdmit"
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	file := filepath.Join(os.Getenv("HOME"), ".kube", "config")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{enabled, "--operation=DELETE"}, `--operation: got "DELETE", want CREATE or UPDATE`},
		{[]string{enabled, "--cluster-state-dir=x"}, "--cluster-state-dir cannot be used with audit"},
		{[]string{enabled, "--chunk-size=0"}, "--chunk-size: got 0, want at least 1"},
		{[]string{enabled, "--kube-api-qps=0"}, "--kube-api-qps: got 0, want more than 0"},
		{[]string{enabled, "--write-reports=v1"}, `--write-reports: got "v1", want openreports.io/v1alpha1 or wgpolicyk8s.io/v1alpha2`},
		{[]string{enabled, "--output=table"}, `--output: got "table"`},
		{[]string{enabled, "--kubeconfig=/nope"}, "/nope"},
		{[]string{enabled}, "no cluster is named: want --kubeconfig, the variable KUBECONFIG or the file " + file},
		{[]string{enabled, "--kubeconfig=" + nobody, "--context=b"}, `context: got "b", want one of a`},
		{[]string{"--kubeconfig=/nope"}, "no admission plugin is enabled"},
		{[]string{"--enable-admission-plugins=NamespaceAutoProvision", "--kubeconfig=" + nobody},
			"NamespaceAutoProvision is left out: it counts or writes, and does not decide by the object alone\nfastadmit: " +
				"no admission plugin is enabled"},
		{[]string{enabled, "--kubeconfig=" + nobody}, "connection refused"},
	} {
		_, errs, code := execute("", append([]string{"audit"}, c.args...)...)
		if code != exitBroken || !strings.Contains(errs, c.want) {
			t.Errorf("%q: got exit code %d and %q, want %q", c.args, code, errs, c.want)
		}
	}
}

// TestAuditFindsKubeconfig names the cluster as for kubectl.
func TestAuditFindsKubeconfig(t *testing.T) {
	kubeconfig := func(port string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
			"clusters": [{"name": "c%[1]s", "cluster": {"server": "http://127.0.0.1:%[1]s"}}],
			"contexts": [{"name": "a", "context": {"cluster": "c%[1]s"}}, {"name": "a%[1]s", "context": {"cluster": "c%[1]s"}}]}`, port)
	}
	home := t.TempDir()
	servertest.WriteFile(t, filepath.Join(home, "one"), kubeconfig("1"))
	servertest.WriteFile(t, filepath.Join(home, "two"), kubeconfig("2"))
	if err := os.Mkdir(filepath.Join(home, ".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	servertest.WriteFile(t, filepath.Join(home, ".kube", "config"), kubeconfig("3"))
	f := func(variable, want string, args ...string) {
		t.Helper()
		t.Setenv("KUBECONFIG", variable)
		_, errs, code := execute("", append([]string{"audit", "--enable-admission-plugins=AlwaysAdmit"}, args...)...)
		if want = "127.0.0.1:" + want + ": "; code != exitBroken || !strings.Contains(errs, want) {
			t.Errorf("%q %q: got exit code %d and %q, want %q", variable, args, code, errs, want)
		}
	}
	t.Setenv("HOME", home)
	one, two := filepath.Join(home, "one"), filepath.Join(home, "two")
	f("", "3")
	f("", "1", "--kubeconfig="+one)
	f(two, "1", "--kubeconfig="+one)
	f(two, "2")
	f(two+string(filepath.ListSeparator)+one, "2")
	f(two+string(filepath.ListSeparator)+one, "1", "--context=a1")
}

// TestAuditMetrics reads the file of metrics back.
func TestAuditMetrics(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.prom")
	for _, n := range []int{auditNamespacesMax - 1, auditNamespacesMax, auditNamespacesMax + 1, auditNamespacesMax + 5} {
		m := newAuditMetrics()
		var s report.Summary
		for i := range n {
			r := &report.Result{Namespace: fmt.Sprintf("ns%d", i), Decision: report.Denied, Plugin: "P",
				Warnings: []report.Finding{{Plugin: "Q"}}}
			m.add(r)
			m.add(&report.Result{Namespace: "allowed", Decision: report.Allowed})
			s.Add(r)
		}
		if err := m.write(file, &s); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		others := max(0, n-auditNamespacesMax)
		if got, want := strings.Count(string(text), `fastadmit_audit_findings{plugin="P",namespace="ns`), n-others; got != want {
			t.Errorf("%d namespaces: got series of %d", n, got)
		}
		want := []string{fmt.Sprintf("fastadmit_audit_objects{decision=\"denied\"} %d\n", n),
			`fastadmit_audit_findings{plugin="Q",namespace="ns0",result="warned"} 1`}
		if others > 0 {
			want = append(want, fmt.Sprintf(`fastadmit_audit_findings{plugin="P",namespace="",result="denied"} %d`, others))
		}
		for _, line := range want {
			if !strings.Contains(string(text), line) {
				t.Errorf("%d namespaces: got no %q in\n%.500s", n, line, text)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".fastadmit-*")); len(left) > 0 {
		t.Errorf("got %q left", left)
	}
	if err := newAuditMetrics().write("/nope/audit.prom", new(report.Summary)); err == nil ||
		!strings.Contains(err.Error(), "--metrics-file: ") {
		t.Errorf("got %v", err)
	}
}
