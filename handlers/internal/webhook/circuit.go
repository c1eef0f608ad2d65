package webhook

import (
	"errors"
	"sync"
	"time"
)

// circuitPauseMax is the maximum pause. Webhooks recover sooner, and operators should not
// have to wait longer for them.
const circuitPauseMax = 10 * time.Minute

var errCircuitOpen = errors.New("failed to call webhook: it is not called for some time, because previous calls have failed")

// A circuit allows calls until too many consecutive ones have failed. Then it allows one
// call after each pause.
type circuit struct {
	settings *Circuit // nil to allow all calls

	mu       sync.Mutex
	failures int
	until    time.Time // open until then; zero if it is closed
}

// allows reports whether a call may be made. While the circuit is open, it allows one call
// after each pause.
func (c *circuit) allows(now time.Time) bool {
	if c.settings == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.until.IsZero() {
		return true
	}
	if now.Before(c.until) {
		return false
	}
	c.until = now.Add(c.settings.Pause.Duration)
	return true
}

// ended records the result of an allowed call.
func (c *circuit) ended(failed bool, now time.Time) {
	if c.settings == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !failed {
		c.failures, c.until = 0, time.Time{}
		return
	}
	if c.failures++; c.failures >= c.settings.Failures {
		c.until = now.Add(c.settings.Pause.Duration)
	}
}

// isOpen reports whether the circuit is open.
func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.until.IsZero()
}
