package answers

import (
	"context"
	"net/http"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/httpbound"
)

const (
	// memoryOfByte is how many bytes of memory a byte of an answer takes. While client-go reads an
	// answer, it holds 2.25 times its length. Then there are the members that are decoded, as JSON
	// and as Go values.
	memoryOfByte = 4

	// freeBytes is the length of an answer up to which it borrows no memory. Most have less than
	// 1 KB. The answers to 200 calls of a webhook take at most 3 MiB, a fifth of what their
	// connections take.
	freeBytes = 4 << 10

	// growth is the factor by which the loan of an answer without Content-Length grows each time.
	growth = 4
)

// A Loan is memory for the answers to the calls for a review. It counts in the memory of all
// reviews. Only one goroutine at a time may use it. It may outlive the review.
type Loan struct{ codec.Loan }

// NewLoan returns an empty Loan for the review whose context is ctx.
func NewLoan(ctx context.Context) *Loan { return &Loan{*codec.NewLoan(ctx)} }

// Add makes the Loan larger by so many bytes, for data that is made from the answer. It borrows
// nothing for a small number of bytes, as for a short answer.
func (l *Loan) Add(ctx context.Context, bytes int64) error {
	if bytes <= freeBytes*memoryOfByte {
		return nil
	}
	return l.Grow(ctx, l.Bytes()+bytes)
}

// Keep borrows so many bytes until the end of the review, for a part of the answer that becomes
// part of the review's object. It borrows nothing for a small number of bytes.
func (l *Loan) Keep(bytes int64) error {
	if bytes <= freeBytes*memoryOfByte {
		return nil
	}
	return l.Loan.Keep(bytes)
}

// With returns a context in which the answers to requests take their memory from l.
func With(ctx context.Context, l *Loan) context.Context { return httpbound.With(ctx, &l.Loan) }

// Bound returns next with bounded answers: an answer with more than bytesMax decompressed bytes is an
// error. If the context of a request has a Loan, the answer takes its memory from it.
func Bound(next http.RoundTripper, bytesMax int64) http.RoundTripper {
	return httpbound.Bound(next, &httpbound.Limits{BytesMax: bytesMax, MemoryOfByte: memoryOfByte, FreeBytes: freeBytes, Growth: growth})
}
