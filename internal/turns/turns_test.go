package turns

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/codec"
)

// run runs work for the duration d. It calls Continue after each gapMax, so that all of d counts.
func run(ctx context.Context, w *Work, d time.Duration) error {
	for ; d > 0; d -= gapMax {
		time.Sleep(min(d, gapMax))
		if err := w.Continue(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A user sends requests without a namespace.
type user string

// Requester implements cluster.Requester.
func (u user) Requester() (name, namespace string) { return string(u), "" }

// join adds waiting work of a caller.
func join(all *Turns, of caller, granted chan struct{}) {
	all.mu.Lock()
	defer all.mu.Unlock()
	q := all.queue(of)
	q.work = append(q.work, granted)
}

// begun returns work of a caller that has called Continue once.
func begun(t *testing.T, all *Turns, name string) *Work {
	t.Helper()
	w := all.Begin(user(name))
	if err := w.Continue(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &w
}

// TestFree tests that work needs a turn only after more than FreeMax.
func TestFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for more := -1; more <= 1; more++ {
			all := newTurns(1, metrics.NewSet())
			w := begun(t, all, "a")
			if err := run(t.Context(), w, FreeMax+time.Duration(more)); err != nil || w.hasTurn != (more > 0) ||
				all.free != 1-max(more, 0) {
				t.Errorf("%+d ns: got %v, a turn %v, and %d left", more, err, w.hasTurn, all.free)
			}
			w.Leave()
			w.Leave()
			if w.hasTurn || all.free != 1 {
				t.Errorf("got a turn %v, and %d left after Leave", w.hasTurn, all.free)
			}
		}
	})
}

// TestGap tests that only gapMax counts of a longer time between two calls of Continue.
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := begun(t, newTurns(1, metrics.NewSet()), "a")
		time.Sleep(time.Hour)
		if err := w.Continue(t.Context()); err != nil || w.hasTurn || w.ran != gapMax {
			t.Errorf("got %v, a turn %v after %v", err, w.hasTurn, w.ran)
		}
	})
}

// TestSlice tests that work keeps its turn until another caller waits and sliceMax is over.
func TestSlice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(1, metrics.NewSet())
		w := begun(t, all, "a")
		if err := run(t.Context(), w, FreeMax+10*sliceMax); err != nil || !w.hasTurn {
			t.Fatalf("got %v, a turn %v, want to keep it", err, w.hasTurn)
		}
		other := make(chan struct{})
		join(all, caller{user: "b"}, other)
		own := make(chan struct{})
		join(all, caller{user: "a"}, own) // later work of the same caller, for which w does not stop
		w.slice = sliceMax - gapMax
		if err := run(t.Context(), w, gapMax); err != nil || !w.hasTurn {
			t.Errorf("got %v, a turn %v, want it until its end", err, w.hasTurn)
		}
		ended, cancel := context.WithCancel(t.Context())
		go func() { <-other; cancel() }()
		if err := run(ended, w, gapMax); !errors.Is(err, context.Canceled) || w.hasTurn {
			t.Errorf("got %v, a turn %v, want to wait behind the other until the context ends", err, w.hasTurn)
		}
		all.give() // the turn of the other caller
		select {
		case <-own:
		default:
			t.Error("got no turn for the work behind")
		}
		if all.give(); all.free != 1 || len(all.queues) != 0 {
			t.Errorf("got %d turns left, and %d queues, want 1 and none", all.free, len(all.queues))
		}
	})
}

// TestOrder tests that work that gave its turn to another caller continues before later work of the
// same caller.
func TestOrder(t *testing.T) {
	all := newTurns(0, metrics.NewSet())
	later, other := make(chan struct{}), make(chan struct{})
	join(all, caller{user: "a"}, later)
	join(all, caller{user: "b"}, other)
	passed := make(chan error)
	w := all.Begin(user("a"))
	all.hold(&w, time.Now().Add(idleMax), true)
	go func() { passed <- all.pass(t.Context(), &w, caller{user: "a"}) }()
	<-other
	all.give()
	if err := <-passed; err != nil {
		t.Error(err)
	}
	select {
	case <-later:
		t.Error("the later work has a turn")
	default:
	}
	if all.give(); all.free != 0 {
		t.Errorf("got %d turns left, want one for the later work", all.free)
	}
	<-later
}

// TestFair tests that callers get turns one after the other, and the oldest work of each caller first.
func TestFair(t *testing.T) {
	all := newTurns(0, metrics.NewSet())
	var order []string
	granted := make(map[string]chan struct{})
	for _, work := range []string{"a1", "a2", "a3", "b1", "c1", "b2", "c2"} {
		granted[work] = make(chan struct{})
		join(all, caller{user: work[:1]}, granted[work])
	}
	for range len(granted) {
		all.give()
		for work, c := range granted {
			select {
			case <-c:
				order = append(order, work)
				delete(granted, work)
			default:
			}
		}
	}
	want := []string{"a1", "b1", "c1", "a2", "b2", "c2", "a3"}
	for i := range want {
		if order[i] != want[i] {
			t.Fatalf("got %v, want %v", order, want)
		}
	}
	if len(all.queues) != 0 || all.free != 0 {
		t.Errorf("got %d queues, and %d turns, want none", len(all.queues), all.free)
	}
}

