package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

const chartPolicies = "../../../deploy/chart/policies/"

// TestPodSecurityPolicies compares the plugin PodSecurity with the chart's policies that docs/policy-library.md lists for each
// Pod Security Standard, on the Pods of all suites.
func TestPodSecurityPolicies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes many seconds with the race detector, and evaluates one Pod after the other")
	}
	pods := podsOfSuites(t)
	page, err := os.ReadFile("../../../docs/policy-library.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile("`([a-z-]+)`")
	addsAny := regexp.MustCompile(`\['AUDIT_WRITE',[^]]*]`)
	dir := t.TempDir()
	for _, level := range [...]string{"baseline", "restricted"} { // which has the policies of baseline, too
		row := regexp.MustCompile(`(?m)^\| ` + level + `\b.*$`).Find(page)
		for _, name := range listed.FindAllSubmatch(row, -1) {
			file := string(name[1]) + ".yaml"
			policy, err := os.ReadFile(chartPolicies + file)
			if err != nil {
				t.Fatal(err)
			}
			if level == "restricted" {
				policy = addsAny.ReplaceAll(policy, []byte("['NET_BIND_SERVICE']"))
			}
			servertest.WriteFile(t, filepath.Join(dir, file), string(policy))
		}
		admission := filepath.Join(t.TempDir(), "admission.yaml")
		servertest.WriteFile(t, admission, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: `+level+`, enforce-version: latest}
`)
		want := decisions(t, pods, "--enable-admission-plugins=PodSecurity", "--admission-control-config-file="+admission)
		got := decisions(t, pods, "--policies="+dir, "--bind-policies")
		count := make(map[string]int)
		for i := range want {
			if count[want[i].Decision]++; got[i].Decision != want[i].Decision {
				t.Errorf("%s: got %+v, want %+v\n%s", level, got[i], want[i], pods[i])
			}
		}
		if len(want) != len(pods) || count["allowed"] < 50 || count["denied"] < 50 {
			t.Errorf("%s: got %v of %d Pods", level, count, len(pods))
		}
	}
}

// decision is a part of a report.
type decision struct{ Decision, Message string }

func decisions(t *testing.T, objects []string, args ...string) []decision {
	t.Helper()
	stdout, stderr, _ := execute(strings.Join(objects, "---\n"), append([]string{"review", "-f", "-", "-o", "json"}, args...)...)
	var report struct{ Results []decision }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || stderr != "" {
		t.Fatalf("got %v, %s", err, stderr)
	}
	return report.Results
}

// podsOfSuites returns the Pods in the suites of the chart, as they are and with what the standard restricted requires. It
// leaves out those for which the policies are stricter, with hostUsers: false, and those that lack the defaults of
// kube-apiserver: the type of a volume.
func podsOfSuites(t *testing.T) (pods []string) {
	t.Helper()
	suites, err := filepath.Glob(chartPolicies + "*.test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range suites {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var suite struct {
			Cases []struct{ Object map[string]any }
		}
		if err := yaml.Unmarshal(text, &suite); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range suite.Cases {
			spec, _ := c.Object["spec"].(map[string]any)
			volumes, _ := json.Marshal(spec["volumes"])
			if c.Object["kind"] != "Pod" || spec["hostUsers"] == false || strings.Contains(string(volumes), `{"name":"tmp"}`) {
				continue
			}
			c.Object["metadata"] = map[string]any{"name": fmt.Sprintf("p%d", len(pods)), "namespace": "shop"}
			secured := runtime.DeepCopyJSON(c.Object)
			secure(secured["spec"].(map[string]any))
			for _, pod := range [...]map[string]any{c.Object, secured} {
				text, err := yaml.Marshal(pod)
				if err != nil {
					t.Fatal(err)
				}
				pods = append(pods, string(text))
			}
		}
	}
	return pods
}

// secure adds what the standard restricted requires of containers, except where they say otherwise.
func secure(spec map[string]any) {
	for _, list := range [...]string{"containers", "initContainers", "ephemeralContainers"} {
		containers, _ := spec[list].([]any)
		for i := range containers {
			container := containers[i].(map[string]any)
			secured := map[string]any{
				"allowPrivilegeEscalation": false, "runAsNonRoot": true, "seccompProfile": map[string]any{"type": "RuntimeDefault"},
			}
			own, _ := container["securityContext"].(map[string]any)
			maps.Copy(secured, own)
			capabilities := map[string]any{"drop": []any{"ALL"}}
			added, _ := own["capabilities"].(map[string]any)
			maps.Copy(capabilities, added)
			secured["capabilities"] = capabilities
			container["securityContext"] = secured
		}
	}
}
