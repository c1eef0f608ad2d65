package app

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission/example/creator"
	"github.com/fastadmit/fastadmit/admission/example/teamlabel"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// executeOwn runs a command of a binary that has its own plugins and version.
func executeOwn(stdin string, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	cmd := NewCommand(WithVersion("v9.8.7"), WithPlugin(creator.Plugin()), WithPlugin(teamlabel.Plugin()))
	cmd.SetArgs(append([]string{}, args...)) // of nil, it takes those of the test binary
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = Execute(cmd)
	return out.String(), errs.String(), code
}

// TestManifestsClusterRole prints the permissions that plugins and selectors need in
// the cluster, including those of a custom plugin.
func TestManifestsClusterRole(t *testing.T) {
	config := servertest.TempFile(t, "config.yaml", `apiVersion: fastadmit.io/v1alpha1
kind: Configuration
enableAdmissionPlugins: [TeamLabel, AlwaysPullImages]
plugins: [{name: AlwaysPullImages, namespaceSelector: {matchLabels: {a: b}}}]
`)
	want := `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: own.example.com
rules:
- apiGroups:
  - ""
  resources:
  - namespaces
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - ""
  resources:
  - configmaps
  verbs:
  - get
  - list
  - watch
- apiGroups:
  - example.com
  resources:
  - teams
  verbs:
  - get
  - list
  - watch
`
	stdout, stderr, code := executeOwn("", "manifests", "--kind=ClusterRole", "--name=own.example.com", "--config="+config)
	if code != 0 || stdout != want {
		t.Errorf("got exit code %d, %s%s\nwant %s", code, stdout, stderr, want)
	}
	_, stderr, code = executeOwn("", "manifests", "--kind=ClusterRole", "--enable-admission-plugins=NamespaceCreator")
	if code != 1 || !strings.Contains(stderr, "no enabled plugin accesses the cluster") {
		t.Errorf("got exit code %d, %s, want 1 and why", code, stderr)
	}
}

// TestPluginsForChart shows that the values of the chart have only plugins that are
// not built in.
func TestPluginsForChart(t *testing.T) {
	stdout, _, code := executeOwn("", "plugins", "-o", "chart")
	if code != 0 || !strings.HasPrefix(stdout, "extraPlugins:\n  NamespaceCreator:\n") ||
		!strings.Contains(stdout, "\n  TeamLabel:\n    cluster:\n") ||
		strings.Contains(stdout, "LimitRanger") {
		t.Errorf("got exit code %d, %s, want NamespaceCreator and TeamLabel alone", code, stdout)
	}
	if _, stderr, code := execute("", "plugins", "-o", "chart"); code != 1 || !strings.Contains(stderr, "all plugins are built in") {
		t.Errorf("got exit code %d, %s, want 1 and why", code, stderr)
	}
}

// TestReviewOpenKinds reviews with custom resources. They are in files of the
// cluster's state, or among the reviewed objects.
func TestReviewOpenKinds(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	write("team.yaml", "apiVersion: example.com/v1\nkind: Team\nmetadata: {name: red}\nspec: {costCenter: \"4711\"}\n")
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: one}\nspec: {containers: [{name: c, image: i}]}\n"
	const defaults = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: team, namespace: one}\ndata: {default: red}\n"
	review := func(input string, flags ...string) (string, int) {
		stdout, stderr, code := executeOwn(input, append([]string{"review", "--enable-admission-plugins=TeamLabel"}, flags...)...)
		return stdout + stderr, code
	}
	if got, code := review(pod+"---\n"+defaults, "--cluster-state-dir="+dir, "-"); code != 0 ||
		!strings.Contains(got, `{"team":"red"}`) || !strings.Contains(got, "4711") {
		t.Errorf("with a ConfigMap: got exit code %d, %s, want the pod allowed and patched", code, got)
	}
	const team = "---\napiVersion: example.com/v1\nkind: Team\nmetadata: {name: red}\nspec: {costCenter: \"4711\"}\n"
	if got, code := review(pod+"---\n"+defaults+team, "-"); code != 0 || !strings.Contains(got, "4711") {
		t.Errorf("with a Team beside it and no CustomResourceDefinition: got exit code %d, %s, want the pod allowed and patched",
			code, got)
	}
	if got, code := review(pod, "--cluster-state-dir="+dir, "-"); code != 1 || !strings.Contains(got, `got "", want the name of a Team`) {
		t.Errorf("without: got exit code %d, %s, want the pod denied", code, got)
	}
}

// TestBuildInfo looks for the version in the metrics.
func TestBuildInfo(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysAdmit")
	want := fmt.Sprintf("fastadmit_build_info{version=%q,goversion=%q} 1\n", "v1.2.3", runtime.Version())
	if got := s.Get(t, "/metrics", http.StatusOK); !strings.Contains(got, want) {
		t.Errorf("got no %s in %s", want, got)
	}
}
