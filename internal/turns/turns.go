// Package turns shares the processors among those who send requests. Work that takes longer than
// a few milliseconds needs a turn, as requests to kube-apiserver need a seat (API priority and
// fairness). There are fewer turns than processors, so short work always finds one. The users and
// namespaces that wait get turns one after the other, however many requests each has sent. What one
// of them has sent is done in its order.
package turns

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	// FreeMax is how long work may run without a turn. Nearly all reviews are done before:
	// one takes less than 0.1 ms of a processor, with a hundred policies 0.2 ms.
	FreeMax = 3 * time.Millisecond

	// sliceMax is how long a turn lasts while others wait. It is half of what Go lets a goroutine
	// run, and 100 that wait all had one after half a second.
	sliceMax = 5 * time.Millisecond

	// idleMax is how long a turn stays without a look at the clock while others wait. Whoever has it
	// waits for something else, such as a backend. Loops look far more often.
	idleMax = 100 * time.Millisecond

	// gapMax is the most that counts between two looks at the clock. Loops look more often. A
	// longer time was spent waiting for something else, such as a webhook or a processor.
	gapMax = time.Millisecond
)

// A caller is who gets turns: the work of a user in a namespace.
type caller struct{ user, namespace string }

// Turns are the turns of a process. Several goroutines may use them at the same time.
type Turns struct {
	now func() time.Time

	waited, givenUp *metrics.Counter

	mu      sync.Mutex
	free    int
	waiting []*queue // one for each caller that waits, the next one first
	queues  map[caller]*queue
	held    map[*Work]time.Time // the works that have a turn, and until when it stays unused
}

// A queue has the work of one caller that waits, in the order in which it came.
type queue struct {
	caller caller
	work   []chan struct{} // closed when it has a turn
}

// New returns the turns of a process: one fewer than it has processors, but at least one. It makes
// their series in set.
func New(set *metrics.Set) *Turns { return newTurns(max(runtime.GOMAXPROCS(0)-1, 1), time.Now, set) }

func newTurns(n int, now func() time.Time, set *metrics.Set) *Turns {
	return &Turns{
		now: now, free: n, queues: make(map[caller]*queue), held: make(map[*Work]time.Time),
		waited: set.NewCounter("fastadmit_turns_waited_total"), givenUp: set.NewCounter("fastadmit_turns_given_up_total"),
	}
}

// take waits for a turn. It returns the error of ctx if that ends before.
func (t *Turns) take(ctx context.Context, of caller) error {
	t.mu.Lock()
	t.takeBackLocked()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	q := t.queue(of)
	granted := make(chan struct{})
	q.work = append(q.work, granted)
	t.mu.Unlock()
	return t.wait(ctx, of, granted)
}

// pass gives the turn of w to the next caller, if another one waits, and waits for the next turn
// of its own caller. It returns the error of ctx if that ends before: then the turn is lost.
func (t *Turns) pass(ctx context.Context, w *Work, of caller) error {
	t.mu.Lock()
	if _, has := t.held[w]; !has {
		t.mu.Unlock()
		return t.take(ctx, of)
	}
	if !slices.ContainsFunc(t.waiting, func(q *queue) bool { return q.caller != of && len(q.work) > 0 }) {
		t.mu.Unlock()
		return nil
	}
	q := t.queue(of)
	granted := make(chan struct{})
	q.work = slices.Insert(q.work, 0, granted)
	t.waiting = append(slices.DeleteFunc(t.waiting, func(other *queue) bool { return other == q }), q)
	delete(t.held, w)
	t.giveLocked()
	t.mu.Unlock()
	return t.wait(ctx, of, granted)
}

// hold records until when w, which has a turn, keeps it without a look at the clock. It returns
// false if the turn was taken back.
func (t *Turns) hold(w *Work, until time.Time, isNew bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.held[w]; !ok && !isNew {
		return false
	}
	t.held[w] = until
	return true
}

// release gives the turn of w to the next caller, unless it was taken back.
func (t *Turns) release(w *Work) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.held[w]; ok {
		delete(t.held, w)
		t.giveLocked()
	}
}

// takeBackLocked gives turns to others that nobody uses.
func (t *Turns) takeBackLocked() {
	now := t.now()
	for w, until := range t.held {
		if now.After(until) {
			delete(t.held, w)
			t.giveLocked()
		}
	}
}

// queue returns the queue of a caller. A new one is behind all others.
func (t *Turns) queue(of caller) *queue {
	q := t.queues[of]
	if q == nil {
		of = caller{strings.Clone(of.user), strings.Clone(of.namespace)} // they are views of the review
		q = &queue{caller: of}
		t.queues[of] = q
		t.waiting = append(t.waiting, q)
	}
	return q
}

