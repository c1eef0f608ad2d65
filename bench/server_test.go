package bench

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// metricsPage is the /metrics of a Go program, before and after a run.
func metricsPage(cpu, allocations float64) string {
	return fmt.Sprintf(`# HELP process_cpu_seconds_total Total user and system CPU time spent in seconds.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total %g
process_resident_memory_bytes 3.0e+07
go_memstats_mallocs_total %g 1700000000000
go_memstats_alloc_bytes_total{x="y"} 5
go_gc_duration_seconds{quantile="0"} 1
go_gc_duration_seconds_count 7
go_goroutines 12
broken x
`, cpu, allocations)
}

func TestServerSideFromMetrics(t *testing.T) {
	var scrapes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := float64(scrapes.Add(1))
		switch r.URL.Path {
		case "/metrics":
			io.WriteString(w, metricsPage(n*0.5, n*1000))
		case "/debug/pprof/profile":
			io.WriteString(w, "cpu for "+r.URL.Query().Get("seconds"))
		case "/debug/pprof/heap":
			io.WriteString(w, "heap")
		default:
			http.Error(w, "nothing here", http.StatusNotFound)
		}
	}))
	defer server.Close()
	target := newWebhook(t, allow)
	target.MetricsURL, target.PprofURL = server.URL+"/metrics", server.URL+"/debug/pprof/"
	dir := filepath.Join(t.TempDir(), "profiles")
	load := Load{Count: 100}
	result := run(t, Config{Target: target, Load: load, Mix: pod(t, "v1")})
	use := result.Server
	if use == nil || *use.CPU != 5000 || *use.Allocations != 10 || *use.Resident != 3e7 || *use.Goroutines != 12 || *use.GCs != 0 {
		t.Fatalf("got %+v", use)
	}
	if use.AllocatedBytes != nil || use.GCPause != nil {
		t.Errorf("got %+v for what is not there", use)
	}

	result = run(t, Config{Target: target, Load: load, Mix: pod(t, "v1"), PprofDir: dir})
	for name, want := range map[string]string{"cpu.pprof": "cpu for 5", "heap.pprof": "heap"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q and %v, want %q", name, got, err, want)
		}
	}
	if len(result.Notes) != 1 || !strings.Contains(result.Notes[0], "cannot take allocs.pprof: got status 404") {
		t.Errorf("got the notes %q", result.Notes)
	}
}

func TestServerSideErrors(t *testing.T) {
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	f := func(change func(*Config), want string) {
		t.Helper()
		config := Config{Target: newWebhook(t, allow), Load: Load{Count: 1}, Mix: pod(t, "v1")}
		change(&config)
		if _, err := Run(t.Context(), config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(func(c *Config) { c.Target.MetricsURL = missing.URL + "/metrics" }, "got status 404 Not Found")
	f(func(c *Config) { c.Target.PID = 1 << 30 }, "cannot read process")
	f(func(c *Config) { c.PprofDir = t.TempDir() }, "without the target's PprofURL")
}

func TestServerSideFromProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are read on Linux only")
	}
	target := newWebhook(t, allow)
	target.PID = os.Getpid()
	use := run(t, Config{Target: target, Load: Load{Count: 20}, Mix: pod(t, "v1")}).Server
	if use == nil || use.CPU == nil || use.Resident == nil || *use.Resident < 1<<20 || use.Allocations != nil {
		t.Errorf("got %+v", use)
	}
}

