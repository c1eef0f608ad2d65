package codec

import (
	"context"
	"fmt"
	"time"
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

// PacerKey is the context key of a review's Pacer. Without a Pacer, loops only check whether the
// context has ended.
type PacerKey struct{}

// A Pacer makes loops wait while other reviews have precedence.
type Pacer interface {
	// Continue returns when the loop may continue. If ctx ends, it returns the error of ctx. Only
	// the goroutine of the review calls it.
	Continue(ctx context.Context) error
	// Begin is called before work on so many bytes that does not call Continue. It returns when the
	// work may begin. If ctx ends, it returns the error of ctx.
	Begin(ctx context.Context, bytes int) error
}

// DecodedByteTakes is how long a byte takes of a long value that is decoded into Go types, with what plugins do
// with the result: the worst Pod took PodSecurityPolicy 0.83 s for 3.4 MB, and the worst claim NodeRestriction
// 1.4 s for two of 3.2 MB. Usual ones take a fifth of it.
const DecodedByteTakes = 250 * time.Nanosecond

// pacedBytes is up to which length a value is decoded without asking the Pacer. It takes 1 ms, and
// with what plugins do with the result 4 ms at most: of Pods of 3 MB, that took 0.83 s.
const pacedBytes = 16 << 10

// isInterrupted reports whether a loop must stop at its nth element, because the context
// has ended.
func (o *Object) isInterrupted(n int) bool { return n%checkEach == checkEach-1 && o.hasEnded() }

func (o *Object) hasEnded() bool {
	if o.ctx == nil {
		return false
	}
	if pacer := o.pacer(); pacer != nil {
		return o.ended(pacer.Continue(o.ctx))
	}
	return o.ended(o.ctx.Err())
}

// mayBegin reports whether work on so many bytes may begin, which does not look at the context. If the context has
// ended, or may end before the work does, Err returns the error.
func (o *Object) mayBegin(bytes int) bool {
	if bytes <= pacedBytes || o.ctx == nil {
		return true
	}
	if pacer := o.pacer(); pacer != nil && o.ended(pacer.Begin(o.ctx, bytes)) {
		return false
	}
	if deadline, ok := o.ctx.Deadline(); ok && time.Until(deadline) < time.Duration(bytes)*DecodedByteTakes {
		return !o.ended(context.DeadlineExceeded)
	}
	return true
}

func (o *Object) pacer() Pacer {
	pacer, _ := o.ctx.Value(PacerKey{}).(Pacer)
	return pacer
}

// ended records the error of the context, and reports whether there is one.
func (o *Object) ended(err error) bool {
	if err != nil && o.err == nil {
		o.err = &ContextError{err}
	}
	return err != nil
}
