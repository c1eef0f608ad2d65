package answers

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// memoryOfByte is what an answer takes in memory for each of its bytes: client-go keeps twice
	// its length and a quarter while it reads it, and then there are what is decoded of it, and
	// that as Go values.
	memoryOfByte = 4

	// freeBytes is up to which length an answer borrows no memory. Most have less than 1 KB. 200
	// calls of a webhook take 3 MiB then, as much as their connections do in a fifth.
	freeBytes = 4 << 10

	// errorBytesMax is how much is read of an answer with an HTTP error. Messages repeat it, and
	// 32 KiB of a message reach the user.
	errorBytesMax = 64 << 10
)

// A Loan is memory that answers to the calls for a review take, lent from that of the reviews.
// Only one goroutine at a time may use it. It may outlive the review.
type Loan struct{ codec.Loan }

// NewLoan returns an empty Loan for the review whose context is ctx.
func NewLoan(ctx context.Context) *Loan { return &Loan{*codec.NewLoan(ctx)} }

// Add makes the Loan larger by so many bytes, for what is made of the answer. The first bytes are
// free, as those of an answer.
func (l *Loan) Add(ctx context.Context, bytes int64) error {
	if bytes <= freeBytes*memoryOfByte {
		return nil
	}
	return l.Grow(ctx, l.Bytes()+bytes)
}

// Keep borrows so many bytes until the end of the review, for a part of the answer that stays in
// its object. The first bytes are free.
func (l *Loan) Keep(bytes int64) error {
	if bytes <= freeBytes*memoryOfByte {
		return nil
	}
	return l.Loan.Keep(bytes)
}

type loanKey struct{}

// With returns a context in which the answers to requests take their memory from l.
func With(ctx context.Context, l *Loan) context.Context { return context.WithValue(ctx, loanKey{}, l) }

// Bound makes the answers that next gets have at most so many bytes, decompressed, and take their
// memory from the Loan of the context of the request, if there is one. A longer answer is an
// error; one with an HTTP error is cut after 64 KiB.
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
	left, most int64
	read, paid int64 // bytes, and for how many there is memory
	announced  int64 // bytes by Content-Length, 0 if it does not matter
	cuts       bool  // a longer one ends, instead of being an error
}

// growth is how many times more memory each loan of an answer has whose length is not known.
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

// pay borrows memory for what is to be read next.
func (b *body) pay() error {
	if b.read < b.paid {
		return nil
	}
	next := min(growth*b.paid, b.most+1)
	if b.announced > b.paid {
		next = min(b.announced, b.most) + 1 // for the end, which is read too
	}
	if b.loan != nil {
		if err := b.loan.Grow(b.ctx, next*memoryOfByte); err != nil {
			return err
		}
	}
	b.paid = next
	return nil
}
