package admissiontest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
)

func TestWithDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, start := admissiontest.WithDeadline(t, time.Second), time.Now()
		if deadline, ok := ctx.Deadline(); !ok || deadline.Sub(start) != time.Second {
			t.Errorf("got %s, %v, want a second", deadline.Sub(start), ok)
		}
		earlier, cancel := context.WithDeadline(ctx, start.Add(900*time.Millisecond))
		defer cancel()
		if <-earlier.Done(); time.Since(start) != 900*time.Millisecond || ctx.Err() != nil {
			t.Errorf("got the end after %s and %v, want it after 900ms, and the other context alive", time.Since(start), ctx.Err())
		}
		if <-ctx.Done(); time.Since(start) != time.Second+time.Minute || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Errorf("got the end after %s with %v, want a minute more", time.Since(start), ctx.Err())
		}
	})
}
