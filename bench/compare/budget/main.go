// Command budget runs the main cases of fastadmit under load, takes profiles,
// steps through requests, and fails when fastadmit allocates for a request,
// executes more instructions or takes a larger share of the processor than
// budget.json allows it.
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

// A bound is what a work may cost.
type bound struct {
	// Allocations are those of fastadmit for each request.
	Allocations float64 `json:"allocationsPerRequest"`
	// Instructions are those that fastadmit executes for a request beyond the
	// floor's.
	Instructions int64 `json:"instructionsPerRequest"`
	// CPUShare is the part of the processor time that is fastadmit's.
	CPUShare float64 `json:"cpuShare"`
	// Target is where the share is to get to: that of a request which costs as
	// many times the floor as the project wants it to.
	Target float64 `json:"targetCPUShare"`
}

const (
	inFlight = 32
	// connectionsKept is how many idle connections kube-apiserver keeps. With more
	// in flight, connections are opened anew, each of which allocates.
	connectionsKept = 25

	// warmUpCount is enough for each connection to have filled the pools.
	// allocatedCount makes little of what each connection needs once, some four
	// allocations, also where a busy machine is slow to open them and more are
	// opened than are kept; with it, an allocation in one of 100 requests shows.
	warmUpCount     = 5_000
	allocatedCount  = 60_000
	perRequestLeast = 0.01

	profiled = 5 * time.Second
)

type options struct {
	countsOnly bool
	keep       string // "" for profiles that nobody wants to have
	dir        string // of the profiles
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
	// A thread that traces a process occupies one of the runtime's processors (GOMAXPROCS)
	// while it waits for a step.
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + countedProcesses)
	works, err := contest.Works()
	if err != nil {
		return err
	}
	var budget map[string]bound
	if err := json.Unmarshal(bounds, &budget); err != nil {
		return fmt.Errorf("cannot read budget.json: %w", err)
	}
	var broken []error
	for _, w := range works {
		bound, ok := budget[w.Name]
		if !ok {
			continue
		}
		if err := o.allocations(ctx, stdout, arena, w, bound); err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", w.Name, err))
		}
		if err := o.instructions(ctx, stdout, arena, w, bound); err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", w.Name, err))
		}
		if o.countsOnly {
			continue
		}
		if err := o.processor(ctx, stdout, arena, w, bound); err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", w.Name, err))
		}
	}
	return errors.Join(broken...)
}

// load is the load on a process, which is as kube-apiserver's.
func load(p *contest.Process, l bench.Load) (bench.Config, error) {
	recording, err := bench.NewRecording(p.Work.Name, p.Work.Review)
	if err != nil {
		return bench.Config{}, err
	}
	recording.Expect = bench.Allowed
	mix, err := bench.NewMix([]*bench.Recording{recording}, nil, 1)
	l.InFlight = inFlight
	target := p.Target
	target.MetricsURL, target.PID = "", 0 // reading them allocates
	return bench.Config{Target: target, Mix: mix, Load: l}, err
}

// put puts a load on a process and sees to it that all answers are right.
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

// allocations counts what is allocated below fastadmit's functions. Every
// allocation is in the profile, and the garbage is left alone in between, for
// collecting it empties pools.
func (o *options) allocations(ctx context.Context, stdout io.Writer, arena *contest.Arena, w *contest.Work, bound bound) error {
	p, err := arena.Start(contest.OurContender(), w, contest.Settings{Env: []string{"GODEBUG=memprofilerate=1", "GOGC=off"}}, nil)
	if err != nil {
		return err
	}
	defer p.Stop()
	if _, err := p.Check(ctx, w); err != nil {
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
	before, err := o.fetch(ctx, p, "heap?gc=1", w.Name+".before.pprof")
	if err != nil {
		return err
	}
	config.Load.Count = allocatedCount
	result, err := put(ctx, config)
	if err != nil {
		return err
	}
	after, err := o.fetch(ctx, p, "heap?gc=1", w.Name+".allocs.pprof")
	if err != nil {
		return err
	}
	before.Scale(-1)
	grown, err := profile.Merge([]*profile.Profile{after, before})
	if err != nil {
		return err
	}
	ours, _, where := count(grown, "alloc_objects")
	each := float64(ours) / float64(result.Requests)
	fmt.Fprintf(stdout, "%-9s %.4f allocations per request are fastadmit's; allowed are %g\n",
		w.Name, each, bound.Allocations)
	if each >= bound.Allocations+perRequestLeast {
		return fmt.Errorf("got %.4f allocations per request, want %g; most of them at\n%s", each, bound.Allocations, where)
	}
	return nil
}

// processor takes the share of the processor time that is spent below
// fastadmit's functions.
func (o *options) processor(ctx context.Context, stdout io.Writer, arena *contest.Arena, w *contest.Work, bound bound) error {
	p, err := arena.Start(contest.OurContender(), w, contest.Settings{}, nil)
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
		cpu, err = o.fetch(ctx, p, fmt.Sprintf("profile?seconds=%d", profiled/time.Second-1), w.Name+".cpu.pprof")
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
		w.Name, 100*share, 100*bound.CPUShare, 100*bound.Target)
	if share > bound.CPUShare {
		return fmt.Errorf("got %.1f %% of the processor time, want at most %.1f %%; most of it at\n%s", 100*share, 100*bound.CPUShare, where)
	}
	return nil
}

// fetch gets a profile of the process and keeps it in a file.
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

// What names of functions begin with: fastadmit's packages, with the plugins of
// the contender; the transport, which they wrap and which calls them; and the
// function in which fasthttp serves the requests of a connection.
var (
	ourPackages       = []string{"github.com/fastadmit/fastadmit/", "main."}
	transportPackages = []string{"crypto/tls.", "net.", "internal/poll.", "syscall."}
	serves            = []string{"github.com/valyala/fasthttp.(*Server).serveConn"}
)

// isOurs tells whether what a sample counts is fastadmit's part of a request:
// the innermost function that is the transport's or fastadmit's is the latter,
// so what libraries and the runtime do for fastadmit is fastadmit's.
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

// count adds up the values of a kind: fastadmit's, and all. Where is the stack
// that has most of fastadmit's.
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
