package alike

import "testing"

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
	f("Nothing", "")
	f("", "")
}
