package app

import (
	"context"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	// budgetMax is the time a call may take when it does not say: the most that
	// timeoutSeconds of a webhook can be (k8s.io/kubernetes
	// pkg/apis/admissionregistration/validation).
	budgetMax = 30 * time.Second
)

// A budget is the context of one call: it ends when kube-apiserver stops
// waiting. It is pooled, and makes a timer only for a plugin that asks for
// Done. Its zero value is not usable.
type budget struct {
	context.Context // the parent; the one with the timer once there is one
	deadline        time.Time
	cancel          context.CancelFunc
}

var budgets = sync.Pool{New: func() any { return new(budget) }}

// acquireBudget returns the context of a call that began at start and may take
// as long as its query says: "timeout=10s", which kube-apiserver rounds up to
// whole seconds (k8s.io/apiserver pkg/admission/plugin/webhook).
func acquireBudget(start time.Time, args *fasthttp.Args) *budget {
	b := budgets.Get().(*budget)
	b.Context = context.Background()
	b.deadline = start.Add(parseTimeout(args.Peek("timeout")))
	return b
}

// release gives b back; no plugin may use it any more.
func (b *budget) release() {
	if b.cancel != nil {
		b.cancel()
	}
	*b = budget{}
	budgets.Put(b)
}

// parseTimeout reads a duration in seconds without allocating. Anything else
// than a positive number of seconds up to budgetMax gives budgetMax.
func parseTimeout(text []byte) time.Duration {
	seconds, ok := bytesToSeconds(text)
	if !ok || seconds <= 0 || seconds > int64(budgetMax/time.Second) {
		return budgetMax
	}
	return time.Duration(seconds) * time.Second
}

func bytesToSeconds(text []byte) (seconds int64, ok bool) {
	if len(text) < 2 || len(text) > 3 || text[len(text)-1] != 's' {
		return 0, false
	}
	for _, c := range text[:len(text)-1] {
		if c < '0' || c > '9' {
			return 0, false
		}
		seconds = seconds*10 + int64(c-'0')
	}
	return seconds, true
}

// Deadline implements context.Context.
func (b *budget) Deadline() (time.Time, bool) { return b.deadline, true }

// Done implements context.Context.
func (b *budget) Done() <-chan struct{} {
	if b.cancel == nil {
		b.Context, b.cancel = context.WithDeadline(b.Context, b.deadline)
	}
	return b.Context.Done()
}

// Err implements context.Context.
func (b *budget) Err() error {
	if time.Now().Before(b.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}
