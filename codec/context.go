package codec

import (
	"context"
	"fmt"
)

// checkEach is after how many elements or members a loop over them looks at the
// context: reading so many takes some tenths of a millisecond. Ordinary objects
// have no list that long, and cost nothing.
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

// isOver reports whether a loop that has come to its nth element is to end,
// because the context has ended.
func (o *Object) isOver(n int) bool { return n%checkEach == checkEach-1 && o.hasEnded() }

func (o *Object) hasEnded() bool {
	if o.ctx == nil {
		return false
	}
	err := o.ctx.Err()
	if err != nil && o.err == nil {
		o.err = &ContextError{err}
	}
	return err != nil
}
