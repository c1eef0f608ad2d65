package httpbound

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
	url         string
}

// freeBytes are free in the tests.
const freeBytes = 4 << 10

func isStream(request *http.Request) bool { return request.URL.Query().Has("stream") }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	r := &http.Response{StatusCode: a.code, Body: io.NopCloser(bytes.NewReader(make([]byte, a.bytes))), ContentLength: -1}
	if a.announces {
		r.ContentLength = int64(a.bytes)
	}
	return r, nil
}

func read(t *testing.T, a answering, bytesMax int64, l *codec.Loan) (int, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(With(t.Context(), l), http.MethodGet, a.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	limits := &Limits{BytesMax: bytesMax, MemoryOfByte: 4, FreeBytes: freeBytes, Growth: 4, IsStream: isStream}
	response, err := Bound(a, limits).RoundTrip(request)
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
			got, err := read(t, answering{n, code, announces, ""}, 100_000, new(codec.Loan))
			if err != nil && err.Error() != message || err == nil && (got != want || message != "") {
				t.Errorf("%d bytes, code %d: got %d, %v, want %d, %s", n, code, got, err, want, message)
			}
		}
	}
	f(0, 200, 0, "")
	f(99_999, 200, 99_999, "")
	f(100_000, 200, 100_000, "")
	f(100_001, 200, 0, "the answer has more than 100000 bytes")
	f(ErrorBytesMax-1, 500, ErrorBytesMax-1, "")
	f(ErrorBytesMax, 500, ErrorBytesMax, "")
	f(ErrorBytesMax+1, 500, ErrorBytesMax, "")
}

// TestLoan checks how much memory is borrowed for answers.
func TestLoan(t *testing.T) {
	f := func(a answering, left int64, fits bool, want ...string) {
		t.Helper()
		lender := &lender{left: left}
		loan := codec.NewLoan(context.WithValue(t.Context(), codec.LenderKey{}, lender))
		_, err := read(t, a, 100_000, loan)
		if strings.Join(lender.log, " ") != strings.Join(want, " ") || fits != (err == nil) || !fits && !errors.Is(err, codec.ErrNoMemory) {
			t.Errorf("%+v: got %q, %v, want %q", a, lender.log, err, want)
		}
		if loan.Return(); lender.left != left {
			t.Errorf("%+v: got %d bytes back, want %d", a, lender.left, left)
		}
	}
	const plenty = 1 << 30
	f(answering{freeBytes - 1, 200, false, ""}, 0, true)
	f(answering{freeBytes - 1, 200, true, ""}, 0, true)
	f(answering{freeBytes, 200, true, ""}, plenty, true, fmt.Sprint(16<<10*4, true)) // the last Read, at the end, needs memory, too
	f(answering{freeBytes + 1, 200, true, ""}, plenty, true, fmt.Sprint((freeBytes+2)*4, true))
	f(answering{50_000, 200, true, ""}, plenty, true, fmt.Sprint(50_001*4, true))
	f(answering{50_000, 200, true, ""}, 50_001*4-1, false, fmt.Sprint(50_001*4, true))
	f(answering{50_000, 200, false, ""}, plenty, true, fmt.Sprint(16<<10*4, true), fmt.Sprint(48<<10*4, false))
	f(answering{50_000, 200, false, ""}, 100_000, false, fmt.Sprint(16<<10*4, true), fmt.Sprint(48<<10*4, false))
	f(answering{5000, 500, false, ""}, plenty, true, fmt.Sprint(16<<10*4, true))
}

// TestStream reads answers that their reader bounds. Errors are cut nevertheless.
func TestStream(t *testing.T) {
	f := func(n, code, want int) {
		t.Helper()
		lender := &lender{}
		loan := codec.NewLoan(context.WithValue(t.Context(), codec.LenderKey{}, lender))
		got, err := read(t, answering{n, code, false, "?stream"}, 1000, loan)
		if err != nil || got != want || code == 200 && lender.log != nil {
			t.Errorf("%d bytes, code %d: got %d, %v, borrowed %q", n, code, got, err, lender.log)
		}
	}
	f(100_000, 200, 100_000)
	f(freeBytes-1, 500, freeBytes-1)
}
