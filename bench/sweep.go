package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

const (
	// sweepFrom is the default of the first rate of a sweep.
	sweepFrom = 500

	// sweepPrecision is the relative precision at which the search ends.
	sweepPrecision = 0.05

	// sweepStepsMax bounds the steps. 15 doublings exceed any server, 5 halvings of the last
	// doubling give the precision, and each rate that is too high is tried twice.
	sweepStepsMax = 28

	// answeredMin is the share of the offered rate that must be answered.
	answeredMin = 0.95
)

// A Sweep is a search for the knee: the highest rate at which the p99 latency is not
// above a bound.
type Sweep struct {
	Target string  `json:"target"` // name
	Bound  float64 `json:"p99BoundMicroseconds"`
	// Knee is in requests per second, 0 if the first rate is too high.
	Knee float64 `json:"kneePerSecond"`
	// Inconclusive is the reason why the search ended without a result; the real knee
	// may then be higher than Knee. It is empty if Knee is the result.
	Inconclusive string  `json:"inconclusiveBecause,omitempty"`
	Steps        []*Step `json:"steps"`
}

// A Step is the measurement of one rate.
type Step struct {
	Rate float64 `json:"offeredPerSecond"`
	// Why is the reason why the rate is too high, empty if it is not.
	Why    string  `json:"tooHighBecause,omitempty"`
	Result *Result `json:"result"`
}

// FindKnee runs open loops with different rates, each for the Duration of the load. It
// starts with the rate of the load, or 500 requests per second if that is 0. It doubles
// the rate until it is too high, and then halves the interval until the knee is known
// to 5 %. A rate is too high if the p99 latency is above the bound, if requests fail,
// or if some requests cannot be sent and less than 95 % of the rate is reached. A rate
// that is too high is tried twice, because the cause may be other load on the machine.
//
// FindKnee returns an error if Run does, or if the load has no Duration. If ctx ends
// early, the Sweep is inconclusive.
func FindKnee(ctx context.Context, config Config, bound time.Duration) (*Sweep, error) {
	sweeps, err := FindKnees(ctx, bound, config)
	if err != nil {
		return nil, err
	}
	return &sweeps[0], nil
}

// FindKnees is FindKnee for several configs. They take turns, and the order is reversed
// every other time. So a temporary load on the machine affects all of them.
func FindKnees(ctx context.Context, bound time.Duration, configs ...Config) ([]Sweep, error) {
	searches := make([]search, len(configs))
	for i := range configs {
		if configs[i].Load.Duration == 0 {
			return nil, errors.New("bench: got a sweep without a duration of its steps")
		}
		searches[i] = search{Sweep: Sweep{Bound: microseconds(bound)}, rate: cmp.Or(configs[i].Load.Rate, sweepFrom)}
	}
	err := inTurns(searches, func(i int, rate float64) (*Result, error) {
		step := configs[i]
		step.Load.Rate = rate
		result, err := Run(ctx, step)
		if err == nil {
			searches[i].Target = result.Target
		}
		return result, err
	}, func() bool { return ctx.Err() != nil })
	sweeps := make([]Sweep, len(searches))
	for i := range searches {
		sweeps[i] = searches[i].Sweep
	}
	return sweeps, err
}

// inTurns runs all searches to the end, one step of each in turn.
func inTurns(searches []search, run func(i int, rate float64) (*Result, error), interrupted func() bool) error {
	for turn := 0; ; turn++ {
		var tried bool
		for i := range searches {
			if turn%2 == 1 {
				i = len(searches) - 1 - i
			}
			s := &searches[i]
			if s.over {
				continue
			}
			if interrupted() && len(s.Steps) > 0 {
				s.end("it was interrupted")
				continue
			}
			result, err := run(i, s.rate)
			if err != nil {
				return err
			}
			s.step(result, interrupted())
			tried = true
		}
		if !tried {
			return nil
		}
	}
}

// A search is a sweep under way.
type search struct {
	Sweep
	rate    float64 // the next rate to try
	tooHigh float64 // the lowest rate that was too high, 0 if none was
	again   bool    // the rate was too high and is tried a second time
	late    bool    // the generator was late at that rate
	over    bool
}

func (s *search) end(inconclusive string) { s.over, s.Inconclusive = true, inconclusive }

// step records the result of the rate that was tried, and chooses the next.
func (s *search) step(result *Result, interrupted bool) {
	step := &Step{Rate: s.rate, Why: s.why(s.rate, result), Result: result}
	s.Steps = append(s.Steps, step)
	s.over = interrupted || len(s.Steps) == sweepStepsMax
	if interrupted {
		step.Why, s.Inconclusive = "interrupted", "it was interrupted"
		return
	}
	if s.over {
		s.Inconclusive = fmt.Sprintf("not finished after %d steps", len(s.Steps))
	}
	s.again = step.Why != "" && !s.again
	switch {
	case s.again:
		return
	case step.Why == "":
		s.Knee = s.rate
	default:
		s.tooHigh, s.late = s.rate, result.Lag.P99 > s.Bound
	}
	switch {
	case s.Knee == 0: // the first rate is too high
		s.end("the first rate is too high already; begin with a lower one")
	case s.tooHigh == 0:
		s.rate *= 2
	case s.tooHigh-s.Knee <= sweepPrecision*s.Knee && s.late:
		s.end(fmt.Sprintf("at %s requests/s the generator was late itself, so the server may take more", digits(s.tooHigh)))
	case s.tooHigh-s.Knee <= sweepPrecision*s.Knee:
		s.end("")
	default:
		s.rate = (s.Knee + s.tooHigh) / 2
	}
}

// why returns the reason why a rate is too high, "" if it is not.
func (s *Sweep) why(rate float64, r *Result) string {
	answered := r.Rate
	if due := r.Requests + r.Unsent; due > 0 && r.Unsent == 0 && r.Seconds > 0 {
		// All requests were sent. The rate is lower only because the last answer took time.
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

// wrong returns how many requests failed at rates that are not too high, or for a reason other than
// overload.
func (s *Sweep) wrong() int64 {
	var wrong int64
	for _, step := range s.Steps {
		for _, fault := range step.Result.Faults {
			switch fault.Fault {
			case FaultTimeout, FaultConnect, FaultBroken, FaultStatus: // overload can cause these
			default:
				wrong += fault.Count
			}
		}
	}
	return wrong
}

// Outcome describes the knee in words, or why the sweep is inconclusive.
func (s *Sweep) Outcome() string {
	under := fmt.Sprintf("%s requests/s with p99 under %s", digits(s.Knee), Time.Format(s.Bound))
	switch {
	case s.Inconclusive == "":
		return under
	case s.Knee == 0:
		return "inconclusive: " + s.Inconclusive
	}
	return fmt.Sprintf("inconclusive, at least %s: %s", under, s.Inconclusive)
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
	fmt.Fprintf(w, "\n  knee\t%s\n\n", s.Outcome())
	for _, step := range s.Steps {
		writeFaults(w, &Result{Faults: step.Result.Faults}) // the table shows how late the generator was
	}
}

// sorted returns the steps by rate. If a rate was tried twice, it returns the second try.
func (s *Sweep) sorted() []*Step {
	last := make(map[float64]*Step)
	for _, step := range s.Steps {
		last[step.Rate] = step
	}
	return slices.SortedFunc(maps.Values(last), func(a, b *Step) int { return cmp.Compare(a.Rate, b.Rate) })
}
