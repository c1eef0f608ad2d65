package server

import (
	"strings"
	"testing"
	"time"
)

// TestStateKeepsTheMonotonicClock stores the times of a call and of an idle connection. They
// must be compared by the monotonic clock: by the wall clock, calls would end when that is
// set.
func TestStateKeepsTheMonotonicClock(t *testing.T) {
	var h connState
	if _, inCall := h.deadline(); inCall || h.inCall() {
		t.Error("a new connection has a call in hand")
	}
	start := time.Now()
	deadline := start.Add(time.Minute)
	if !h.begin(deadline) {
		t.Fatal("a new connection cannot take a call")
	}
	got, inCall := h.deadline()
	if !inCall || !h.inCall() || !strings.Contains(got.String(), " m=+") || got.Sub(deadline) != 0 {
		t.Errorf("got deadline %s, %v, want %s with a reading of the monotonic clock", got, inCall, deadline)
	}
	if h.takeOverdue(deadline) {
		t.Error("a call was taken at its deadline, not after it")
	}
	if !h.end(start, deadline) {
		t.Fatal("the call in hand cannot be ended")
	}
	if got := h.lastUsed(); got != int64(start.Sub(processStart)) || got <= 0 {
		t.Errorf("got last use %d ns after the start, want %d", got, start.Sub(processStart))
	}
	deadline = time.Now()
	if !h.begin(deadline) || !h.takeOverdue(deadline.Add(1)) || !h.isTaken() {
		t.Error("a call was not taken after its deadline")
	}
}
