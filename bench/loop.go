package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A loop puts a load on something. Workers take turns: one of them waits for
// the time of the next request, and leaves the wait to another when it goes to
// send it. So a slow answer keeps nobody from being on time as long as there
// may be more in flight.
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

	turn    sync.Mutex // guards what follows
	number  int64      // of the next request
	started int        // workers
	unsent  int64
}

// run returns when the load has ended and all answers are there.
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

// start starts a worker. The turn is held.
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

// next waits until it is time for the next request, which it has prepared. It
// is not ok when the load has ended.
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

// over tells whether a time is behind the end of the load.
func (l *loop) over(at time.Duration) bool {
	return l.load.Duration > 0 && at >= l.load.Duration
}
