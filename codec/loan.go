package codec

import "context"

// A Loan is memory that answers to the requests for a review take, lent by the MemoryLender of
// the review. Only one goroutine at a time may use it. It may outlive the review.
type Loan struct {
	lender MemoryLender // nil where memory is not bounded
	parts  []func()
	bytes  int64 // in all
}

// NewLoan returns an empty Loan for the review whose context is ctx.
func NewLoan(ctx context.Context) *Loan {
	l := new(Loan)
	l.lender, _ = ctx.Value(LenderKey{}).(MemoryLender)
	return l
}

// Bytes returns how much was lent in all.
func (l *Loan) Bytes() int64 { return l.bytes }

// Grow makes the Loan one of at least so many bytes. It waits for the first of them. If there is no
// memory, the error is ErrNoMemory.
func (l *Loan) Grow(ctx context.Context, bytes int64) error {
	more := bytes - l.bytes
	if l.lender == nil || more <= 0 {
		return nil
	}
	// Who has memory that others wait for does not wait: they would wait for each other.
	giveBack, ok := l.lender.Lend(ctx, more, len(l.parts) == 0)
	if !ok {
		return ErrNoMemory
	}
	l.parts = append(l.parts, giveBack)
	l.bytes = bytes
	return nil
}

// Keep borrows so many bytes until the end of the review. Only the review's goroutine may call
// it. If there is no memory, the error is ErrNoMemory.
func (l *Loan) Keep(bytes int64) error {
	if l.lender != nil && !l.lender.Keep(bytes) {
		return ErrNoMemory
	}
	return nil
}

// Return gives the memory back, except what was kept. What was read with it must not be used any
// more.
func (l *Loan) Return() {
	for _, giveBack := range l.parts {
		giveBack()
	}
	l.parts, l.bytes = nil, 0
}
