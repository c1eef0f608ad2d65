package bench

import (
	"context"
	"math/rand/v2"
	"time"
)

// A clock tells the time since the load began.
type clock interface {
	now() time.Duration
	// sleepUntil returns at the time, or soon after ctx ends.
	sleepUntil(ctx context.Context, at time.Duration)
	close()
}

// wakeMax bounds how long a sleep continues after its context has ended.
const wakeMax = 100 * time.Millisecond

type wallClock struct {
	start time.Time
	alarm *alarm
}

func newWallClock() (*wallClock, error) {
	alarm, err := newAlarm()
	if err != nil {
		return nil, err
	}
	return &wallClock{start: time.Now(), alarm: alarm}, nil
}

func (c *wallClock) now() time.Duration { return time.Since(c.start) }

func (c *wallClock) sleepUntil(ctx context.Context, at time.Duration) {
	for ctx.Err() == nil {
		left := at - c.now()
		if left <= 0 {
			return
		}
		c.alarm.sleep(min(left, wakeMax))
	}
}

func (c *wallClock) close() { c.alarm.close() }

// A schedule says when the requests of an open loop are due, since the load began. It does not
// depend on the server.
type schedule struct {
	load   *Load
	random *rand.Rand
	groups float64       // number of groups so far; the requests of a group are due at once
	due    time.Duration // when the current group is due
	left   int           // requests left in the current group
}

func newSchedule(load *Load, seed uint64) *schedule {
	return &schedule{load: load, random: rand.New(rand.NewPCG(seed, 1))}
}

// next returns when the next request is due. The first is due at once.
func (s *schedule) next() time.Duration {
	if s.left > 0 {
		s.left--
		return s.due
	}
	s.left = s.load.Burst - 1
	between := float64(time.Second) * float64(s.load.Burst) / s.load.Rate
	if s.load.Arrivals == Poisson {
		s.due += time.Duration(between * s.random.ExpFloat64())
	} else {
		s.due = time.Duration(between * s.groups) // computed from the beginning, so that rounding errors do not add up
	}
	s.groups++
	return s.due
}
