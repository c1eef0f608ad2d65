// Package httpbound bounds the answers of other servers over HTTP: how long they are, and how much of the
// memory of a review they take.
package httpbound

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/fastadmit/fastadmit/codec"
)

// ErrorBytesMax is how many bytes of an answer with an HTTP error are read. Messages repeat it, and the
// user gets at most 32 KiB of a message.
const ErrorBytesMax = 64 << 10

// Limits are those of the answers to the requests of a client.
type Limits struct {
	// BytesMax is the maximum number of decompressed bytes.
	BytesMax int64
	// MemoryOfByte is how many bytes of memory a byte of an answer takes while it is read.
	MemoryOfByte int64
	// FreeBytes is the length of an answer up to which it borrows no memory.
	FreeBytes int64
	// Growth is the factor by which the loan of an answer without Content-Length grows each time.
	Growth int64
	// IsStream reports whether the answer to a request is read one part at a time, by a reader that
	// bounds the parts. Only errors are bounded then. It may be nil.
	IsStream func(request *http.Request) bool
}

type loanKey struct{}

// With returns a context in which the answers to requests take their memory from loan.
func With(ctx context.Context, loan *codec.Loan) context.Context {
	return context.WithValue(ctx, loanKey{}, loan)
}

// Bound returns next with bounded answers: a longer answer is an error, and one with an HTTP error is cut
// after ErrorBytesMax. If the context of a request has a loan, the answer takes its memory from it.
func Bound(next http.RoundTripper, limits *Limits) http.RoundTripper {
	return &transport{next, limits}
}

type transport struct {
	http.RoundTripper
	limits *Limits
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if response == nil || response.Body == nil || response.StatusCode == http.StatusSwitchingProtocols {
		return response, err
	}
	isError := response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent
	if !isError && t.limits.IsStream != nil && t.limits.IsStream(request) {
		return response, err
	}
	l := t.limits
	b := &body{ReadCloser: response.Body, ctx: request.Context(), limits: l, left: l.BytesMax, most: l.BytesMax, paid: l.FreeBytes}
	b.loan, _ = b.ctx.Value(loanKey{}).(*codec.Loan)
	if response.ContentLength > b.paid {
		b.announced = response.ContentLength
	}
	if isError {
		b.left, b.most, b.cuts = ErrorBytesMax, ErrorBytesMax, true
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
	limits     *Limits
	loan       *codec.Loan // nil for none
	left, most int64       // bytes that may still be read, and in all
	read, paid int64       // bytes that were read, and for which there is memory
	announced  int64       // the Content-Length; 0 if it is unknown or at most FreeBytes
	cuts       bool        // a longer answer is cut, instead of being an error
}

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
	next := min(b.limits.Growth*b.paid, b.most+1)
	if b.announced > b.paid {
		next = min(b.announced, b.most) + 1 // one more, so that the last Read can find the end
	}
	if b.loan != nil {
		if err := b.loan.Grow(b.ctx, next*b.limits.MemoryOfByte); err != nil {
			return err
		}
	}
	b.paid = next
	return nil
}
