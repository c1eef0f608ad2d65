package admissiontest

import (
	"context"
	"testing"
	"time"
)

// WithDeadline returns a context whose Deadline is so far ahead, and which ends a minute
// later. A plugin that stops in time, by Deadline, finds it alive on a machine of any speed. One
// that waits for the end of the context returns with its error.
func WithDeadline(t testing.TB, left time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), left+time.Minute)
	t.Cleanup(cancel)
	return deadlineContext{ctx, time.Now().Add(left)}
}

type deadlineContext struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }
