package answers

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/fastadmit/fastadmit/codec"
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

	// errorBytesMax is how many bytes of an answer with an HTTP error are read. Messages repeat it,
	// and the user gets at most 32 KiB of a message.
	errorBytesMax = 64 << 10
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

type loanKey struct{}

// With returns a context in which the answers to requests take their memory from l.
func With(ctx context.Context, l *Loan) context.Context { return context.WithValue(ctx, loanKey{}, l) }

// Bound returns next with bounded answers: an answer with more than bytesMax decompressed bytes is an
// error, and one with an HTTP error is cut after 64 KiB. If the context of a request has a Loan, the
// answer takes its memory from it.
func Bound(next http.RoundTripper, bytesMax int64) http.RoundTripper {
	return &transport{next, bytesMax}
}

type transport struct {
	http.RoundTripper
	bytesMax int64
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if response == nil || response.Body == nil {
		return response, err
	}
	b := &body{ReadCloser: response.Body, ctx: request.Context(), left: t.bytesMax, most: t.bytesMax, paid: freeBytes}
	b.loan, _ = b.ctx.Value(loanKey{}).(*Loan)
	if response.ContentLength > b.paid {
		b.announced = response.ContentLength
	}
	if response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent {
		b.left, b.most, b.cuts = errorBytesMax, errorBytesMax, true
	}
	response.Body = b
	return response, err
}

// WrappedRoundTripper returns the inner transport, for client-go.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// body is the body of an answer.
type body struct {
	io.ReadCloser
	ctx        context.Context
	loan       *Loan // nil for none
	left, most int64 // bytes that may still be read, and in all
	read, paid int64 // bytes that were read, and for which there is memory
	announced  int64 // the Content-Length; 0 if it is unknown or at most freeBytes
	cuts       bool  // a longer answer is cut, instead of being an error
}

// growth is the factor by which the loan of an answer without Content-Length grows each time.
const growth = 4

// Read implements io.Reader.
func (b *body) Read(p []byte) (n int, err error) {
	if err := b.pay(); err != nil {
		return 0, err
	}
	n, err = b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1, b.paid-b.read)])
	b.read += int64(n)
	if b.left -= int64(n); b.left < 0 && b.cuts {
		return n - 1, io.EOF
	} else if b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", b.most)
	}
	return n, err
}

// pay borrows memory for the next read.
func (b *body) pay() error {
	if b.read < b.paid {
		return nil
	}
	next := min(growth*b.paid, b.most+1)
	if b.announced > b.paid {
		next = min(b.announced, b.most) + 1 // one more, so that the last Read can find the end
	}
	if b.loan != nil {
		if err := b.loan.Grow(b.ctx, next*memoryOfByte); err != nil {
			return err
		}
	}
	b.paid = next
	return nil
}