func TestSweepFindsTheKnee(t *testing.T) {
	f := func(capacity, from float64, disturbed int, wantLow, wantHigh float64) {
		t.Helper()
		searches := []search{{Sweep: Sweep{Bound: 1000}, rate: from}}
		s := &searches[0]
		tried := 0
		err := inTurns(searches, func(_ int, rate float64) (*Result, error) {
			p99 := 100.0
			if tried++; rate > capacity || tried == disturbed {
				p99 = 5000
			}
			return &Result{Requests: 1, Rate: rate, Latency: Latency{P99: p99}}, nil
		}, func() bool { return false })
		if err != nil || s.Knee < wantLow || s.Knee > wantHigh || len(s.Steps) > sweepStepsMax {
			t.Errorf("capacity %g: got knee %g in %d steps, %v", capacity, s.Knee, len(s.Steps), err)
		}
	}
	f(10_000, 500, 0, 9500, 10_000)
	f(10_000, 500, 2, 9500, 10_000) // a single failure is not the knee
	f(500, 500, 0, 475, 500)
	f(400, 500, 0, 0, 0)
	f(1e12, 500, 0, 1e8, 1e12)
}

// TestSweepInconclusive checks the reason that a sweep without a knee gives.
func TestSweepInconclusive(t *testing.T) {
	f := func(capacity float64, late bool, interruptedAfter int, want string) {
		t.Helper()
		searches := []search{{Sweep: Sweep{Bound: 1000}, rate: 500}}
		s := &searches[0]
		err := inTurns(searches, func(_ int, rate float64) (*Result, error) {
			r := &Result{Requests: 1, Rate: rate, Latency: Latency{P99: 100}}
			if rate > capacity {
				r.Latency.P99 = 5000
				if late {
					r.Lag.P99 = 4000
				}
			}
			return r, nil
		}, func() bool { return len(s.Steps) >= interruptedAfter })
		if err != nil || s.Outcome() != want {
			t.Errorf("capacity %g: got %q and %v, want %q", capacity, s.Outcome(), err, want)
		}
		if s.Inconclusive == "" == strings.Contains(want, "inconclusive") {
			t.Errorf("got the reason %q and the outcome %q", s.Inconclusive, s.Outcome())
		}
	}
	f(500, false, 100, "500 requests/s with p99 under 1 ms")
	f(499, false, 100, "inconclusive: the first rate is too high already; begin with a lower one")
	f(500, true, 100, "inconclusive, at least 500 requests/s with p99 under 1 ms: at 516 requests/s the generator was late itself, so "+
		"the server may take more")
	f(1e9, false, 2, "inconclusive, at least 1000 requests/s with p99 under 1 ms: it was interrupted")
	f(1e12, false, 100, "inconclusive, at least 67108864000 requests/s with p99 under 1 ms: not finished after 28 steps")
}

// TestSweepsTakeTurns runs two sweeps, one of which ends sooner, and interrupts one.
func TestSweepsTakeTurns(t *testing.T) {
	f := func(interruptedAfter int, want string) {
		t.Helper()
		searches := []search{{Sweep: Sweep{Bound: 1000}, rate: 1}, {Sweep: Sweep{Bound: 1000}, rate: 1}}
		var order strings.Builder
		err := inTurns(searches, func(i int, rate float64) (*Result, error) {
			fmt.Fprintf(&order, "%c%g ", 'a'+i, rate)
			r := &Result{Requests: 1, Rate: rate}
			if rate > float64(2*i) {
				r.Failed = 1
			}
			return r, nil
		}, func() bool { return strings.Count(order.String(), " ") >= interruptedAfter })
		if got := strings.TrimSpace(order.String()); err != nil || got != want {
			t.Errorf("got %s and %v, want %s", got, err, want)
		}
	}
	f(100, "a1 b1 b2 a1 b4 b4 b3 b3 b2.5 b2.5 b2.25 b2.25 b2.125 b2.125 b2.0625 b2.0625")
	f(2, "a1 b1")
	f(3, "a1 b1 b2")
	f(1, "a1 b1") // each has one step
}

