package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A loop generates a load. Its workers take turns: one of them waits until the next request is due,
// passes the turn on, and sends the request. So a slow answer delays no other request while fewer
// than the maximum are in flight.
type loop struct {
	load    *Load
	clock   clock
	record  func(*sample)
	worker  func() *worker
	free    func(*worker)
	prepare func(w *worker, n int64)
	call    func(w *worker, clock clock, s *sample)

	schedule *schedule
	waiting  atomic.Int64
	workers  sync.WaitGroup

	turn    sync.Mutex // guards the fields below
	number  int64      // of the next request
	started int        // workers
	unsent  int64
}

// run runs the load until it has ended and all answers have arrived.
func (l *loop) run(ctx context.Context, seed uint64) {
	begin := 1
	if l.load.closed() {
		begin = l.load.InFlight
	} else {
		l.schedule = newSchedule(l.load, seed)
	}
	l.turn.Lock()
	for range begin {
		l.start(ctx)
	}
	l.turn.Unlock()
	l.workers.Wait()
}

// start starts a worker. Call it with the turn held.
func (l *loop) start(ctx context.Context) {
	l.started++
	l.workers.Add(1)
	go func() {
		defer l.workers.Done()
		w := l.worker()
		defer l.free(w)
		for {
			due, ok := l.next(ctx, w)
			if !ok {
				return
			}
			s := sample{due: due, sent: l.clock.now()}
			if l.load.closed() {
				s.due = s.sent
			}
			l.call(w, l.clock, &s)
			l.record(&s)
		}
	}()
}

// next prepares the next request and waits until it is due. It returns false when the load has
// ended.
func (l *loop) next(ctx context.Context, w *worker) (due time.Duration, ok bool) {
	l.waiting.Add(1)
	l.turn.Lock()
	l.waiting.Add(-1)
	defer l.turn.Unlock()
	for ctx.Err() == nil && (l.load.Count == 0 || l.number < l.load.Count) {
		now := l.clock.now()
		due = now
		if !l.load.closed() {
			due = l.schedule.next()
		}
		if l.over(due) {
			return 0, false
		}
		n := l.number
		l.number++
		if l.over(now) {
			l.unsent++
			continue
		}
		l.prepare(w, n)
		if !l.load.closed() {
			l.clock.sleepUntil(ctx, due)
			if l.waiting.Load() == 0 && l.started < l.load.InFlight {
				l.start(ctx)
			}
		}
		return due, ctx.Err() == nil
	}
	return 0, false
}

// over reports whether a time is after the end of the load.
func (l *loop) over(at time.Duration) bool {
	return l.load.Duration > 0 && at >= l.load.Duration
}
