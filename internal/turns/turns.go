// Package turns shares the processors among callers. A caller is a user in a namespace. Work that
// takes longer than a few milliseconds needs a turn, as requests to kube-apiserver need a seat (API
// priority and fairness). There are fewer turns than processors, so short work always finds a
// processor. Callers that wait get turns one after the other, however many requests each has sent.
// The work of one caller is done in the order of its requests.
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
	// FreeMax is how long work may run without a turn. Nearly all reviews end sooner: a review
	// takes less than 0.1 ms of a processor, or 0.2 ms with a hundred policies.
	FreeMax = 3 * time.Millisecond

	// sliceMax is how long work keeps a turn while other callers wait. It is half of the time that
	// Go's scheduler lets a goroutine run. If 100 callers wait, each gets a turn within half a second.
	sliceMax = 5 * time.Millisecond

	// idleMax is the time after which a turn is taken back if its work has not called Continue and
	// others wait. Such work waits for something else, such as a backend. Loops call Continue far
	// more often.
	idleMax = 100 * time.Millisecond

	// gapMax is the most that counts between two looks at the clock. Loops look more often. A
	// longer time was spent waiting for something else, such as a webhook or a processor.
	gapMax = time.Millisecond
)

// A caller is a user in a namespace.
type caller struct{ user, namespace string }

// Turns are the turns of a process. Several goroutines may use them at the same time.
type Turns struct {
	waited, givenUp *metrics.Counter

	mu      sync.Mutex
	free    int
	waiting []*queue // one for each caller that waits; the first one is next
	queues  map[caller]*queue
	held    map[*Work]time.Time // work that has a turn, and when the turn may be taken back
}

// A queue has the waiting work of one caller, the oldest first.
type queue struct {
	caller caller
	work   []chan struct{} // each is closed when its work gets a turn
}

// New returns the turns of a process: one fewer than its processors, but at least one. It adds their
// metrics to set.
func New(set *metrics.Set) *Turns { return newTurns(max(runtime.GOMAXPROCS(0)-1, 1), set) }

func newTurns(n int, set *metrics.Set) *Turns {
	return &Turns{
		free: n, queues: make(map[caller]*queue), held: make(map[*Work]time.Time),
		waited: set.NewCounter("fastadmit_turns_waited_total"), givenUp: set.NewCounter("fastadmit_turns_given_up_total"),
	}
}

// take waits for a turn. If ctx ends first, it returns the error of ctx.
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

// pass gives the turn of w to the next caller if another caller waits, and then waits for the next
// turn of its own caller. If ctx ends first, it returns the error of ctx, and w has no turn.
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

// hold sets the time until which w keeps its turn without calling Continue. It returns false if the
// turn was taken back. isNew says that w has just got the turn.
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

// takeBackLocked takes back the turns of work that has not called Continue in time, and gives them
// to waiting callers.
func (t *Turns) takeBackLocked() {
	now := time.Now()
	for w, until := range t.held {
		if now.After(until) {
			delete(t.held, w)
			t.giveLocked()
		}
	}
}

// queue returns the queue of a caller. A new queue is the last one that gets a turn.
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
				t.give() // the work got a turn at the same time, and does not need it
			}
			return ctx.Err()
		}
	}
}

// forget removes work that stops waiting from its queue. It returns false if the work already got a
// turn.
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

// give gives a turn to the oldest work of the next caller. A caller with more work becomes the last
// one.
func (t *Turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveLocked()
}

func (t *Turns) giveLocked() {
	for len(t.waiting) > 0 {
		q := t.waiting[0]
		t.waiting = t.waiting[1:]
		if len(q.work) == 0 { // all its work stopped waiting
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

// Key is the key of the *Work in a context.
type Key struct{}

// Work is the work for one request. Only one goroutine at a time may use it. The zero Work needs
// no turns.
type Work struct {
	turns     *Turns
	requester cluster.Requester
	looked    time.Time     // the time of the last call of Continue
	ran       time.Duration // since Begin
	slice     time.Duration // since the work got its turn
	hasTurn   bool
}

// Begin begins work for a requester. r.Requester is called when the work needs a turn.
func (t *Turns) Begin(r cluster.Requester) Work { return Work{turns: t, requester: r} }

// Of returns the Work of a context; nil if it has none.
func Of(ctx context.Context) *Work {
	w, _ := ctx.Value(Key{}).(*Work)
	return w
}

// Continue is called in loops that may run long, instead of ctx.Err. Work that has run for longer
// than FreeMax waits here for a turn. The error is that of ctx. The caller must call Leave after the
// loop, and before it waits for something else; otherwise other work gets the turn later.
func (w *Work) Continue(ctx context.Context) error {
	if err := ctx.Err(); err != nil || w == nil || w.turns == nil {
		return err
	}
	now := time.Now()
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

// Begin is called before work that does not call Continue, such as decoding a value with so many
// bytes, if it may take longer than FreeMax. It waits for a turn. The work keeps the turn for the time
// that it takes by byteTakes.
func (w *Work) Begin(ctx context.Context, bytes int) error {
	if err := ctx.Err(); err != nil || w == nil || w.turns == nil {
		return err
	}
	takes := time.Duration(bytes) * codec.DecodedByteTakes
	w.ran += takes
	return w.turn(ctx, takes)
}

// turn waits until the work has a turn. The work keeps it for the duration takes plus idleMax without
// calling Continue.
func (w *Work) turn(ctx context.Context, takes time.Duration) (err error) {
	w.hasTurn = w.hasTurn && w.turns.hold(w, time.Now().Add(takes+idleMax), false)
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
		w.looked = time.Now()
		w.turns.hold(w, w.looked.Add(takes+idleMax), true)
	}
	return err
}

// Need waits for a turn for the Work of ctx, as if it had already run for longer than FreeMax. The error
// is that of ctx.
func Need(ctx context.Context) error {
	w := Of(ctx)
	if w != nil {
		w.ran = max(w.ran, FreeMax+1)
	}
	return w.Continue(ctx)
}

// HasTurn reports whether the work has a turn. The turn may have been taken back since the last call of
// Continue.
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
