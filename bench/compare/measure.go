package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/compare/contest"
)

// A plan says how often and for how long things are measured.
type plan struct {
	Rounds     int           `json:"rounds"` // of closed loops and bursts
	RateRounds int           `json:"rateRounds"`
	LowRounds  int           `json:"lowRateRounds"`
	WarmUp     time.Duration `json:"warmUpNanoseconds"`
	Measured   time.Duration `json:"measuredNanoseconds"` // of each contender in each round
	KneeStep   time.Duration `json:"kneeStepNanoseconds"`
}

var (
	// full takes about eighteen minutes, without the worst reviews.
	full = plan{
		Rounds: 5, RateRounds: 2, LowRounds: 3, WarmUp: 200 * time.Millisecond, Measured: time.Second,
		KneeStep: 600 * time.Millisecond,
	}
	// quick takes two or three minutes and shows that everything works.
	quick = plan{
		Rounds: 1, RateRounds: 1, LowRounds: 1, WarmUp: 20 * time.Millisecond, Measured: 100 * time.Millisecond,
		KneeStep: 100 * time.Millisecond,
	}
)

const (
	// inFlight is how many requests a closed loop has in flight. Fewer large ones are enough to
	// keep a server busy.
	inFlight      = 32
	inFlightLarge = 4
	largeBytes    = 1 << 20

	// At the knee, 99 of 100 requests wait for at most ten others, or 20 ms: other programs on a
	// shared machine may delay them for that long.
	kneeRequests = 10
	kneeLeast    = 20 * time.Millisecond

	// requestsLeast is the minimum number of requests at a rate, if that takes at most twice the
	// time of other rates.
	requestsLeast = 30

	// burst is how many calls arrive at once, and burstsPerSecond how often.
	burst           = 60
	burstsPerSecond = 5
)

// lowRates are rates, in requests per second, that a cluster sends to a replica. At these, waking
// up costs more than answering.
var lowRates = []float64{20, 100, 300}

// shares are the rates at which latencies are measured, as shares of the knee.
var shares = []float64{0.25, 0.5, 0.75}

// A measurer runs a plan.
type measurer struct {
	plan
	arena    *contest.Arena
	named    func(name string) bool // the contenders besides fastadmit
	progress io.Writer
}

// config configures a run against a process.
func (m *measurer) config(p *contest.Process) (bench.Config, error) {
	recording, err := bench.NewRecording(p.Scenario.Name, p.Scenario.Review)
	if err != nil {
		return bench.Config{}, err
	}
	recording.Expect = bench.Allowed
	mix, err := bench.NewMix([]*bench.Recording{recording}, nil, 1)
	return bench.Config{
		Target: p.Target, Mix: mix, PatchSample: 1000,
		Load: bench.Load{WarmUp: m.WarmUp, Duration: m.Measured},
	}, err
}

func (m *measurer) configs(all []*contest.Process, load func(*bench.Load)) ([]bench.Config, error) {
	configs := make([]bench.Config, len(all))
	for i, p := range all {
		var err error
		if configs[i], err = m.config(p); err != nil {
			return nil, err
		}
		load(&configs[i].Load)
	}
	return configs, nil
}

// scenario measures all contenders in a scenario.
func (m *measurer) scenario(ctx context.Context, s *contest.Scenario) (*ScenarioResult, error) {
	all, err := m.arena.StartAll(ctx, s, m.named)
	if err != nil {
		return nil, err
	}
	defer contest.StopAll(all)
	result := &ScenarioResult{Name: s.Name, About: s.About, RequestBytes: len(s.Review)}
	fmt.Fprintf(m.progress, "%s: closed loops\n", s.Name)
	configs, err := m.configs(all, func(load *bench.Load) {
		load.InFlight = inFlight
		if len(s.Review) >= largeBytes {
			load.InFlight = inFlightLarge
		}
	})
	if err != nil {
		return nil, err
	}
	series, err := m.interleave(ctx, m.Rounds, configs)
	if err != nil {
		return nil, err
	}
	result.Rows = rows(series)
	slowest := slices.MinFunc(result.Rows, func(a, b Row) int { return cmp.Compare(a.Rate.Median, b.Rate.Median) })
	result.Slowest = slowest.Name
	if err := m.knee(ctx, all, result, slowest.Rate.Median); err != nil {
		return nil, err
	}
	if err := m.rates(ctx, all, result); err != nil {
		return nil, err
	}
	if len(s.Review) >= largeBytes {
		return result, nil // for large reviews, answering costs far more than waking up
	}
	return result, m.lowRates(ctx, all, result)
}

