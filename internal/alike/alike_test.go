package alike

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/allocs"
)

func TestHint(t *testing.T) {
	known := []string{"AlwaysPullImages", "AlwaysDeny", "PodSecurity", "PodNodeSelector", "Priority",
		"PodTolerationRestriction", "PodTopologyLabels"}
	f := func(name, want string) {
		t.Helper()
		if got := Hint(name, known); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	f("AlwaysPullImage", ", did you mean AlwaysPullImages?")
	f("alwaysdeny", ", did you mean AlwaysDeny?")
	f("PodNodeSelectr", ", did you mean PodNodeSelector?")
	f("podsecurity", ", did you mean PodSecurity?")
	f("Pod", ", did you mean PodSecurity or PodNodeSelector or PodTolerationRestriction?")
	f("PodSecurityxxx", ", did you mean PodSecurity?")
	f("Priorit", ", did you mean Priority?")
	f("Nothing", "")
	f("", "")
	known = []string{"rules", "tls", "nodes", "pods", "podtemplates", "os"}
	f("tlss", ", did you mean tls?") // rules has three letters that differ
	f("pod", ", did you mean pods or podtemplates?")
	f("tsl", ", did you mean tls or os?")
	f("xyz", "") // os has three letters that differ, too
}

// TestHintOfLongName has a name that whoever wrote a manifest chose. Comparing it would allocate for each of its letters.
func TestHintOfLongName(t *testing.T) {
	name := strings.Repeat("a", 1<<14)
	if got := allocs.PerRun(1, func() { Hint(name, []string{"replicas", "selector"}) }); got != 0 {
		t.Errorf("got %v allocations, want none", got)
	}
}
