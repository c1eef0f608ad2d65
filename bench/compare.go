package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// A Series contains the results of one target, one for each round.
type Series struct {
	Name   string    `json:"name"` // of the target
	Rounds []*Result `json:"rounds"`
}

// A Metric is a number in a result that reports compare.
type Metric struct {
	Name string
	Unit Unit
	// Of returns the number, or false if it was not measured.
	Of func(*Result) (float64, bool)
}

// Metrics returns all metrics, in the order of the reports.
func Metrics() []Metric {
	always := func(of func(*Result) float64) func(*Result) (float64, bool) {
		return func(r *Result) (float64, bool) { return of(r), r.Requests > 0 }
	}
	server := func(of func(*ServerUse) *float64) func(*Result) (float64, bool) {
		return func(r *Result) (float64, bool) {
			if r.Server == nil || of(r.Server) == nil {
				return 0, false
			}
			return *of(r.Server), true
		}
	}
	return []Metric{
		{"requests/s", Number, always(func(r *Result) float64 { return r.Rate })},
		{"latency mean", Time, always(func(r *Result) float64 { return r.Latency.Mean })},
		{"latency p50", Time, always(func(r *Result) float64 { return r.Latency.P50 })},
		{"latency p90", Time, always(func(r *Result) float64 { return r.Latency.P90 })},
		{"latency p99", Time, always(func(r *Result) float64 { return r.Latency.P99 })},
		{"latency p99.9", Time, always(func(r *Result) float64 { return r.Latency.P999 })},
		{"latency max", Time, always(func(r *Result) float64 { return r.Latency.Max })},
		{"CPU per request", Time, server(func(s *ServerUse) *float64 { return s.CPU })},
		{"processors busy", Number, server(func(s *ServerUse) *float64 { return s.Cores })},
		{"resident memory", Bytes, server(func(s *ServerUse) *float64 { return s.Resident })},
		{"allocations per request", Number, server(func(s *ServerUse) *float64 { return s.Allocations })},
		{"allocated per request", Bytes, server(func(s *ServerUse) *float64 { return s.AllocatedBytes })},
		{"garbage collections", Number, server(func(s *ServerUse) *float64 { return s.GCs })},
		{"pauses for garbage collection", Time, server(func(s *ServerUse) *float64 { return s.GCPause })},
		{"goroutines", Number, server(func(s *ServerUse) *float64 { return s.Goroutines })},
	}
}

// Spread summarizes the values of a metric in several rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// NewSpread returns the spread of at least one number.
func NewSpread(numbers []float64) Spread {
	sorted := slices.Sorted(slices.Values(numbers))
	n := len(sorted)
	return Spread{Median: (sorted[n/2] + sorted[(n-1)/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// Spread returns the spread of a metric over the rounds. It returns false if a round
// does not have the metric or if there are no rounds.
func (s *Series) Spread(m *Metric) (Spread, bool) {
	numbers := make([]float64, 0, len(s.Rounds))
	for _, round := range s.Rounds {
		if number, ok := m.Of(round); ok {
			numbers = append(numbers, number)
		}
	}
	if len(numbers) == 0 || len(numbers) < len(s.Rounds) {
		return Spread{}, false
	}
	return NewSpread(numbers), true
}

// Failed returns the number of failed requests in all rounds.
func (s *Series) Failed() int64 {
	var failed int64
	for _, round := range s.Rounds {
		failed += round.Failed
	}
	return failed
}

// A Ratio is the value of a metric for a target, divided by the value for the base. Each
// round has its own ratio; Spread summarizes them. So the ratio does not change if the
// machine is slower for both targets in some rounds.
type Ratio struct {
	Metric string `json:"metric"`
	Spread
}

// Compare returns the ratios of other to base. It skips metrics that a round of base or
// of other does not have, or that are 0 in a round of base.
func Compare(base, other *Series) []Ratio {
	var ratios []Ratio
	for _, m := range Metrics() {
		var numbers []float64
		for i := range min(len(base.Rounds), len(other.Rounds)) {
			b, inBase := m.Of(base.Rounds[i])
			o, inOther := m.Of(other.Rounds[i])
			if ratio := o / b; inBase && inOther && !math.IsNaN(ratio) && !math.IsInf(ratio, 0) {
				numbers = append(numbers, ratio)
			}
		}
		if len(numbers) > 0 && len(numbers) == len(base.Rounds) {
			ratios = append(ratios, Ratio{Metric: m.Name, Spread: NewSpread(numbers)})
		}
	}
	return ratios
}

// Disagreements compares the decisions of two targets in their first rounds. It returns
// a sentence for each recording that one target allowed and the other one denied.
func Disagreements(base, other *Series) []string {
	if len(base.Rounds) == 0 || len(other.Rounds) == 0 {
		return nil
	}
	var names []string
	decided := other.Rounds[0].decisions
	for name, allowed := range base.Rounds[0].decisions {
		if otherwise, ok := decided[name]; ok && otherwise != allowed {
			names = append(names, fmt.Sprintf("%s: %s by %s, %s by %s", name, decision(allowed), base.Name, decision(otherwise),
				other.Name))
		}
	}
	slices.Sort(names)
	return names
}

func decision(allowed bool) Expect {
	if allowed {
		return Allowed
	}
	return Denied
}

// Interleave runs all configs once in each round, and reverses their order in every
// other round. So a temporary load on the machine affects all targets. Only the first
// round takes profiles. If ctx ends early, Interleave drops the last round unless all
// configs have run in it or it is the first one. The error is the first one of Run.
func Interleave(ctx context.Context, rounds int, configs ...Config) ([]Series, error) {
	series := make([]Series, len(configs))
	for round := range rounds {
		results := make([]*Result, len(configs))
		for i := range configs {
			if round%2 == 1 {
				i = len(configs) - 1 - i
			}
			config := configs[i]
			config.Seed += uint64(round)
			if config.PprofDir != "" && round > 0 {
				config.PprofDir = "" // only the first round takes profiles
			}
			result, err := Run(ctx, config)
			if err != nil {
				return nil, err
			}
			results[i] = result
			if ctx.Err() != nil {
				break
			}
		}
		if ctx.Err() != nil && round > 0 && slices.Contains(results, nil) {
			break
		}
		for i, result := range results {
			series[i].Name = configs[i].Target.Name
			if result != nil {
				series[i].Name = result.Target
				series[i].Rounds = append(series[i].Rounds, result)
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return series, nil
}
