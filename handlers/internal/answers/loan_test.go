package answers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// A lender has a limited number of bytes.
type lender struct {
	left, kept int64
	log        []string
}

func (l *lender) Lend(_ context.Context, n int64, wait bool) (giveBack func(), ok bool) {
	l.log = append(l.log, fmt.Sprint(n, wait))
	if n > l.left {
		return nil, false
	}
	l.left -= n
	return func() { l.left += n }, true
}

func (l *lender) Keep(n int64) bool {
	l.kept += n
	return l.kept <= l.left
}

// An answering is a server that answers with this number of bytes.
type answering struct {
	bytes, code int
	announces   bool
}

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	r := &http.Response{StatusCode: a.code, Body: io.NopCloser(bytes.NewReader(make([]byte, a.bytes))), ContentLength: -1}
	if a.announces {
		r.ContentLength = int64(a.bytes)
	}
	return r, nil
}

func read(t *testing.T, a answering, bytesMax int64, l *Loan) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(With(t.Context(), l), http.MethodGet, "http://a.example.com", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := Bound(a, bytesMax).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return len(text), err
}

// TestBound reads an answer with one byte less than the maximum, with the maximum, and with one byte more.
func TestBound(t *testing.T) {
	f := func(n, code, want int, message string) {
		t.Helper()
		for _, announces := range []bool{false, true} {
			got, err := read(t, answering{n, code, announces}, 100_000, new(Loan))
			if err != nil && err.Error() != message || err == nil && (got != want || message != "") {
				t.Errorf("%d bytes, code %d: got %d, %v, want %d, %s", n, code, got, err, want, message)
			}
		}
	}
	f(0, 200, 0, "")
	f(99_999, 200, 99_999, "")
	f(100_000, 200, 100_000, "")
	f(100_001, 200, 0, "the answer has more than 100000 bytes")
	f(errorBytesMax-1, 500, errorBytesMax-1, "")
	f(errorBytesMax, 500, errorBytesMax, "")
	f(errorBytesMax+1, 500, errorBytesMax, "")
}

// TestLoan checks how much memory is borrowed for answers.
func TestLoan(t *testing.T) {
	f := func(a answering, left int64, fits bool, want ...string) {
		t.Helper()
		lender := &lender{left: left}
		loan := NewLoan(context.WithValue(t.Context(), codec.LenderKey{}, lender))
		_, err := read(t, a, 100_000, loan)
		if strings.Join(lender.log, " ") != strings.Join(want, " ") || fits != (err == nil) || !fits && !errors.Is(err, codec.ErrNoMemory) {
			t.Errorf("%+v: got %q, %v, want %q", a, lender.log, err, want)
		}
		if loan.Return(); lender.left != left {
			t.Errorf("%+v: got %d bytes back, want %d", a, lender.left, left)
		}
	}
	const plenty = 1 << 30
	f(answering{freeBytes - 1, 200, false}, 0, true)
	f(answering{freeBytes - 1, 200, true}, 0, true)
	f(answering{freeBytes, 200, true}, plenty, true, fmt.Sprint(16<<10*4, true)) // the last Read, at the end, needs memory, too
	f(answering{freeBytes + 1, 200, true}, plenty, true, fmt.Sprint((freeBytes+2)*4, true))
	f(answering{50_000, 200, true}, plenty, true, fmt.Sprint(50_001*4, true))
	f(answering{50_000, 200, true}, 50_001*4-1, false, fmt.Sprint(50_001*4, true))
	f(answering{50_000, 200, false}, plenty, true, fmt.Sprint(16<<10*4, true), fmt.Sprint(48<<10*4, false))
	f(answering{50_000, 200, false}, 100_000, false, fmt.Sprint(16<<10*4, true), fmt.Sprint(48<<10*4, false))
	f(answering{5000, 500, false}, plenty, true, fmt.Sprint(16<<10*4, true))
}

// TestLoanMore borrows memory for data that is made from an answer.
func TestLoanMore(t *testing.T) {
	lender := &lender{left: 1 << 20}
	loan := NewLoan(context.WithValue(t.Context(), codec.LenderKey{}, lender))
	for _, bytes := range []int64{16 << 10, 16<<10 + 1, 100_000} {
		if err := loan.Add(t.Context(), bytes); err != nil {
			t.Error(err)
		}
	}
	if want := int64(1<<20 - 16<<10 - 1 - 100_000); lender.left != want {
		t.Errorf("got %d bytes left, want %d", lender.left, want)
	}
	if err := loan.Add(t.Context(), 1<<20); !errors.Is(err, codec.ErrNoMemory) {
		t.Errorf("got %v, want no memory", err)
	}
	if loan.Return(); lender.left != 1<<20 {
		t.Errorf("got %d bytes back", lender.left)
	}
	if err := loan.Keep(16 << 10); err != nil || lender.kept != 0 {
		t.Errorf("got %v, %d bytes kept, want none", err, lender.kept)
	}
	if err := loan.Keep(1 << 20); err != nil || lender.kept != 1<<20 {
		t.Errorf("got %v, %d bytes kept", err, lender.kept)
	}
	if err := loan.Keep(1 << 20); !errors.Is(err, codec.ErrNoMemory) {
		t.Errorf("got %v, want no memory", err)
	}
}
