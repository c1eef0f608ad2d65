// Package review compares what fastadmit review knows without a cluster with a real cluster: the
// resources of kinds, the objects that controllers create for workloads, and which of them are
// denied.
package review

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/cmd/fastadmit/app"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/discovery"
)

var update = flag.Bool("update", false, "write internal/discovery/resources.txt")

// TestBuiltIn compares the built-in resources with those of a kube-apiserver that serves all it
// can.
func TestBuiltIn(t *testing.T) {
	s := cluster.StartEtcd(t).StartAPIServer(t, cluster.APIServerOptions{Flags: map[string]string{
		"runtime-config": "api/all=true", "feature-gates": "AllAlpha=true,AllBeta=true",
	}})
	groups, err := s.Client.Discovery().ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			list, err := s.Client.Discovery().ServerResourcesForGroupVersion(version.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, resources(list)...)
		}
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	const file = "../../internal/discovery/resources.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || got != string(want) {
		t.Errorf("%s is not what kube-apiserver has, %v; with -update, the test writes it\ngot\n%s", file, err, got)
	}
}

// older matches the path of a resource in the OpenAPI document of a group version.
var older = regexp.MustCompile(`"/apis?/(?:([^/"]+)/)?(v[^/"]+)/(?:namespaces/\{namespace\}/)?([a-z]+)":`)

// TestOlder checks that discovery.CanServe knows what older releases serve. The folders are those of e2e/run.
func TestOlder(t *testing.T) {
	files, err := filepath.Glob("../.cache/openapi-*/api*__v*_openapi.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range older.FindAllStringSubmatch(string(text), -1) {
			resource := schema.GroupVersionResource{Group: match[1], Version: match[2], Resource: match[3]}
			if found++; !discovery.CanServe(resource) {
				t.Errorf("%s: got no %s, want it in internal/discovery/older.txt", file, resource)
			}
		}
	}
	if found < 100 {
		t.Errorf("got %d resources", found)
	}
}

// resources returns a line for each resource, except subresources.
func resources(list *metav1.APIResourceList) (lines []string) {
	for _, r := range list.APIResources {
		scope := "Cluster"
		if r.Namespaced {
			scope = "Namespaced"
		}
		if !strings.Contains(r.Name, "/") {
			lines = append(lines, fmt.Sprintf("%s %s %s %s", list.GroupVersion, r.Kind, r.Name, scope))
		}
	}
	return lines
}

// run runs fastadmit review.
func run(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := app.NewCommand(app.WithVersion("v1.2.3"))
	cmd.SetArgs(append([]string{"review"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	if got := app.Execute(cmd); got != code && code >= 0 {
		t.Fatalf("%q: got exit code %d, want %d: %s", args, got, code, errs.String())
	}
	return out.String()
}

// TestSARIF validates -o sarif against the schema of OASIS, which a linter of
// module tools comes with.
func TestSARIF(t *testing.T) {
	const module, file = "github.com/securego/gosec/v2", "report/sarif/testdata/sarif-schema-2.1.0.json"
	cmd := exec.Command("go", "mod", "download", "-modfile=tools/go.mod", "-json", module)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	text, err := cmd.Output()
	var downloaded struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(text, &downloaded)
	}
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	compiled, err := jsonschema.NewCompiler().Compile(filepath.Join(downloaded.Dir, file))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		args []string
	}{
		{0, []string{"../../testdata/pod.yaml", "--enable-admission-plugins=AlwaysAdmit"}},
		{2, []string{"testdata", "missing.yaml", "../../testdata/exec.yaml", "--enable-admission-plugins=PodSecurity,AlwaysDeny"}},
		{0, []string{"../../testdata/service.yaml", "--config=../../testdata/config.yaml"}},
	} {
		got, err := jsonschema.UnmarshalJSON(strings.NewReader(run(t, c.code, append(c.args, "-o", "sarif")...)))
		if err == nil {
			err = compiled.Validate(got)
		}
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
		}
	}
	broken, err := jsonschema.UnmarshalJSON(strings.NewReader(`{"version":"2.1.0","runs":[{"results":[]}]}`))
	if err != nil || compiled.Validate(broken) == nil {
		t.Errorf("got no error for a run without a tool, %v", err)
	}
}