// interleave measures several configs in turns. It returns an error if an answer was wrong.
func (m *measurer) interleave(ctx context.Context, rounds int, configs []bench.Config) ([]bench.Series, error) {
	series, err := bench.Interleave(ctx, rounds, configs...)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for i := range series {
		for _, round := range series[i].Rounds {
			if round.Failed > 0 {
				return nil, fmt.Errorf("%s: %d requests failed; the first: %s: %s",
					series[i].Name, round.Failed, round.Faults[0].Fault, round.Faults[0].Example)
			}
		}
	}
	return series, nil
}

// knee finds the knee of the slowest contender. It is below the rate of the closed loop; the busier
// the machine is otherwise, the further below.
func (m *measurer) knee(ctx context.Context, all []*contest.Process, result *ScenarioResult, saturated float64) error {
	at := slices.IndexFunc(all, func(p *contest.Process) bool { return p.Contender.Name == result.Slowest })
	config, err := m.config(all[at])
	if err != nil {
		return err
	}
	bound := max(kneeLeast, time.Duration(kneeRequests/saturated*float64(time.Second)))
	var why string
	for _, part := range []float64{4, 16, 64} {
		fmt.Fprintf(m.progress, "%s: knee of %s\n", result.Name, result.Slowest)
		config.Load.Rate = saturated / part
		config.Load.Duration = lasting(m.KneeStep, config.Load.Rate)
		sweep, err := bench.FindKnee(ctx, config, bound)
		if err != nil {
			return err
		}
		if result.Knee = sweep.Knee; sweep.Knee > 0 {
			return nil
		}
		why = sweep.Steps[0].Why
	}
	return fmt.Errorf("%s: %s has no knee above %.0f requests/s: %s", result.Name, result.Slowest, config.Load.Rate, why)
}

// lasting returns for how long a rate is measured.
func lasting(measured time.Duration, rate float64) time.Duration {
	return max(measured, min(2*measured, time.Duration(requestsLeast/rate*float64(time.Second))))
}

// rates measures the latencies at shares of the knee.
func (m *measurer) rates(ctx context.Context, all []*contest.Process, result *ScenarioResult) error {
	for _, share := range shares {
		group := RateGroup{Share: share, Rate: share * result.Knee}
		fmt.Fprintf(m.progress, "%s: %.0f requests/s\n", result.Name, group.Rate)
		configs, err := m.configs(all, func(load *bench.Load) {
			load.Rate, load.Arrivals, load.Duration = group.Rate, bench.Poisson, lasting(m.Measured, group.Rate)
		})
		if err != nil {
			return err
		}
		series, err := m.interleave(ctx, m.RateRounds, configs)
		if err != nil {
			return err
		}
		for i := range series {
			l := series[i].Total().Latency
			group.Rows = append(group.Rows, LatencyRow{Name: series[i].Name, Requests: l.Count, P50: l.P50, P99: l.P99, P999: l.P999})
		}
		result.Rates = append(result.Rates, group)
	}
	return nil
}

