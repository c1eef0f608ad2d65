package server

import (
	"math"
	"sync/atomic"
	"time"
)

// processStart is when the process started, less a second. The times of a connState count
// from it. Both are of the monotonic clock, so setting the system's clock neither
// ends calls nor prolongs them.
var processStart = time.Now().Add(-time.Second)

// sinceStart returns a time as a connState stores it, always above 0.
func sinceStart(t time.Time) int64 { return int64(t.Sub(processStart)) }

// A connState says whether a connection is idle, and since when, or carries a call, and
// until when. Its own goroutine and others change it with atomic operations; whoever changes
// it may write the answer.
//
// It is a time in nanoseconds after processStart: the deadline of the call, or, negated,
// when the last one began, 0 for never. Below it are two values for a connection
// that somebody else than its own goroutine has ended.
type connState struct {
	value     atomic.Int64
	idleValue int64 // what value is while no call goes on; of the connection's goroutine
}

const (
	// taken is a connection that was closed, or answered and closed: its own
	// goroutine must not write any more.
	taken = math.MinInt64
	// dropped is one whose request was coming for too long: its own goroutine
	// refuses it.
	dropped = math.MinInt64 + 1
)

// begin says that the connection carries a call. It fails if the connection was ended.
func (h *connState) begin(deadline time.Time) bool {
	return h.value.CompareAndSwap(h.idleValue, sinceStart(deadline))
}

// end says that a call that began at start is answered. It fails if somebody
// else has answered it.
func (h *connState) end(start, deadline time.Time) bool {
	h.idleValue = -sinceStart(start)
	return h.value.CompareAndSwap(sinceStart(deadline), h.idleValue)
}

// take ends a connection that carries no call.
func (h *connState) take() bool {
	now := h.value.Load()
	return now <= 0 && now != taken && h.value.CompareAndSwap(now, taken)
}

// drop ends the arrival of a request.
func (h *connState) drop() bool {
	now := h.value.Load()
	return now <= 0 && now > dropped && h.value.CompareAndSwap(now, dropped)
}

// takeCall takes the call, whichever it is, from the connection's
// goroutine.
func (h *connState) takeCall() bool {
	now := h.value.Load()
	return now > 0 && h.value.CompareAndSwap(now, taken)
}

// takeOverdue takes a call that should have been over at that time.
func (h *connState) takeOverdue(at time.Time) bool {
	now := h.value.Load()
	return now > 0 && now < sinceStart(at) && h.value.CompareAndSwap(now, taken)
}

// deadline returns that of the call.
func (h *connState) deadline() (time.Time, bool) {
	now := h.value.Load()
	return processStart.Add(time.Duration(now)), now > 0
}

func (h *connState) inCall() bool    { return h.value.Load() > 0 }
func (h *connState) isTaken() bool   { return h.value.Load() == taken }
func (h *connState) isDropped() bool { return h.value.Load() == dropped }

// lastUsed says when the last call began, 0 for never. A call that goes on is the
// last of all, and so is one that was ended.
func (h *connState) lastUsed() int64 {
	if now := h.value.Load(); now <= 0 && now > dropped {
		return -now
	}
	return math.MaxInt64
}
