package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// scrapeTimeout bounds one read of /metrics.
	scrapeTimeout = 10 * time.Second

	// metricsBytesMax bounds the size of /metrics, and profileBytesMax that of a profile.
	metricsBytesMax = 64 << 20
	profileBytesMax = 256 << 20

	// profileSecondsDefault is how long the CPU is profiled if the load has no Duration.
	profileSecondsDefault = 5
)

// ServerUse is the resource usage of the server in a run. A field is nil if its value
// is unknown.
type ServerUse struct {
	// CPU is the CPU time per request in microseconds. Cores is the average number of
	// busy CPUs.
	CPU   *float64 `json:"cpuMicrosecondsPerRequest,omitempty"`
	Cores *float64 `json:"cores,omitempty"`
	// Resident is the resident memory after the run, in bytes.
	Resident *float64 `json:"residentBytes,omitempty"`
	// Allocations and AllocatedBytes are heap allocations per request.
	Allocations    *float64 `json:"allocationsPerRequest,omitempty"`
	AllocatedBytes *float64 `json:"allocatedBytesPerRequest,omitempty"`
	// GCs is the number of garbage collections. GCPause is the total time for which
	// they stopped the program, in microseconds.
	GCs     *float64 `json:"gcCycles,omitempty"`
	GCPause *float64 `json:"gcPauseMicroseconds,omitempty"`
	// Goroutines is the number of goroutines after the run.
	Goroutines *float64 `json:"goroutines,omitempty"`
}

// The metrics that are read. These are the names in most Go programs (prometheus/client_golang,
// VictoriaMetrics/metrics).
const (
	cpuSeconds    = "process_cpu_seconds_total"
	residentBytes = "process_resident_memory_bytes"
	mallocs       = "go_memstats_mallocs_total"
	allocBytes    = "go_memstats_alloc_bytes_total"
	gcCount       = "go_gc_duration_seconds_count"
	gcSeconds     = "go_gc_duration_seconds_sum"
	goroutines    = "go_goroutines"
)

// readings are the values of the metrics at one time.
type readings struct {
	at     time.Time
	values map[string]float64
}

// A watch reads the server's metrics before and after the measurement.
type watch struct {
	target   *Target
	before   readings
	dir      string
	profiles sync.WaitGroup
	mu       sync.Mutex
	notes    []string
}

// startWatch reads the metrics and begins to profile.
func startWatch(ctx context.Context, target *Target, pprofDir string, load *Load) (*watch, error) {
	w := &watch{target: target, dir: pprofDir}
	var err error
	if w.before, err = w.read(); err != nil {
		return nil, fmt.Errorf("bench: %w", err)
	}
	if w.dir == "" {
		return w, nil
	}
	if target.PprofURL == "" {
		return nil, errors.New("bench: got a directory for profiles, but not where the server's pprof is")
	}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return nil, fmt.Errorf("bench: cannot save profiles: %w", err)
	}
	seconds := max(1, int(load.Duration/time.Second))
	if load.Duration == 0 {
		seconds = profileSecondsDefault
	}
	w.profiles.Add(1)
	go func() {
		defer w.profiles.Done()
		w.profile(ctx, "cpu.pprof", fmt.Sprintf("profile?seconds=%d", seconds))
	}()
	return w, nil
}

// finish reads the metrics again and adds the difference to the result.
func (w *watch) finish(result *Result) {
	after, err := w.read()
	w.profiles.Wait()
	if w.dir != "" {
		w.profile(context.Background(), "heap.pprof", "heap")
		w.profile(context.Background(), "allocs.pprof", "allocs")
	}
	if err != nil {
		w.note(err.Error())
	} else if after.values != nil {
		result.Server = w.before.until(&after, result.Requests)
	}
	result.Notes = append(result.Notes, w.notes...)
}

func (w *watch) note(text string) {
	w.mu.Lock()
	w.notes = append(w.notes, text)
	w.mu.Unlock()
}

// read reads the target's metrics. Values from the kernel take precedence.
func (w *watch) read() (readings, error) {
	var r readings
	if w.target.MetricsURL != "" {
		values, err := scrape(w.target.MetricsURL)
		if err != nil {
			return r, fmt.Errorf("cannot read %s: %w", w.target.MetricsURL, err)
		}
		r.values = values
	}
	if w.target.PID != 0 {
		cpu, resident, err := readProcess(w.target.PID)
		if err != nil {
			return r, fmt.Errorf("cannot read process %d: %w", w.target.PID, err)
		}
		if r.values == nil {
			r.values = make(map[string]float64)
		}
		r.values[cpuSeconds], r.values[residentBytes] = cpu.Seconds(), resident
	}
	r.at = time.Now()
	return r, nil
}

// until returns the usage between two readings.
func (r *readings) until(after *readings, requests int64) *ServerUse {
	value := func(of *readings, name string, scale float64) *float64 {
		v, ok := of.values[name]
		if !ok || math.IsNaN(v) {
			return nil
		}
		v *= scale
		return &v
	}
	grown := func(name string, scale float64) *float64 {
		begin, end := value(r, name, scale), value(after, name, scale)
		if begin == nil || end == nil || *end < *begin { // the server was restarted
			return nil
		}
		*end -= *begin
		return end
	}
	use := &ServerUse{
		Cores:    grown(cpuSeconds, 1/after.at.Sub(r.at).Seconds()),
		Resident: value(after, residentBytes, 1), Goroutines: value(after, goroutines, 1),
		GCs: grown(gcCount, 1), GCPause: grown(gcSeconds, 1e6),
	}
	if requests > 0 {
		each := 1 / float64(requests)
		use.CPU = grown(cpuSeconds, 1e6*each)
		use.Allocations, use.AllocatedBytes = grown(mallocs, each), grown(allocBytes, each)
	}
	return use
}

// scrape reads the series without labels of a page in the text format of
// Prometheus.
func scrape(url string) (map[string]float64, error) {
	body, err := fetch(context.Background(), url, scrapeTimeout)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	values := make(map[string]float64)
	lines := bufio.NewScanner(io.LimitReader(body, metricsBytesMax))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		name, rest, ok := strings.Cut(line, " ")
		if !ok || strings.HasPrefix(line, "#") || strings.Contains(name, "{") {
			continue
		}
		text, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a timestamp may follow
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			values[name] = value
		}
	}
	return values, lines.Err()
}

// profile writes a profile to the directory. A failure becomes a note, because the measurement is
// valid without it.
func (w *watch) profile(ctx context.Context, file, query string) {
	if err := w.saveProfile(ctx, file, query); err != nil {
		w.note(fmt.Sprintf("cannot take %s: %v", file, err))
	}
}

func (w *watch) saveProfile(ctx context.Context, file, query string) error {
	body, err := fetch(ctx, strings.TrimSuffix(w.target.PprofURL, "/")+"/"+query, time.Hour)
	if err != nil {
		return err
	}
	defer body.Close()
	content, err := io.ReadAll(io.LimitReader(body, profileBytesMax))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.dir, file), content, 0o644)
}

// fetch gets a page.
func fetch(ctx context.Context, url string, timeout time.Duration) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: timeout}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(response.Body, 200))
		return nil, fmt.Errorf("got status %s: %s", response.Status, strings.TrimSpace(string(said)))
	}
	return response.Body, nil
}
