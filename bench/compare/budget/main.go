// Command budget runs fastadmit's main scenarios under load, takes profiles and counts the
// instructions of single requests. It fails if fastadmit allocates for a request, executes more
// instructions or takes a larger share of the processor than budget.json allows.
package main

import (
	"bytes"
	"context"
	_ "embed" // budget.json
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/compare/contest"
)

//go:embed budget.json
var bounds []byte

// A bound is what a scenario may cost.
type bound struct {
	// Allocations is the number of fastadmit's allocations for each request.
	Allocations float64 `json:"allocationsPerRequest"`
	// Instructions is how many more instructions than the floor fastadmit executes for a request. The
	// same binary executes up to 2.7 % more on one machine than on another: 164,580 and 168,950 of ten.
	Instructions int64 `json:"instructionsPerRequest"`
	// CPUShare is fastadmit's share of the processor time.
	CPUShare float64 `json:"cpuShare"`
	// Target is the share that the project aims for. It follows from the ratio to the floor that
	// the project aims for.
	Target float64 `json:"targetCPUShare"`
}

const (
	inFlight = 32
	// connectionsKept is how many idle connections kube-apiserver keeps. With more requests in
	// flight, new connections are opened, and each allocates.
	connectionsKept = 25

	// warmUpCount is enough for each connection to fill the pools. An allocation in one of 100
	// requests still shows. A new connection allocates about perConnection times; a busy machine is slow to
	// open them, so more are opened than kept.
	warmUpCount     = 5_000
	allocatedCount  = 60_000
	perRequestLeast = 0.01
	perConnection   = 8

	profiled = 5 * time.Second
)

type options struct {
	countsOnly bool
	keep       string // "" if profiles are deleted
	dir        string // the directory of the profiles
}

func main() {
	var o options
	flag.BoolVar(&o.countsOnly, "counts-only", false, "leave out the processor time, which needs a quiet machine")
	flag.StringVar(&o.keep, "keep", "", "directory to keep the profiles in")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := o.run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "budget:", err)
		os.Exit(1)
	}
}

func (o *options) run(ctx context.Context, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "fastadmit-budget")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.dir = o.keep; o.dir == "" {
		o.dir = dir
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	arena, err := contest.NewArena(ctx, dir, contest.OurContender(), contest.FloorContender())
	if err != nil {
		return err
	}
	// A thread that traces a process occupies a slot of the Go scheduler (GOMAXPROCS) while it
	// waits for a step.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + countedProcesses)
	scenarios, err := contest.Scenarios()
	if err != nil {
		return err
	}
	var budget map[string]bound
	if err := json.Unmarshal(bounds, &budget); err != nil {
		return fmt.Errorf("cannot read budget.json: %w", err)
	}
	var broken []error
	for _, s := range scenarios {
		bound, ok := budget[s.Name]
		if !ok {
			continue
		}
		if err := o.allocations(ctx, stdout, arena, s, bound); err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", s.Name, err))
		}
		if err := o.instructions(ctx, stdout, arena, s, bound); err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", s.Name, err))
		}
		if o.countsOnly {
			continue
		}
		if err := o.processor(ctx, stdout, arena, s, bound); err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", s.Name, err))
		}
	}
	return errors.Join(broken...)
}

// load configures a run against a process, with kube-apiserver's model.
func load(p *contest.Process, l bench.Load) (bench.Config, error) {
	recording, err := bench.NewRecording(p.Scenario.Name, p.Scenario.Review)
	if err != nil {
		return bench.Config{}, err
	}
	recording.Expect = bench.Allowed
	mix, err := bench.NewMix([]*bench.Recording{recording}, nil, 1)
	l.InFlight = inFlight
	target := p.Target
	target.MetricsURL, target.PID = "", 0 // reading the metrics allocates
	return bench.Config{Target: target, Mix: mix, Load: l}, err
}

// put runs a load. It returns an error if an answer was wrong.
func put(ctx context.Context, config bench.Config) (*bench.Result, error) {
	result, err := bench.Run(ctx, config)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if result.Failed > 0 {
		return nil, fmt.Errorf("%d requests failed; the first: %s", result.Failed, result.Faults[0].Example)
	}
	return result, nil
}

