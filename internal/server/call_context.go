package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/turns"
)

const (
	// TimeoutMax is the time that a call may take if it does not say: the maximum of
	// timeoutSeconds of a webhook (k8s.io/kubernetes
	// pkg/apis/admissionregistration/validation).
	TimeoutMax = 30 * time.Second
)

// A callContext is the context of a call. It ends when kube-apiserver stops waiting. It is
// pooled, and starts a timer only for a plugin that calls Done. Its zero value is not usable.
type callContext struct {
	context.Context // the parent
	deadline        time.Time
	review          *codec.Review // that the call is about
	body            []byte        // of the request
	server          *Server       // that has the memory for it
	memory          reservation
	kept            []reservation // for what plugins got from elsewhere
	// values are the memory for what expressions make, fewValues that of the part for small
	// reviews.
	values, fewValues reservation
	isNaming          bool // caller reads the user's name

	work  turns.Work
	timer atomic.Pointer[timer] // nil until Done is asked for
}

// A timer is a context that ends at the deadline, or when it is cancelled.
type timer struct {
	context.Context
	cancel context.CancelFunc
}

var callContexts = sync.Pool{New: func() any { return &callContext{Context: context.Background()} }}

// acquireBudget returns the context of a call that began at start and may take
// as long as its query says: "timeout=10s", which kube-apiserver rounds up to
// whole seconds (k8s.io/apiserver pkg/admission/plugin/webhook).
func (s *Server) acquireContext(start time.Time, args *fasthttp.Args, review *codec.Review, body []byte) *callContext {
	b := callContexts.Get().(*callContext)
	b.review, b.body, b.server = review, body, s
	b.deadline = start.Add(parseTimeout(args.Peek("timeout")))
	b.work = s.turns.Begin(b)
	return b
}

// Value implements context.Context. Contexts that were derived from b may ask
// later, from other goroutines, but not for these keys: only a plugin's own calls
// and its review do, while it runs.
func (b *callContext) Value(key any) any {
	switch key.(type) { // before b is looked at, which may be released
	case cluster.CallerKey, codec.MemoryKey:
		if b.review != nil {
			return b
		}
	case codec.LenderKey:
		if b.review != nil {
			return newLender(b)
		}
	case turns.Key, codec.PacerKey:
		// A review that is the only one in flight delays no other, and needs no turns.
		if b.review != nil && (b.server.load.requests.Load() > 1 || b.work.HasTurn()) {
			return &b.work
		}
	}
	return b.Context.Value(key)
}

// Requester implements cluster.Requester.
func (b *callContext) Requester() (user, namespace string) {
	return b.review.Username(), b.review.Namespace()
}

// Leave gives the turn of the call's work back, before the call waits for the API server.
func (b *callContext) Leave() { b.work.Leave() }

// release ends b. If a plugin called Done, b is not used again: contexts that were derived
// from it ask it once more when they end, perhaps later and in other goroutines.
func (b *callContext) release() {
	b.work.Leave()
	b.memory.release()
	for i := range b.kept {
		b.kept[i].release()
	}
	b.kept = nil
	b.values.release()
	b.fewValues.release()
	b.review, b.body, b.server = nil, nil, nil
	if t := b.timer.Load(); t != nil {
		t.cancel()
		return
	}
	callContexts.Put(b)
}

// parseTimeout reads a duration in seconds without allocating. Anything else
// than a positive number of seconds up to TimeoutMax gives TimeoutMax.
func parseTimeout(text []byte) time.Duration {
	seconds, ok := bytesToSeconds(text)
	if !ok || seconds <= 0 || seconds > int64(TimeoutMax/time.Second) {
		return TimeoutMax
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
func (b *callContext) Deadline() (time.Time, bool) { return b.deadline, true }

// Done implements context.Context.
func (b *callContext) Done() <-chan struct{} {
	if t := b.timer.Load(); t != nil {
		return t.Done()
	}
	ctx, cancel := context.WithDeadline(b.Context, b.deadline)
	if !b.timer.CompareAndSwap(nil, &timer{ctx, cancel}) {
		cancel() // another goroutine was faster
	}
	return b.timer.Load().Done()
}

// Err implements context.Context.
func (b *callContext) Err() error {
	if t := b.timer.Load(); t != nil {
		return t.Err()
	}
	if time.Now().Before(b.deadline) {
		return nil
	}
	return context.DeadlineExceeded
}
