package server

import (
	"math"
	"sync/atomic"
	"time"
)

// processStart is when the process started, less a second. The times of a hand count
// from it. Both are of the monotonic clock, so setting the system's clock neither
// ends calls nor prolongs them.
var processStart = time.Now().Add(-time.Second)

// sinceStart returns a time as a hand stores it, always above 0.
func sinceStart(t time.Time) int64 { return int64(t.Sub(processStart)) }

// A hand says what is in hand of a connection: nothing, since when, or a call,
// until when. Who changes it has the right to answer.
//
// It is a time in nanoseconds after processStart: the deadline of the call, or, negated,
// when the last one began, 0 for never. Below it are two values for a connection
// that somebody else than its own goroutine has ended.
type connState struct {
	value     atomic.Int64
	idleValue int64 // what state is while nothing is in hand; of the connection's goroutine
}

const (
	// taken is a connection that was closed, or answered and closed: its own
	// goroutine must not write any more.
	taken = math.MinInt64
	// dropped is one whose request was coming for too long: its own goroutine
	// refuses it.
	dropped = math.MinInt64 + 1
)

// begin says that a call is in hand. It fails if the connection was ended.
func (h *connState) begin(deadline time.Time) bool {
	return h.value.CompareAndSwap(h.idleValue, sinceStart(deadline))
}

// end says that a call that began at start is answered. It fails if somebody
// else has answered it.
func (h *connState) end(start, deadline time.Time) bool {
	h.idleValue = -sinceStart(start)
	return h.value.CompareAndSwap(sinceStart(deadline), h.idleValue)
}

// take ends a connection that has no call in hand.
func (h *connState) take() bool {
	now := h.value.Load()
	return now <= 0 && now != taken && h.value.CompareAndSwap(now, taken)
}

// drop ends the arrival of a request.
func (h *connState) drop() bool {
	now := h.value.Load()
	return now <= 0 && now > dropped && h.value.CompareAndSwap(now, dropped)
}

// takeCall takes the call in hand, whichever it is, from the connection's
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

// deadline returns that of the call in hand.
func (h *connState) deadline() (time.Time, bool) {
	now := h.value.Load()
	return processStart.Add(time.Duration(now)), now > 0
}

func (h *connState) inCall() bool    { return h.value.Load() > 0 }
func (h *connState) isTaken() bool   { return h.value.Load() == taken }
func (h *connState) isDropped() bool { return h.value.Load() == dropped }

// lastUsed says when the last call began, 0 for never. A call in hand is the
// last of all, and so is one that was ended.
func (h *connState) lastUsed() int64 {
	if now := h.value.Load(); now <= 0 && now > dropped {
		return -now
	}
	return math.MaxInt64
}
