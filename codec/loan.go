package codec

import "context"

// A Loan is memory that the MemoryLender of a review lends to answers of other servers. Only one
// goroutine at a time may use it. It may outlive the review.
type Loan struct {
	lender MemoryLender // nil if memory is not bounded
	parts  []func()
	bytes  int64 // of all parts
}

// NewLoan returns an empty Loan for the review whose context is ctx.
func NewLoan(ctx context.Context) *Loan {
	l := new(Loan)
	l.lender, _ = ctx.Value(LenderKey{}).(MemoryLender)
	return l
}

// Bytes returns the number of lent bytes.
func (l *Loan) Bytes() int64 { return l.bytes }

// Grow makes the Loan at least so many bytes large. Only the first call that borrows memory waits for
// it. If there is not enough memory, the error is ErrNoMemory.
func (l *Loan) Grow(ctx context.Context, bytes int64) error {
	more := bytes - l.bytes
	if l.lender == nil || more <= 0 {
		return nil
	}
	// A Loan that already has memory does not wait for more: two such Loans could wait for each other.
	giveBack, ok := l.lender.Lend(ctx, more, len(l.parts) == 0)
	if !ok {
		return ErrNoMemory
	}
	l.parts = append(l.parts, giveBack)
	l.bytes = bytes
	return nil
}

// Keep borrows so many bytes until the end of the review. Only the goroutine of the review may call
// it. If there is not enough memory, the error is ErrNoMemory.
func (l *Loan) Keep(bytes int64) error {
	if l.lender != nil && !l.lender.Keep(bytes) {
		return ErrNoMemory
	}
	return nil
}

// Return gives back all memory except that of Keep. Data in the returned memory must not be used after
// that.
func (l *Loan) Return() {
	for _, giveBack := range l.parts {
		giveBack()
	}
	l.parts, l.bytes = nil, 0
}
