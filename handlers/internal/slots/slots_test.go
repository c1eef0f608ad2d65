package slots

import (
	"context"
	"crypto/sha256"
	"strconv"
	"testing"
)

// TestSlots takes all slots that one tenant may have and one more, and then all slots of all tenants and
// one more.
func TestSlots(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	const most, eachMost = 20, 5
	s := New(most, eachMost)
	var releases []func()
	f := func(who string, want bool) {
		t.Helper()
		ctx := t.Context()
		if !want {
			ctx = ended
		}
		release, ok := s.Take(ctx, sha256.Sum256([]byte(who)))
		if ok != want {
			t.Fatalf("call %d, of %s: got %v, want %v", len(releases)+1, who, ok, want)
		}
		if ok {
			releases = append(releases, release)
		}
	}
	for range eachMost {
		f("slow", true)
	}
	f("slow", false)
	for i := range most - eachMost - 1 {
		f(strconv.Itoa(i/eachMost), true)
	}
	f("last", true)
	f("other", false)
	for _, release := range releases {
		release()
	}
	if s.InFlight() != 0 || len(s.tenants) != 0 {
		t.Errorf("got %d slots taken and %d tenants after all calls", s.InFlight(), len(s.tenants))
	}
}