// allocations counts the allocations below fastadmit's functions. The profile contains every
// allocation. The garbage collector is off, because it would empty the pools.
func (o *options) allocations(ctx context.Context, stdout io.Writer, arena *contest.Arena, s *contest.Scenario, bound bound) error {
	p, err := arena.Start(contest.OurContender(), s, contest.Settings{Env: []string{"GODEBUG=memprofilerate=1", "GOGC=off"}}, nil)
	if err != nil {
		return err
	}
	defer p.Stop()
	if _, err := p.Check(ctx, s); err != nil {
		return err
	}
	config, err := load(p, bench.Load{Count: warmUpCount})
	if err != nil {
		return err
	}
	config.Load.InFlight = connectionsKept
	if _, err := put(ctx, config); err != nil {
		return err
	}
	before, err := o.fetch(ctx, p, "heap?gc=1", s.Name+".before.pprof")
	if err != nil {
		return err
	}
	config.Load.Count = allocatedCount
	result, err := put(ctx, config)
	if err != nil {
		return err
	}
	after, err := o.fetch(ctx, p, "heap?gc=1", s.Name+".allocs.pprof")
	if err != nil {
		return err
	}
	before.Scale(-1)
	grown, err := profile.Merge([]*profile.Profile{after, before})
	if err != nil {
		return err
	}
	ours, _, where := count(grown, "alloc_objects")
	each := max(0, float64(ours-perConnection*result.Opened)) / float64(result.Requests)
	fmt.Fprintf(stdout, "%-9s %.4f allocations per request are fastadmit's, without those of %d new connections; allowed are %g\n",
		s.Name, each, result.Opened, bound.Allocations)
	if each >= bound.Allocations+perRequestLeast {
		return fmt.Errorf("got %.4f allocations per request, want %g; most of them at\n%s", each, bound.Allocations, where)
	}
	return nil
}

// processor measures the share of processor time that is spent below fastadmit's functions.
func (o *options) processor(ctx context.Context, stdout io.Writer, arena *contest.Arena, s *contest.Scenario, bound bound) error {
	p, err := arena.Start(contest.OurContender(), s, contest.Settings{}, nil)
	if err != nil {
		return err
	}
	defer p.Stop()
	config, err := load(p, bench.Load{WarmUp: time.Second, Duration: profiled})
	if err != nil {
		return err
	}
	fetched := make(chan error, 1)
	var cpu *profile.Profile
	time.AfterFunc(config.Load.WarmUp, func() {
		var err error
		cpu, err = o.fetch(ctx, p, fmt.Sprintf("profile?seconds=%d", profiled/time.Second-1), s.Name+".cpu.pprof")
		fetched <- err
	})
	if _, err := put(ctx, config); err != nil {
		return err
	}
	if err := <-fetched; err != nil {
		return err
	}
	ours, all, where := count(cpu, "cpu")
	share := float64(ours) / float64(max(1, all))
	fmt.Fprintf(stdout, "%-9s %.1f %% of the processor time is fastadmit's; allowed are %.1f %%, the target is %.1f %%\n",
		s.Name, 100*share, 100*bound.CPUShare, 100*bound.Target)
	if share > bound.CPUShare {
		return fmt.Errorf("got %.1f %% of the processor time, want at most %.1f %%; most of it at\n%s", 100*share, 100*bound.CPUShare,
			where)
	}
	return nil
}

// fetch gets a profile of the process and writes it to a file.
func (o *options) fetch(ctx context.Context, p *contest.Process, query, file string) (*profile.Profile, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Target.PprofURL+"/"+query, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: got status %s: %s", query, response.Status, content)
	}
	if err := os.WriteFile(filepath.Join(o.dir, file), content, 0o644); err != nil {
		return nil, err
	}
	return profile.Parse(bytes.NewReader(content))
}

// Prefixes of function names: fastadmit's packages and the plugins of the contender; the transport,
// which they wrap and which calls them; and the function in which fasthttp serves the requests of a
// connection.
var (
	ourPackages       = []string{"github.com/fastadmit/fastadmit/", "main."}
	transportPackages = []string{"crypto/tls.", "net.", "internal/poll.", "syscall."}
	serves            = []string{"github.com/valyala/fasthttp.(*Server).serveConn"}
)

// isOurs reports whether a sample belongs to fastadmit's part of a request. The innermost function
// of the transport or of fastadmit decides. So the work of libraries and the runtime counts for the
// one that called them.
func isOurs(sample *profile.Sample) bool {
	var decided, ours bool
	for _, location := range sample.Location {
		for _, line := range location.Line {
			switch name := line.Function.Name; {
			case hasPrefix(name, serves):
				return ours
			case decided:
			case hasPrefix(name, transportPackages):
				decided = true
			case hasPrefix(name, ourPackages):
				decided, ours = true, true
			}
		}
	}
	return false
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// count adds up the values of a type: fastadmit's, and all. It returns the stack with the largest
// value of fastadmit's.
func count(p *profile.Profile, kind string) (ours, all int64, where string) {
	at := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == kind })
	var most int64
	for _, sample := range p.Sample {
		value := sample.Value[at]
		all += value
		if !isOurs(sample) {
			continue
		}
		ours += value
		if value > most {
			most, where = value, stack(sample)
		}
	}
	return ours, all, where
}

func stack(sample *profile.Sample) string {
	var b strings.Builder
	for _, location := range sample.Location {
		for _, line := range location.Line {
			fmt.Fprintf(&b, "\t%s:%d\n", line.Function.Name, line.Line)
		}
	}
	return b.String()
}