// lowRates measures the cost of a request on kept connections, at rates that leave the server idle
// most of the time.
func (m *measurer) lowRates(ctx context.Context, all []*contest.Process, result *ScenarioResult) error {
	for _, rate := range lowRates {
		fmt.Fprintf(m.progress, "%s: %.0f requests/s\n", result.Name, rate)
		configs, err := m.configs(all, func(load *bench.Load) {
			load.Rate, load.Duration = rate, lasting(m.Measured, rate)
		})
		if err != nil {
			return err
		}
		series, err := m.interleave(ctx, m.LowRounds, configs)
		if err != nil {
			return err
		}
		group := LowRate{Rate: rate}
		for i := range series {
			group.Rows = append(group.Rows, LowRow{Name: series[i].Name, CPU: spread(&series[i], "CPU per request"),
				ToFloor: ratio(find(series, contest.Floor), &series[i])})
		}
		result.LowRates = append(result.LowRates, group)
	}
	return nil
}

// variants are other handshakes with fastadmit. The contenders use an ECDSA certificate and
// X25519MLKEM768, which Go and therefore kube-apiserver prefer.
var variants = []struct {
	key   string
	curve tls.CurveID // of the client
}{
	{contest.ECDSA, tls.X25519},
	{contest.RSA, tls.X25519MLKEM768},
	{contest.RSA, tls.X25519},
}

// bursts measures bursts of calls.
func (m *measurer) bursts(ctx context.Context, s *contest.Scenario) ([]BurstRow, error) {
	fmt.Fprintf(m.progress, "bursts\n")
	all, err := m.arena.StartAll(ctx, s, m.named)
	if err != nil {
		return nil, err
	}
	defer func() { contest.StopAll(all) }()
	for _, variant := range variants {
		p, err := m.arena.Start(contest.OurContender(), s, contest.Settings{Key: variant.key}, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
		p.Target.Name += ", " + variant.key + ", " + variant.curve.String()
		p.Target.TLS = p.Target.TLS.Clone()
		p.Target.TLS.CurvePreferences = []tls.CurveID{variant.curve}
	}
	configs, err := m.configs(all, func(load *bench.Load) { load.Rate, load.Burst = burst*burstsPerSecond, burst })
	if err != nil {
		return nil, err
	}
	series, err := m.interleave(ctx, m.Rounds, configs)
	if err != nil {
		return nil, err
	}
	rows := make([]BurstRow, len(series))
	for i := range series {
		total := series[i].Total()
		rows[i] = BurstRow{
			Name: series[i].Name, CPU: spread(&series[i], "CPU per request"), P50: total.Latency.P50, P99: total.Latency.P99,
			Handshakes: float64(total.Opened) / float64(total.Requests),
		}
	}
	return rows, nil
}

// rows summarizes closed loops.
func rows(series []bench.Series) []Row {
	floor, ours := find(series, contest.Floor), find(series, contest.Ours)
	all := make([]Row, len(series))
	for i := range series {
		s := &series[i]
		all[i] = Row{
			Name: s.Name, CPU: spread(s, "CPU per request"), Rate: spread(s, "requests/s"), Busy: spread(s, "processors busy"),
			Allocations: spread(s, "allocations per request"), Allocated: spread(s, "allocated per request"),
			Resident: spread(s, "resident memory"), ToFloor: ratio(floor, s), ToOurs: ratio(ours, s),
		}
	}
	return all
}

// find returns the series of a contender.
func find(series []bench.Series, name string) *bench.Series {
	return &series[slices.IndexFunc(series, func(s bench.Series) bool { return s.Name == name })]
}

// spread returns a metric that all rounds have.
func spread(s *bench.Series, name string) bench.Spread {
	metrics := bench.Metrics()
	at := slices.IndexFunc(metrics, func(m bench.Metric) bool { return m.Name == name })
	found, ok := s.Spread(&metrics[at])
	if !ok {
		panic(s.Name + " has no " + name)
	}
	return found
}

// ratio returns the processor time of a series, divided by that of the base.
func ratio(base, other *bench.Series) bench.Spread {
	for _, r := range bench.Compare(base, other) {
		if r.Metric == "CPU per request" {
			return r.Spread
		}
	}
	panic(other.Name + " has no CPU per request")
}