func (t *Turns) wait(ctx context.Context, of caller, granted chan struct{}) error {
	t.waited.Inc()
	idle := time.NewTicker(idleMax)
	defer idle.Stop()
	for {
		select {
		case <-granted:
			return nil
		case <-idle.C:
			t.mu.Lock()
			t.takeBackLocked()
			t.mu.Unlock()
		case <-ctx.Done():
			t.givenUp.Inc()
			if !t.forget(of, granted) {
				t.give() // it was granted at the same time
			}
			return ctx.Err()
		}
	}
}

// forget removes work that does not wait any longer. It returns false if it has a turn.
func (t *Turns) forget(of caller, granted chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[of]
	if q == nil {
		return false
	}
	i := slices.Index(q.work, granted)
	if i >= 0 {
		q.work = slices.Delete(q.work, i, i+1)
	}
	return i >= 0
}

// give gives a turn to the first work of the next caller. A caller with more work goes behind
// all others.
func (t *Turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveLocked()
}

func (t *Turns) giveLocked() {
	for len(t.waiting) > 0 {
		q := t.waiting[0]
		t.waiting = t.waiting[1:]
		if len(q.work) == 0 { // all of it was forgotten
			delete(t.queues, q.caller)
			continue
		}
		granted := q.work[0]
		if q.work = q.work[1:]; len(q.work) > 0 {
			t.waiting = append(t.waiting, q)
		} else {
			delete(t.queues, q.caller)
		}
		close(granted)
		return
	}
	t.free++
}

// Key is the context key of the *Work that a context is about.
type Key struct{}

// Work is the work for one request. Only one goroutine at a time may use it. The zero Work needs
// no turns.
type Work struct {
	turns     *Turns
	requester cluster.Requester
	looked    time.Time     // at the clock
	ran       time.Duration // in all
	slice     time.Duration // with this turn
	hasTurn   bool
}

// Begin begins work for a requester, who is asked when the work needs a turn.
func (t *Turns) Begin(r cluster.Requester) Work { return Work{turns: t, requester: r} }

// Of returns the Work of a context; nil if it has none.
func Of(ctx context.Context) *Work {
	w, _ := ctx.Value(Key{}).(*Work)
	return w
}

// Continue is called in loops that may run long, in place of ctx.Err. Work that has run for a
// while waits here for its turn. The error is that of ctx. Whoever calls Continue calls Leave
// after the loop, and before it waits for something else. Otherwise others get the turn later.
func (w *Work) Continue(ctx context.Context) error {
	if err := ctx.Err(); err != nil || w == nil || w.turns == nil {
		return err
	}
	now := w.turns.now()
	if !w.looked.IsZero() {
		gap := min(now.Sub(w.looked), gapMax)
		w.ran += gap
		w.slice += gap
	}
	w.looked = now
	if w.ran <= FreeMax {
		return nil
	}
	return w.turn(ctx, 0)
}

// Begin is called before work on so many bytes of a value that does not call Continue, if it takes
// longer than work may take without a turn. It waits for one, which stays for that time.
func (w *Work) Begin(ctx context.Context, bytes int) error {
	if err := ctx.Err(); err != nil || w == nil || w.turns == nil {
		return err
	}
	takes := time.Duration(bytes) * codec.DecodedByteTakes
	w.ran += takes
	return w.turn(ctx, takes)
}

// turn has the work have a turn, for which it may wait. It keeps it for so long, and idleMax
// more, without a look at the clock.
func (w *Work) turn(ctx context.Context, takes time.Duration) (err error) {
	w.hasTurn = w.hasTurn && w.turns.hold(w, w.turns.now().Add(takes+idleMax), false)
	if w.hasTurn && w.slice <= sliceMax {
		return nil
	}
	user, namespace := w.requester.Requester()
	if of := (caller{user, namespace}); w.hasTurn {
		err = w.turns.pass(ctx, w, of)
	} else {
		err = w.turns.take(ctx, of)
	}
	if w.hasTurn, w.slice = err == nil, 0; w.hasTurn {
		w.looked = w.turns.now()
		w.turns.hold(w, w.looked.Add(takes+idleMax), true)
	}
	return err
}

// Need waits for a turn for work of the context that has run for longer than FreeMax. The error is that
// of ctx.
func Need(ctx context.Context) error {
	w := Of(ctx)
	if w != nil {
		w.ran = max(w.ran, FreeMax+1)
	}
	return w.Continue(ctx)
}

// HasTurn reports whether the work has a turn, which it may have lost without having noticed.
func (w *Work) HasTurn() bool { return w.hasTurn }

// Leave gives the turn back, if the work has one.
func (w *Work) Leave() {
	if w != nil && w.hasTurn {
		w.hasTurn = false
		w.turns.release(w)
	}
}

// Continue calls Continue of the Work of ctx, if it has one.
func Continue(ctx context.Context) error { return Of(ctx).Continue(ctx) }

// Leave calls Leave of the Work of ctx, if it has one.
func Leave(ctx context.Context) { Of(ctx).Leave() }
