package bench

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

const (
	// sweepFrom is the first rate of a sweep that does not say.
	sweepFrom = 500

	// sweepPrecision ends the search when the knee is known up to this part.
	sweepPrecision = 0.05

	// sweepStepsMax bounds the steps: 15 doublings are beyond any server, 5
	// halvings of the last doubling give the precision, and each that is too
	// high is done twice.
	sweepStepsMax = 28

	// answeredMin is the part of the offered rate that must be answered.
	answeredMin = 0.95
)

// A Sweep is the search for the knee: the highest rate at which the p99
// latency is under a bound.
type Sweep struct {
	Target string  `json:"target"`
	Bound  float64 `json:"p99BoundMicroseconds"`
	// Knee is in requests per second; 0 when even the first rate is too much.
	Knee  float64 `json:"kneePerSecond"`
	Steps []*Step `json:"steps"`
}

// A Step is a rate that was tried.
type Step struct {
	Rate float64 `json:"offeredPerSecond"`
	// Why says why the rate is too high. It is empty when it is not.
	Why    string  `json:"tooHighBecause,omitempty"`
	Result *Result `json:"result"`
}

// FindKnee runs an open loop at rising rates, each as long as the load says:
// it doubles the rate until it is too high, then halves the interval. A rate
// that is too high is tried a second time, for that may have come from
// elsewhere on the machine. It begins at the rate of the load, or at 500 requests per second. A rate is too
// high when the p99 latency is above the bound, requests fail, or less than 95
// % of it is answered.
func FindKnee(ctx context.Context, config Config, bound time.Duration) (*Sweep, error) {
	if config.Load.Rate == 0 {
		config.Load.Rate = sweepFrom
	}
	if config.Load.Duration == 0 {
		return nil, fmt.Errorf("bench: got a sweep without a duration of its steps")
	}
	s := &Sweep{Bound: microseconds(bound)}
	err := s.search(config.Load.Rate, func(rate float64) (*Result, error) {
		step := config
		step.Load.Rate = rate
		result, err := Run(ctx, step)
		if err == nil {
			s.Target = result.Target
		}
		return result, err
	}, ctx.Err)
	return s, err
}

// search does the steps.
func (s *Sweep) search(rate float64, run func(rate float64) (*Result, error), ended func() error) error {
	var tooHigh float64
	var again bool // the last step is done once more
	for len(s.Steps) < sweepStepsMax {
		result, err := run(rate)
		if err != nil {
			return err
		}
		step := &Step{Rate: rate, Why: s.tooHigh(rate, result), Result: result}
		s.Steps = append(s.Steps, step)
		if step.Why != "" && ended() == nil && !again {
			again = true
			continue
		}
		again = false
		if ended() != nil {
			step.Why = "interrupted"
			return nil
		}
		if step.Why == "" {
			s.Knee = rate
		} else {
			tooHigh = rate
		}
		switch {
		case s.Knee == 0: // the first is too high
			return nil
		case tooHigh == 0:
			rate *= 2
		case tooHigh-s.Knee <= sweepPrecision*s.Knee:
			return nil
		default:
			rate = (s.Knee + tooHigh) / 2
		}
	}
	return nil
}

// tooHigh says why a rate is too high.
func (s *Sweep) tooHigh(rate float64, r *Result) string {
	answered := r.Rate
	if due := r.Requests + r.Unsent; due > 0 && r.Unsent == 0 && r.Seconds > 0 {
		// All were sent: what is left of the rate is the wait for the last answer.
		answered = rate
	}
	switch {
	case r.Failed > 0:
		return fmt.Sprintf("%d requests failed", r.Failed)
	case r.Latency.P99 > s.Bound:
		if r.Lag.P99 > s.Bound {
			return fmt.Sprintf("p99 %s is above %s, but the generator was late itself", Time.Format(r.Latency.P99), Time.Format(s.Bound))
		}
		return fmt.Sprintf("p99 %s is above %s", Time.Format(r.Latency.P99), Time.Format(s.Bound))
	case answered < answeredMin*rate:
		return fmt.Sprintf("%s requests/s were answered", digits(r.Rate))
	}
	return ""
}

// wrong returns how many requests failed at rates that are not too high or
// for another reason than the load.
func (s *Sweep) wrong() int64 {
	var wrong int64
	for _, step := range s.Steps {
		for _, fault := range step.Result.Faults {
			switch fault.Fault {
			case FaultTimeout, FaultConnect, FaultBroken, FaultStatus: // overload looks like that
			default:
				wrong += fault.Count
			}
		}
	}
	return wrong
}

func (s *Sweep) writeText(w io.Writer) {
	fmt.Fprintf(w, "%s\n", s.Target)
	if len(s.Steps) > 0 {
		first := s.Steps[0].Result
		fmt.Fprintf(w, "  rate sweep from %s; %s connections; %s\n\n", first.Load, first.Model, first.Mix)
	}
	fmt.Fprintln(w, "  OFFERED\tANSWERED\tP50\tP99\tP99.9\tCPU/REQUEST\tGENERATOR LATE P99\tTOO HIGH BECAUSE")
	for _, step := range s.Steps {
		r, cpu := step.Result, "-"
		if r.Server != nil && r.Server.CPU != nil {
			cpu = Time.Format(*r.Server.CPU)
		}
		fmt.Fprintf(w, "  %s/s\t%s/s\t%s\t%s\t%s\t%s\t%s\t%s\n", digits(step.Rate), digits(r.Rate),
			Time.Format(r.Latency.P50), Time.Format(r.Latency.P99), Time.Format(r.Latency.P999), cpu, Time.Format(r.Lag.P99), step.Why)
	}
	fmt.Fprintf(w, "\n  knee\t%s requests/s with p99 under %s\n\n", digits(s.Knee), Time.Format(s.Bound))
	for _, step := range s.Steps {
		writeFaults(w, &Result{Faults: step.Result.Faults}) // how late the generator was is in the table
	}
}

// sorted returns the steps by rate, of two tries the second.
func (s *Sweep) sorted() []*Step {
	last := make(map[float64]*Step)
	for _, step := range s.Steps {
		last[step.Rate] = step
	}
	return slices.SortedFunc(maps.Values(last), func(a, b *Step) int { return cmp.Compare(a.Rate, b.Rate) })
}