func TestTooHigh(t *testing.T) {
	s := &Sweep{Bound: 1000}
	f := func(r Result, want string) {
		t.Helper()
		if got := s.why(1000, &r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(Result{Requests: 1000, Seconds: 1.2, Rate: 833, Latency: Latency{P99: 900}}, "")
	f(Result{Requests: 1000, Seconds: 1, Rate: 1000, Latency: Latency{P99: 1001}}, "p99 1.00 ms is above 1 ms")
	f(Result{Requests: 500, Unsent: 500, Seconds: 1, Rate: 500}, "500 requests/s were answered")
	f(Result{Requests: 1000, Failed: 2}, "2 requests failed")
}

func TestCompare(t *testing.T) {
	cpu := func(v float64) *ServerUse { return &ServerUse{CPU: &v} }
	base := &Series{Name: "a", Rounds: []*Result{
		{Requests: 1, Rate: 100, Server: cpu(10), decisions: map[string]bool{"x": true, "y": true, "z": false}},
		{Requests: 1, Rate: 200, Server: cpu(20)},
		{Requests: 1, Rate: 400, Server: cpu(10)},
	}}
	other := &Series{Name: "b", Rounds: []*Result{
		{Requests: 1, Rate: 50, Server: cpu(20), decisions: map[string]bool{"x": true, "y": false}},
		{Requests: 1, Rate: 200, Server: cpu(20)},
		{Requests: 1, Rate: 100, Server: &ServerUse{}},
	}}
	ratios := Compare(base, other)
	at := slices.IndexFunc(ratios, func(r Ratio) bool { return r.Metric == "requests/s" })
	if at < 0 || ratios[at].Spread != (Spread{Median: 0.5, Min: 0.25, Max: 1}) {
		t.Errorf("got %+v", ratios)
	}
	if slices.ContainsFunc(ratios, func(r Ratio) bool { return r.Metric == "CPU per request" }) {
		t.Error("there is a ratio of what was not measured in all rounds")
	}
	if got := Disagreements(base, other); len(got) != 1 || got[0] != "y: allowed by a, denied by b" {
		t.Errorf("got %q", got)
	}
}

func TestInterleave(t *testing.T) {
	var mu sync.Mutex
	var order []string
	target := func(name string) Config {
		target := newWebhook(t, func(w http.ResponseWriter, r *review) {
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			allow(w, r)
		})
		target.Name = name
		return Config{Target: target, Load: Load{Count: 1}, Mix: pod(t, "v1")}
	}
	series, err := Interleave(t.Context(), 3, target("a"), target("b"))
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(order, ""); got != "abbaab" {
		t.Errorf("got the order %s, want abbaab", got)
	}
	if len(series) != 2 || series[0].Name != "a" || series[1].Name != "b" || len(series[0].Rounds) != 3 || len(series[1].Rounds) != 3 {
		t.Errorf("got %+v", series)
	}
}

func TestTimelineNarrowsToItsSlots(t *testing.T) {
	r := newRecorder()
	recording := &Recording{Kind: "x"}
	for i := range 1000 {
		r.record(&sample{recording: recording, done: time.Duration(i) * slotMin})
	}
	result := r.result()
	var requests int64
	for _, slot := range result.Timeline {
		requests += slot.Requests
	}
	if len(result.Timeline) > slotsMax || requests != 1000 || result.SlotSeconds != 0.8 {
		t.Errorf("got %d slots of %g s with %d requests", len(result.Timeline), result.SlotSeconds, requests)
	}
}

func TestLatencyAndLag(t *testing.T) {
	r := newRecorder()
	r.record(&sample{recording: &Recording{Kind: "x"}, due: time.Millisecond, sent: 5 * time.Millisecond, done: 7 * time.Millisecond})
	result := r.result()
	near := func(got, want float64) bool { return got > want*0.999 && got < want*1.001 }
	if !near(result.Latency.Max, 6000) || !near(result.Lag.Max, 4000) || !near(result.Kinds[0].Mean, 6000) ||
		!near(result.Timeline[0].Slowest, 6000) {
		t.Errorf("got %+v", result)
	}
	result.noteLag()
	if len(result.Notes) != 1 || !strings.Contains(result.Notes[0], "the generator sent late (p99 4") {
		t.Errorf("got the notes %q", result.Notes)
	}
}
