package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

// enforced follows the condition Enforced of the policy required-label while one of two replicas
// ends, and its replacement is killed.
func (s *stand) enforced(t *testing.T, admin *walkthrough.Admin) {
	t.Helper()
	const resource, policy, condition, all = "validatingadmissionpolicies", "required-label", "Enforced", "all replicas enforce it"
	s.awaitCondition(t, resource, policy, condition, "True", all)
	first := s.awaitReports(t, 2)
	if said := admin.Does(t, "--for=condition=Enforced"); !strings.Contains(said, "condition met") || !strings.Contains(said, first[0]) {
		t.Errorf("got %s, want the condition and the reports %q", said, first)
	}

	// A pod that ends deletes its reports first.
	pods := strings.Fields(s.names(t))
	s.MustKubectl(t, "", "delete", "pod", pods[0], "-n", "fastadmit")
	stay := slices.DeleteFunc(s.reports(t), func(name string) bool { return !slices.Contains(first, name) })
	if len(stay) != 2 {
		t.Errorf("got %q of %q after a pod ended, want those of one replica", stay, first)
	}
	second := s.awaitReports(t, 2)
	s.awaitCondition(t, resource, policy, condition, "True", all)

	// A machine is lost: the process gets no time to delete its reports.
	next := slices.DeleteFunc(strings.Fields(s.names(t)), func(pod string) bool { return slices.Contains(pods, pod) })
	if len(next) != 1 {
		t.Fatalf("got new pods %q, and pods %q before, want 1 new one", next, pods)
	}
	s.MustKubectl(t, "", "delete", "pod", next[0], "-n", "fastadmit", "--grace-period=0", "--force")
	s.awaitReports(t, 3)
	s.MustKubectl(t, "", "patch", resource+".policies.fastadmit.io", policy, "--type=json",
		"-p", `[{"op":"add","path":"/spec/validations/0/message","value":"changed"}]`)
	s.awaitCondition(t, resource, policy, condition, "False", "1 of 3 replicas do not enforce it: ")
	lost := slices.DeleteFunc(second, func(name string) bool { return slices.Contains(first, name) })
	s.MustKubectl(t, "", append([]string{"delete", "policyreplicas.policies.fastadmit.io"}, lost...)...)
	s.awaitCondition(t, resource, policy, condition, "True", all)
}

// reports returns the names of the PolicyReplicas that have a status.
func (s *stand) reports(t *testing.T) []string {
	t.Helper()
	return strings.Fields(s.MustKubectl(t, "", "get", "policyreplicas.policies.fastadmit.io", "-o",
		`jsonpath={.items[?(@.status.plugin)].metadata.name}`))
}

// awaitReports waits until there are reports of this many replicas, for each of the two
// plugins, and returns their names.
func (s *stand) awaitReports(t *testing.T, replicas int) (names []string) {
	t.Helper()
	cluster.Await(t, "the reports of the replicas", func() error {
		if names = s.reports(t); len(names) != 2*replicas {
			return fmt.Errorf("got %q, want %d", names, 2*replicas)
		}
		return nil
	})
	return names
}
