package codec

import (
	"context"
	"fmt"
)

// checkEach is the number of elements or members after which a loop checks the context:
// reading so many takes some tenths of a millisecond. Lists of ordinary objects are
// shorter, so they cost nothing.
const checkEach = 1024

// SetContext makes loops over elements and members of r's objects stop when ctx
// ends. Err then returns a *ContextError.
func (r *Review) SetContext(ctx context.Context) {
	r.Object.ctx, r.OldObject.ctx, r.Options.ctx, r.envelope.ctx = ctx, ctx, ctx, ctx
}

// ClearContext undoes SetContext: loops run to their end.
func (r *Review) ClearContext() {
	r.Object.ctx, r.OldObject.ctx, r.Options.ctx, r.envelope.ctx = nil, nil, nil, nil
}

// A ContextError says that the context of the review ended while an object was
// being read. The result of the read is incomplete and must not be used for a
// decision.
type ContextError struct{ Err error }

func (e *ContextError) Error() string {
	return fmt.Sprintf("reading the object was interrupted: %v", e.Err)
}

func (e *ContextError) Unwrap() error { return e.Err }

// PacerKey is the context key of a review's Pacer. Without one, loops only look whether the
// context has ended.
type PacerKey struct{}

// A Pacer lets loops wait while the work for others has precedence.
type Pacer interface {
	// Continue returns when the loop may continue, or the error of ctx if that has ended. Only the
	// review's goroutine calls it.
	Continue(ctx context.Context) error
}

// isInterrupted reports whether a loop must stop at its nth element, because the context
// has ended.
func (o *Object) isInterrupted(n int) bool { return n%checkEach == checkEach-1 && o.hasEnded() }

func (o *Object) hasEnded() bool {
	if o.ctx == nil {
		return false
	}
	var err error
	if pacer, ok := o.ctx.Value(PacerKey{}).(Pacer); ok {
		err = pacer.Continue(o.ctx)
	} else {
		err = o.ctx.Err()
	}
	if err != nil && o.err == nil {
		o.err = &ContextError{err}
	}
	return err != nil
}
