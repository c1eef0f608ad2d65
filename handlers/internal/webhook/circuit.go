package webhook

import (
	"errors"
	"sync"
	"time"
)

// circuitPauseMax is how long a webhook may be left alone. It comes back in the middle of
// that, and nobody waits for it longer.
const circuitPauseMax = 10 * time.Minute

var errCircuitOpen = errors.New("failed to call webhook: it is not called for some time, because previous calls have failed")

// A circuit lets calls through until too many of them have failed one after the other,
// and then one at a time, after a pause.
type circuit struct {
	settings *Circuit // nil for one that lets all through

	mu       sync.Mutex
	failures int
	until    time.Time // open until then; zero while it is closed
}

// allows reports whether a call may be made. Of those after a pause, it is one for each
// pause until one has succeeded.
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

// ended notes how a call has ended that was let through.
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

// isOpen reports whether calls are not made.
func (c *circuit) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.until.IsZero()
}
