package wake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fastadmit/fastadmit/internal/wake"
)

// TestSignal measures how long Wait waits, with a clock of the test's own.
func TestSignal(t *testing.T) {
	const limit, gather = time.Minute, time.Second
	f := func(what string, send func(wake.Signal, context.CancelFunc), want time.Duration, goesOn bool) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := wake.NewSignal()
			start := time.Now()
			send(s, cancel)
			if got := s.Wait(ctx, limit, gather); got != goesOn || time.Since(start) != want {
				t.Errorf("%s: got %v after %s, want %v after %s", what, got, time.Since(start), goesOn, want)
			}
		})
	}
	after := func(d time.Duration, do func()) { time.AfterFunc(d, do) }
	f("no signal", func(wake.Signal, context.CancelFunc) {}, limit+gather, true)
	f("a signal before", func(s wake.Signal, _ context.CancelFunc) { s.Send() }, gather, true)
	f("a signal meanwhile", func(s wake.Signal, _ context.CancelFunc) { after(2*time.Second, s.Send) }, 2*time.Second+gather, true)
	f("the end before", func(_ wake.Signal, cancel context.CancelFunc) { cancel() }, 0, false)
	f("the end of waiting", func(_ wake.Signal, cancel context.CancelFunc) { after(2*time.Second, cancel) }, 2*time.Second, false)
	f("the end of gathering", func(s wake.Signal, cancel context.CancelFunc) { s.Send(); after(gather/2, cancel) }, gather/2, false)
}

// TestSent sends more signals than are received: they count as one.
func TestSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wake.NewSignal()
		for range 3 {
			s.Send()
		}
		for i, want := range []time.Duration{0, time.Minute} {
			start := time.Now()
			if !s.Wait(t.Context(), time.Minute, 0) || time.Since(start) != want {
				t.Errorf("Wait %d: got %s, want %s", i, time.Since(start), want)
			}
		}
	})
}