// TestNamespaces tests that work of a user does not wait for work of the same user in another namespace.
func TestNamespaces(t *testing.T) {
	all := newTurns(0, metrics.NewSet())
	first, second, other := make(chan struct{}), make(chan struct{}), make(chan struct{})
	join(all, caller{"a", "x"}, first)
	join(all, caller{"a", "x"}, second)
	join(all, caller{"a", "y"}, other)
	all.give()
	all.give()
	select {
	case <-second:
		t.Error("the second work in x came before that in y")
	case <-other:
	default:
		t.Error("got no turn for the work in y")
	}
}

// TestForget tests that work that stopped waiting gets no turn, and that forget reports work that got
// one at the same time.
func TestForget(t *testing.T) {
	all := newTurns(0, metrics.NewSet())
	first, second := make(chan struct{}), make(chan struct{})
	join(all, caller{user: "a"}, first)
	join(all, caller{user: "b"}, second)
	if !all.forget(caller{user: "a"}, first) || all.forget(caller{user: "a"}, first) || all.forget(caller{user: "c"}, first) {
		t.Error("want the work forgotten once")
	}
	all.give()
	select {
	case <-second:
	default:
		t.Error("got no turn for the second")
	}
	if all.forget(caller{user: "b"}, second) {
		t.Error("want that it has its turn")
	}
	if all.give(); all.free != 1 || len(all.queues) != 0 {
		t.Errorf("got %d turns, and %d queues", all.free, len(all.queues))
	}
}

// TestAll tests that all work ends if there is more work than turns.
func TestAll(t *testing.T) {
	all := newTurns(2, metrics.NewSet())
	done := make(chan error)
	for i := range 50 {
		go func() {
			w := all.Begin(user(rune('a' + i%5)))
			w.ran = FreeMax + 1
			var err error
			for range 100 {
				w.slice = sliceMax + 1
				if err = w.Continue(t.Context()); err != nil {
					break
				}
			}
			w.Leave()
			done <- err
		}()
	}
	for range 50 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if all.free != 2 || len(all.queues) != 0 {
		t.Errorf("got %d turns left, and %d queues, want 2 and none", all.free, len(all.queues))
	}
}

// TestNone tests that a context without Work, and the zero Work, do not wait.
func TestNone(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), context.WithValue(t.Context(), Key{}, new(Work))} {
		if err := Continue(ctx); err != nil {
			t.Errorf("got %v", err)
		}
		Leave(ctx)
	}
	if err := Continue(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
}

// TestIdle tests that an unused turn is taken back after idleMax, and not before, and that its work
// then waits for another turn.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for more := range time.Duration(3) {
			all := newTurns(1, metrics.NewSet())
			idle := begun(t, all, "a")
			if err := run(t.Context(), idle, FreeMax+gapMax); err != nil || !idle.hasTurn {
				t.Fatalf("got %v, a turn %v", err, idle.hasTurn)
			}
			time.Sleep(idleMax + more - 1)
			next := begun(t, all, "b")
			next.ran = FreeMax + 1
			ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			err := next.Continue(ended)
			cancel()
			isTaken := more == 2
			if next.hasTurn != isTaken || (err == nil) != isTaken || all.waited.Get() != all.givenUp.Get() ||
				(all.waited.Get() == 0) != isTaken {
				t.Errorf("%v: got %v, a turn %v, waited %d times, gave up %d", idleMax+more-1, err, next.hasTurn,
					all.waited.Get(), all.givenUp.Get())
			}
			if isTaken {
				ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				if err := idle.Continue(ended); !errors.Is(err, context.DeadlineExceeded) || idle.hasTurn {
					t.Errorf("the first work got %v, a turn %v", err, idle.hasTurn)
				}
				cancel()
			}
			idle.Leave()
			next.Leave()
			if all.free != 1 || len(all.queues) != 0 || len(all.held) != 0 {
				t.Errorf("got %d turns left, %d queues, %d held, want 1 and none", all.free, len(all.queues), len(all.held))
			}
		}
	})
}

// TestIdleWhileWaiting tests that waiting work gets a turn that is no longer used.
func TestIdleWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(1, metrics.NewSet())
		for _, name := range []string{"a", "b"} {
			w := all.Begin(user(name))
			w.ran = FreeMax + 1
			if err := w.Continue(t.Context()); err != nil || !w.hasTurn {
				t.Errorf("%s: got %v, a turn %v", name, err, w.hasTurn)
			}
		}
	})
}

// TestBegin tests that work on a long value keeps its turn for the time that the value takes.
func TestBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(1, metrics.NewSet())
		const bytes = 1 << 20
		w := all.Begin(user("a"))
		if err := w.Begin(t.Context(), bytes); err != nil || !w.hasTurn {
			t.Fatalf("got %v, a turn %v", err, w.hasTurn)
		}
		other := all.Begin(user("b"))
		time.Sleep(bytes*codec.DecodedByteTakes + idleMax)
		ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := other.Begin(ended, bytes); !errors.Is(err, context.DeadlineExceeded) || other.hasTurn {
			t.Errorf("the other got %v, a turn %v before its time", err, other.hasTurn)
		}
		time.Sleep(time.Nanosecond)
		if err := other.Begin(t.Context(), bytes); err != nil || !other.hasTurn {
			t.Errorf("the other got %v, a turn %v", err, other.hasTurn)
		}
		if err := other.Begin(ended, bytes); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the error of the context", err)
		}
		if err := new(Work).Begin(t.Context(), bytes); err != nil {
			t.Error(err)
		}
	})
}
