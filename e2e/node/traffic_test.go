package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
)

const (
	// tried is the shipped policy that is tried, in values of the chart.
	tried = "{shipped: {no-privileged-containers: {validationActions: [Deny]}}}"

	// recorded makes the pods record all reviews of Pods.
	recorded = "record: {enabled: true, sample: 1, rate: 10000, resources: [pods]}\n"

	// deniesPrivileged is what the policy says.
	deniesPrivileged = "containers must not be privileged: agent"
)

// Each team is a namespace with two Deployments, of which the agent is privileged.
var (
	teams  = []string{"team-a", "team-b", "team-c"}
	agents = []string{"team-a/agent", "team-b/agent", "team-c/agent"}
)

// allRestarted makes the workloads of the teams. It replaces the pods of fastadmit and restarts the workloads as often as promoted does:
// what that alone costs the stream.
func (s *test) allRestarted(t *testing.T) int {
	for _, team := range teams {
		s.MustKubectl(t, "", "create", "namespace", team)
		s.MustKubectl(t, deployment(team, "agent", true)+deployment(team, "web", false), "apply", "-f", "-")
	}
	for n := range 4 {
		s.Values(t, fmt.Sprintf("%spodAnnotations: {n: %q}\n", enabled, strconv.Itoa(n)))
		s.Does(t, "--reset-then-reuse-values")
		s.await(t, 2)
		s.restartTeams(t)
	}
	return 0
}

// promoted puts a policy into force as docs/tightening.md describes: traffic is recorded, the policy is tried offline and then in
// the shadow, and both name the workloads that it then denies, and no others.
func (s *test) promoted(t *testing.T) int {
	s.Values(t, enabled+recorded+"podAnnotations: {n: null}\n")
	s.Does(t, "--reset-then-reuse-values")
	s.await(t, 2)
	s.restartTeams(t)
	if got := s.replayed(t); !slices.Equal(got, agents) {
		t.Errorf("replay says that the policy denies %q, want %q", got, agents)
	}

	s.Values(t, enabled+recorded+"shadow: {policies: "+tried+"}\n")
	s.Does(t, "--reset-then-reuse-values")
	cluster.Await(t, "the shadow to see the workloads", func() error {
		s.restartTeams(t)
		if got := s.shadowed(t); !slices.Equal(got, agents) {
			return fmt.Errorf("it says that the policy denies %q, want %q", got, agents)
		}
		return nil
	})

	s.Values(t, enabled+"record: {enabled: false}\nshadow: {policies: {shipped: {no-privileged-containers: null}}}\npolicies: "+tried+"\n")
	s.Does(t, "--reset-then-reuse-values")
	s.await(t, 2)
	for _, team := range teams {
		cluster.Await(t, "the policy", func() error { return cluster.WantError(s.restart(t, team, "agent"), deniesPrivileged) })
		if err := s.restart(t, team, "web"); err != nil {
			t.Errorf("%s: %v", team, err)
		}
	}

	s.Values(t, enabled+"policies: {shipped: {no-privileged-containers: null}}\n")
	s.Does(t, "--reset-then-reuse-values")
	s.MustKubectl(t, "", append([]string{"delete", "namespace"}, teams...)...)
	return 0
}

// deployment returns a Deployment of a team.
func deployment(team, name string, privileged bool) string {
	return fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": %q, "name": %q}, "spec": {
  "selector": {"matchLabels": {"app": %[2]q}}, "template": {"metadata": {"labels": {"app": %[2]q}}, "spec": {
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": %[2]q, "image": "localhost/pause:e2e", "securityContext": {"privileged": %v}}]}}}}
`, team, name, privileged)
}

// restart makes new Pods of a Deployment.
func (s *test) restart(t *testing.T, team, name string) error {
	t.Helper()
	if _, stderr, err := s.Kubectl(t, "", "rollout", "restart", "deployment/"+name, "-n", team); err != nil {
		return errors.New(stderr)
	}
	return nil
}

// restartTeams makes new Pods of all teams, and waits until they run.
func (s *test) restartTeams(t *testing.T) {
	t.Helper()
	for _, team := range teams {
		s.MustKubectl(t, "", "rollout", "restart", "deployment/agent", "deployment/web", "-n", team)
	}
	for _, team := range teams {
		for _, name := range []string{"agent", "web"} {
			s.MustKubectl(t, "", "rollout", "status", "deployment/"+name, "-n", team, patience)
		}
	}
}

// workload returns the workload of an object: a Pod, whose name the workload's begins, or the workload itself.
func workload(namespace, name string) string {
	name, _, _ = strings.Cut(name, "-")
	return namespace + "/" + name
}

// replayed asks the policy what was recorded in all pods, and returns the workloads that it denies.
func (s *test) replayed(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pod := range s.pods(t, "fastadmit", ours) {
		tar := s.MustKubectl(t, "", "exec", "-n", "fastadmit", pod.Name, "--", "/fastadmit", "recordings")
		files = append(files, cluster.WriteFile(t, pod.Name+".tar", []byte(tar)))
	}
	policy, err := os.ReadFile("../../deploy/chart/policies/no-privileged-containers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies := cluster.WriteFile(t, "policies.yaml", policy)
	// An operator does not do this on a node.
	arguments := append([]string{"-n", "19", cluster.Built(release + "/fastadmit-linux-amd64"), "replay",
		"--enable-admission-plugins=DefaultTolerationSeconds,LimitPodHardAntiAffinityTopology", "--bind-policies",
		"--policies=" + filepath.Dir(policies), "-o", "json"}, files...)
	var said strings.Builder
	replay := exec.Command("nice", arguments...)
	replay.Stderr = &said
	out, err := replay.Output()
	if status, ok := errors.AsType[*exec.ExitError](err); !ok || status.ExitCode() != 1 {
		t.Fatalf("%s: got %v, want exit code 1, because answers differ: %s\n%.3000s", replay, err, said.String(), out)
	}
	var report struct {
		Results []struct{ Decision, Namespace, Name, Change string }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for _, r := range report.Results {
		if r.Decision != "differs" || r.Change != "allowed to denied" {
			t.Errorf("replay says %+v", r)
		}
		found[workload(r.Namespace, r.Name)] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// shadowed returns the workloads that the shadow of any pod denies.
func (s *test) shadowed(t *testing.T) []string {
	t.Helper()
	found := make(map[string]bool)
	for _, pod := range s.pods(t, "fastadmit", ours) {
		out, stderr, err := s.Kubectl(t, "", "exec", "-n", "fastadmit", pod.Name, "--", "/fastadmit", "shadow", "-o", "json")
		if err != nil && strings.Contains(stderr, "the configuration has no shadow") {
			continue // the kubelet has not written the file yet
		}
		var report struct {
			Differences []struct {
				Policy, From, To string
				Example          struct{ Namespace, Name string }
			}
		}
		if err == nil {
			err = json.Unmarshal([]byte(out), &report)
		}
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		for _, d := range report.Differences {
			if d.From != "allowed" || d.To != "denied" || d.Policy != "no-privileged-containers.fastadmit.io" {
				t.Errorf("the shadow says %+v", d)
			}
			found[workload(d.Example.Namespace, d.Example.Name)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
