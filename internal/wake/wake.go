// Package wake wakes goroutines that work in passes: after a change, or after a while.
package wake

import (
	"context"
	"time"
)

// A Signal wakes one goroutine. Any number of goroutines may call Send. Signals that were
// sent and not received are one signal: one pass handles all changes before it.
type Signal chan struct{}

// NewSignal returns a Signal that nobody has sent yet.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the receiver, now or when it waits next. It never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // the receiver has not yet received the last one
	}
}

// Wait waits for Send, but no longer than limit. Then it waits for gather, because changes
// come in groups, and what they send meanwhile is received by the next Wait at the latest. It
// reports whether ctx goes on; if ctx ends, Wait returns at once.
func (s Signal) Wait(ctx context.Context, limit, gather time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-s:
	case <-timer.C:
	case <-ctx.Done():
	}
	return Sleep(ctx, gather)
}

// Sleep waits for d. It reports whether ctx goes on; if ctx ends, Sleep returns at once.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d > 0 && ctx.Err() == nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err() == nil
}
