package codec_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fastadmit/fastadmit/codec"
)

// A counted context ends after a number of calls of Err.
type counted struct {
	context.Context
	left, asked int
}

func (c *counted) Err() error {
	if c.asked++; c.asked > c.left {
		return context.DeadlineExceeded
	}
	return nil
}

// TestSetContext tests that loops end when the context does, in lists that have nodes
// and in lists that have none.
func TestSetContext(t *testing.T) {
	const each = 1024
	f := func(n, left int, edited, wantEnd bool) {
		t.Helper()
		r := codec.Acquire()
		defer r.Release()
		body := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",`+
			`"object":{"list":[0%s],"members":{"a":0%s}},"oldObject":{"list":[0%s]}}}`,
			strings.Repeat(",1", n-1), strings.Repeat(`,"b":1`, n-1), strings.Repeat(",1", n-1))
		if err := r.Decode([]byte(body)); err != nil {
			t.Fatal(err)
		}
		if edited {
			r.Object.AppendString("x", "list")
			r.Object.Remove("list", "0")
		}
		loops := []func() int{
			func() (seen int) {
				for range r.Object.Get("list").Elements() {
					seen++
				}
				return seen
			},
			func() (seen int) {
				for range r.Object.Get("members").Members() {
					seen++
				}
				return seen
			},
			func() (seen int) {
				for range r.OldObject.Get("list").Elements() {
					seen++
				}
				return seen
			},
			func() (seen int) {
				for it := r.Object.Get("list").Iterator(); it.Next(); seen++ {
				}
				return seen
			},
			func() (seen int) {
				for it := r.Object.Get("members").Iterator(); it.Next(); seen++ {
				}
				return seen
			},
		}
		for i, loop := range loops {
			r.Checkpoint()
			ctx := &counted{Context: t.Context(), left: left}
			r.SetContext(ctx)
			seen := loop()
			fault, ended := errors.AsType[*codec.ContextError](r.Err())
			if ended != wantEnd || ended && !errors.Is(fault, context.DeadlineExceeded) {
				t.Errorf("loop %d of %d, asked %d times: got %v", i, n, ctx.asked, r.Err())
			}
			if want := n; ended && seen >= (left+1)*each || !ended && seen != want {
				t.Errorf("loop %d of %d: saw %d", i, n, seen)
			}
			r.Rollback()
			if r.Err() != nil {
				t.Errorf("an end is not forgotten: %v", r.Err())
			}
		}
		r.ClearContext()
		if seen := loops[0](); seen != n {
			t.Errorf("without a context: saw %d of %d", seen, n)
		}
	}
	for _, edited := range []bool{false, true} {
		f(1, 0, edited, false)
		f(each-1, 0, edited, false)
		f(each, 0, edited, true)
		f(each+1, 0, edited, true)
		f(each+1, 1, edited, false)
		f(10*each, 3, edited, true)
		f(10*each, 10, edited, false)
	}
}

// A pacer counts the calls of Continue, and the bytes of work that Begin announces.
type pacer struct{ asked, bytes int }

func (p *pacer) Begin(ctx context.Context, bytes int) error {
	p.bytes = bytes
	return ctx.Err()
}

func (p *pacer) Continue(ctx context.Context) error {
	p.asked++
	return ctx.Err()
}

// TestPacer checks that loops call the Pacer of their context instead of the context's Err.
func TestPacer(t *testing.T) {
	r := codec.Acquire()
	defer r.Release()
	const n = 10_000
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":{"l":[0` +
		strings.Repeat(",1", n-1) + `]}}}`
	if err := r.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	for _, left := range []int{100, 2} {
		p := new(pacer)
		r.SetContext(&counted{Context: context.WithValue(t.Context(), codec.PacerKey{}, p), left: left})
		seen := 0
		for range r.Object.Get("l").Elements() {
			seen++
		}
		if want := min(n/1024, left+1); p.asked != want || (r.Err() != nil) != (left == 2) || (seen == n) != (left == 100) {
			t.Errorf("%d left: asked %d times, saw %d, got %v, want %d times", left, p.asked, seen, r.Err(), want)
		}
	}
}

// TestPacerDecodes checks that decoding a long value calls the Pacer.
func TestPacerDecodes(t *testing.T) {
	const most = 16 << 10
	for _, n := range []int{most - 1, most, most + 1} {
		for left := range 2 {
			r := codec.Acquire()
			defer r.Release()
			body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":{"a":"` +
				strings.Repeat("x", n-2) + `","b":1}}}`
			if err := r.Decode([]byte(body)); err != nil {
				t.Fatal(err)
			}
			p := new(pacer)
			r.SetContext(&counted{Context: context.WithValue(t.Context(), codec.PacerKey{}, p), left: left})
			want := 0
			if n > most {
				want = n
			}
			fits := r.Object.Get("a").FitsDecoded()
			if !r.Object.Get("b").FitsDecoded() && r.Err() == nil || p.bytes != want || fits != (want == 0 || left > 0) ||
				(r.Err() == nil) != fits {
				t.Errorf("%d bytes, %d left: fits %v, asked for %d bytes, got %v", n, left, fits, p.bytes, r.Err())
			}
		}
	}
}

// TestDecodedInTime does not begin to decode a long value which may take longer than the context lasts: nothing looks
// at the context meanwhile.
func TestDecodedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1 << 20
		for _, left := range []time.Duration{-1, 0, 1} {
			r := codec.Acquire()
			defer r.Release()
			body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":{"a":"` +
				strings.Repeat("x", n-2) + `","b":1}}}`
			if err := r.Decode([]byte(body)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), n*codec.DecodedByteTakes+left)
			defer cancel()
			r.SetContext(ctx)
			fits := r.Object.Get("a").FitsDecoded()
			if fits != (left >= 0) || !fits && !errors.Is(r.Err(), context.DeadlineExceeded) || fits && r.Err() != nil {
				t.Errorf("%d ns too many: fits %v, got %v", left, fits, r.Err())
			}
		}
	})
}
