package admissiontest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// TestHurried tests a plugin that stops at its deadline, and one that runs until its context
// ends.
func TestHurried(t *testing.T) {
	f := func(ctx context.Context, stops bool, want time.Duration, failed bool) {
		t.Helper()
		start := time.Now()
		plugin := admission.Plugin{Name: "Waits", Rules: []admission.Rule{admission.Any()}, Validates: true}
		plugin.New = func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: func(ctx context.Context, _ *codec.Review) admission.Result {
				if deadline, ok := ctx.Deadline(); stops && ok {
					time.Sleep(time.Until(deadline))
				} else if ok {
					<-ctx.Done()
				}
				return admission.Result{Err: ctx.Err()}
			}}, nil
		}
		chain := admissiontest.MustChain(t, admissiontest.Hurried(plugin), "")
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods", `{}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := chain.Review(ctx, review, admission.Validate); (err != nil) != failed || time.Since(start) != want {
			t.Errorf("got %v after %s, want a failure: %v, after %s", err, time.Since(start), failed, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f(t.Context(), true, 0, false)
		f(admissiontest.WithTime(t.Context(), time.Second), true, time.Second, false)
		f(admissiontest.WithTime(t.Context(), time.Second), false, time.Second+time.Minute, true)
	})
}

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
