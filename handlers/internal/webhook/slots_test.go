package webhook

import (
	"context"
	"strconv"
	"testing"
)

// TestSlots has as many calls as one tenant may have, one fewer and one more, and then as many
// as all may have.
func TestSlots(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s := newSlots()
	var releases []func()
	f := func(who string, want bool) {
		t.Helper()
		ctx := t.Context()
		if !want {
			ctx = ended
		}
		release, ok := s.take(ctx, user(who).key)
		if ok != want {
			t.Fatalf("call %d, of %s: got %v, want %v", len(releases)+1, who, ok, want)
		}
		if ok {
			releases = append(releases, release)
		}
	}
	for range tenantCallsMax {
		f("slow", true)
	}
	f("slow", false)
	for i := range callsMax - tenantCallsMax - 1 {
		f(strconv.Itoa(i/tenantCallsMax), true)
	}
	f("last", true)
	f("other", false)
	for _, release := range releases {
		release()
	}
	if len(s.all) != 0 || len(s.tenants) != 0 {
		t.Errorf("got %d slots taken and %d tenants after all calls", len(s.all), len(s.tenants))
	}
}
