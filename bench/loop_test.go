package bench

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"
	"time"
)

// A fakeClock advances when somebody sleeps.
type fakeClock struct {
	mu sync.Mutex
	at time.Duration
}

func (c *fakeClock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *fakeClock) sleepUntil(_ context.Context, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = max(c.at, at)
}

func (c *fakeClock) close() {}

// play runs a load against a server that needs the given time for each request and handles one at a
// time.
func play(ctx context.Context, load Load, takes func(n int) time.Duration) (samples []sample, unsent int64) {
	fake := new(fakeClock)
	l := &loop{
		load: &load, clock: fake,
		record: func(s *sample) { samples = append(samples, *s) },
		worker: func() *worker { return new(worker) },
		free:   func(*worker) {},
		prepare: func(*worker, int64) {
			if load.closed() {
				fake.sleepUntil(ctx, fake.now()+time.Microsecond)
			}
		},
		call: func(_ *worker, _ clock, s *sample) {
			fake.sleepUntil(ctx, fake.now()+takes(len(samples)))
			s.done = fake.now()
		},
	}
	l.run(ctx, 1)
	return samples, l.unsent
}

// If a server stops for a while, all requests that were due in that time are late, even those that
// were sent later.
func TestLatencyCountsFromWhenARequestWasDue(t *testing.T) {
	const ms = time.Millisecond
	samples, _ := play(t.Context(), Load{Rate: 1000, Burst: 1, Arrivals: Constant, InFlight: 1, Count: 20}, func(n int) time.Duration {
		if n == 4 {
			return 10*ms + ms/10
		}
		return ms / 10
	})
	var latencies, want []time.Duration
	for i, s := range samples {
		if s.due != time.Duration(i)*ms {
			t.Errorf("request %d was due at %s", i, s.due)
		}
		latencies = append(latencies, s.done-s.due)
		// After the stop, which ends at 14.1 ms, requests are queued; each takes 0.1 ms.
		free := 14*ms + ms/10 + time.Duration(i-4)*ms/10
		switch end := s.due + ms/10; {
		case i < 4 || free < end:
			want = append(want, ms/10)
		default:
			want = append(want, free-s.due)
		}
	}
	if !slices.Equal(latencies, want) {
		t.Errorf("got %v, want %v", latencies, want)
	}
}

func TestClosedLoopWaitsForAnswers(t *testing.T) {
	samples, _ := play(t.Context(), Load{InFlight: 1, Duration: time.Second}, func(int) time.Duration { return 100 * time.Millisecond })
	if len(samples) != 10 {
		t.Errorf("got %d requests, want 10", len(samples))
	}
	for i, s := range samples {
		// The server is not charged for what the generator does before it sends.
		if s.due != time.Duration(i)*100*time.Millisecond+time.Duration(i+1)*time.Microsecond || s.due != s.sent || s.done-s.due != 100*time.Millisecond {
			t.Errorf("got request %d due at %s, sent at %s, done at %s", i, s.due, s.sent, s.done)
		}
	}
}

// Requests that were due but could not be sent before the end are counted.
func TestUnsent(t *testing.T) {
	samples, unsent := play(t.Context(), Load{Rate: 100, Burst: 1, Arrivals: Constant, InFlight: 1, Duration: time.Second},
		func(int) time.Duration { return 100 * time.Millisecond })
	if len(samples) != 10 || unsent != 90 {
		t.Errorf("got %d sent and %d not, want 10 and 90", len(samples), unsent)
	}
}

func TestLoopEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	samples, _ := play(ctx, Load{InFlight: 1, Count: 100}, func(n int) time.Duration {
		if n == 4 {
			cancel()
		}
		return time.Millisecond
	})
	if len(samples) != 5 {
		t.Errorf("got %d requests, want the 5 that were sent", len(samples))
	}
}

func TestSchedule(t *testing.T) {
	const ms = time.Millisecond
	take := func(load Load, n int) (due []time.Duration) {
		s := newSchedule(&load, 1)
		for range n {
			due = append(due, s.next())
		}
		return due
	}
	if got, want := take(Load{Rate: 500, Burst: 1, Arrivals: Constant}, 4), []time.Duration{0, 2 * ms, 4 * ms, 6 * ms}; !slices.Equal(got, want) {
		t.Errorf("constant: got %v, want %v", got, want)
	}
	if got, want := take(Load{Rate: 1000, Burst: 3, Arrivals: Constant}, 7), []time.Duration{0, 0, 0, 3 * ms, 3 * ms, 3 * ms, 6 * ms}; !slices.Equal(got, want) {
		t.Errorf("bursts: got %v, want %v", got, want)
	}
	// A third of a second is no whole number of nanoseconds; rounding errors must not add up.
	if got := take(Load{Rate: 3, Burst: 1, Arrivals: Constant}, 300_001); got[300_000].Round(time.Microsecond) != 100_000*time.Second {
		t.Errorf("got the last one due at %s", got[300_000])
	}

	const n = 50_000
	due := take(Load{Rate: 1000, Burst: 1, Arrivals: Poisson}, n)
	var sum, squares float64
	for i := 1; i < n; i++ {
		between := (due[i] - due[i-1]).Seconds()
		sum += between
		squares += between * between
	}
	mean := sum / (n - 1)
	deviation := math.Sqrt(squares/(n-1) - mean*mean)
	if math.Abs(mean-1e-3) > 3e-5 || math.Abs(deviation-1e-3) > 3e-5 {
		t.Errorf("got a mean of %g s and a deviation of %g s between requests, want 1e-3 and 1e-3", mean, deviation)
	}
}
