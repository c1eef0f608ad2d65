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
	Knee float64 `json:"kneePerSecond"`
	// Inconclusive says why Knee is no more than the highest rate that was found not
	// to be too high. It is empty if Knee is the answer.
	Inconclusive string  `json:"inconclusiveBecause,omitempty"`
	Steps        []*Step `json:"steps"`
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
// elsewhere on the machine. It begins at the rate of the load, or at 500
// requests per second. A rate is too high when the p99 latency is above the
// bound, requests fail, or less than 95 % of it is answered.
func FindKnee(ctx context.Context, config Config, bound time.Duration) (*Sweep, error) {
	sweeps, err := FindKnees(ctx, bound, config)
	if err != nil {
		return nil, err
	}
	return &sweeps[0], nil
}

// FindKnees is FindKnee for several configs. They try their rates in turns,
// every other time in the opposite order, so that what comes and goes on the
// machine is in the numbers of all.
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

// inTurns takes the searches to their ends, a step of each in turn.
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
	rate    float64 // that is tried next
	tooHigh float64 // the lowest rate that is, 0 while there is none
	again   bool    // the rate was too high, and is tried once more
	late    bool    // the generator was, at that rate
	over    bool
}

func (s *search) end(inconclusive string) { s.over, s.Inconclusive = true, inconclusive }

// step notes what came of the rate that was tried, and chooses the next.
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
	case s.Knee == 0: // the first is too high
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

// why says why a rate is too high, "" if it is not.
func (s *Sweep) why(rate float64, r *Result) string {
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

// Outcome is the knee in words, or why there is none.
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
