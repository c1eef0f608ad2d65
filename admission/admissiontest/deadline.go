package admissiontest

import (
	"context"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// WithDeadline returns a context whose Deadline is so far ahead, and which ends a minute
// later. Code that stops in time, by Deadline, finds it alive on a machine of any speed. Code
// that waits for the end of the context sees its error.
func WithDeadline(t testing.TB, left time.Duration) context.Context {
	ctx, cancel := lateContext(t.Context(), left)
	t.Cleanup(cancel)
	return ctx
}

// WithTime returns a context for a chain, in which a plugin that Hurried returned has a context
// of WithDeadline. The chain has none: it would fail a plugin whose goroutine a busy machine runs
// after the deadline.
func WithTime(ctx context.Context, left time.Duration) context.Context {
	return context.WithValue(ctx, timeKey{}, left)
}

// Hurried returns a plugin with the deadlines of WithTime.
func Hurried(plugin admission.Plugin) admission.Plugin {
	newHandler := plugin.New
	plugin.New = func(setup admission.Setup) (admission.Handler, error) {
		h, err := newHandler(setup)
		h.Admit, h.Validate = hurried(h.Admit), hurried(h.Validate)
		return h, err
	}
	return plugin
}

type handler = func(context.Context, *codec.Review) admission.Result

func hurried(f handler) handler {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, review *codec.Review) admission.Result {
		left, ok := ctx.Value(timeKey{}).(time.Duration)
		if !ok {
			return f(ctx, review)
		}
		ctx, cancel := lateContext(ctx, left)
		defer cancel()
		return f(ctx, review)
	}
}

type timeKey struct{}

type deadlineContext struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

func lateContext(ctx context.Context, left time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithTimeout(ctx, left+time.Minute)
	return deadlineContext{late, time.Now().Add(left)}, cancel
}
