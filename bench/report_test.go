package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// recorded returns a result like that of a run, with latencies and server metrics.
func recorded(target string, scale time.Duration) *Result {
	r := newRecorder()
	recording := &Recording{Name: "pods-create-v1-1", Kind: "pods:create", body: make([]byte, 4000)}
	for i := range 5000 {
		due := time.Duration(i) * time.Millisecond
		s := &sample{recording: recording, due: due, sent: due + 30*time.Microsecond, bytes: 200, verdict: verdict{allowed: true, patched: i%2 == 0}}
		s.done = s.sent + scale*(100+time.Duration(i*i%977))
		r.record(s)
	}
	result := r.result()
	cpu, resident := float64(scale/time.Microsecond)*20, 30e6
	result.Target, result.Model, result.Load, result.Offered = target, APIServer, "open loop", 1000
	result.Server = &ServerUse{CPU: &cpu, Resident: &resident}
	result.Started = time.Unix(1_800_000_000, 0)
	return result
}

// fullReport is a report with all possible parts.
func fullReport() *Report {
	const evil = `https://b/<script>alert(1)</script>`
	wrong := recorded(evil, 3*time.Microsecond)
	wrong.Failed, wrong.Faults = 2, []FaultCount{{Fault: FaultUID, Count: 2, Example: "got <b>"}}
	wrong.Notes = []string{"a note"}
	fast := &Series{Name: "https://a", Rounds: []*Result{recorded("https://a", time.Microsecond), recorded("https://a", 2*time.Microsecond)}}
	slow := &Series{Name: evil, Rounds: []*Result{recorded(evil, 4*time.Microsecond), wrong}}
	r := NewReport([]Series{*fast, *slow})
	r.Command = "fastadmit bench https://a"
	r.Sweeps = []Sweep{{Target: "https://a", Bound: 5000, Knee: 1000, Steps: []*Step{
		{Rate: 500, Result: recorded("https://a", time.Microsecond)},
		{Rate: 1000, Result: recorded("https://a", 2*time.Microsecond)},
		{Rate: 2000, Why: "p99 is above", Result: recorded("https://a", 9*time.Microsecond)},
	}}}
	return r
}

func TestTextReport(t *testing.T) {
	var b bytes.Buffer
	if err := fullReport().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(` +`).ReplaceAllString(b.String(), " ")
	for _, want := range []string{
		"https://a\n open loop; apiserver connections; ",
		" 2 rounds: median, lowest, highest\n",
		"requests 10000 in 10.0 s, 0 failed\n",
		"requests/s 1000 1000 1000\n",
		"CPU per request 30 µs 20 µs 40 µs\n",
		"resident memory 28.6 MiB 28.6 MiB 28.6 MiB\n",
		"late by the generator p50 30",
		"pods:create 10000 10000 5000 0 0 ",
		"WRONG: uid, 2 times; the first: got <b>\n",
		"note: a note\n",
		"CPU per request 30 µs 70 µs 2.75x (1.50 to 4)\n",
		" https://b/<script>alert(1)</script> / https://a (LOWEST TO HIGHEST)\n",
		" Under 1x is less than the base. Less is better, but of requests/s.\n",
		"rate sweep from open loop",
		"knee 1000 requests/s with p99 under 5 ms\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
}

func TestManyKindsAreSummedUp(t *testing.T) {
	kinds := []KindCount{{Kind: "least", Requests: 1, Mean: 5}}
	for range 12 {
		kinds = append(kinds, KindCount{Kind: "x", Requests: 10, Mean: 1})
	}
	shown := most(kinds)
	if last := shown[len(shown)-1]; len(shown) != 13 || last.Kind != "1 other kinds" || last.Requests != 1 || last.Mean != 5 {
		t.Errorf("got %+v", shown)
	}
}

func TestJSONReport(t *testing.T) {
	var b bytes.Buffer
	if err := fullReport().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Series []struct {
			Rounds []struct {
				Latency struct{ P99 float64 }
				Server  struct{ CPUMicrosecondsPerRequest float64 }
			}
		}
		Comparisons []struct{ Ratios []struct{ Median float64 } }
		Sweeps      []struct{ KneePerSecond float64 }
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	round := got.Series[1].Rounds[0]
	if round.Server.CPUMicrosecondsPerRequest != 80 || round.Latency.P99 < 400 || got.Sweeps[0].KneePerSecond != 1000 || len(got.Comparisons[0].Ratios) < 5 {
		t.Errorf("got %+v", got)
	}
}

func TestReportFails(t *testing.T) {
	r := fullReport()
	if got := r.Failed(); got != 2 {
		t.Errorf("got %d failed, want 2", got)
	}
	// A sweep may provoke failures, but not wrong answers.
	r.Series = nil
	r.Sweeps[0].Steps[2].Result.Faults = []FaultCount{{Fault: FaultTimeout, Count: 7}, {Fault: FaultDecision, Count: 3}}
	if got := r.Failed(); got != 3 {
		t.Errorf("got %d failed in the sweep, want 3", got)
	}
}

func writePage(t *testing.T, r *Report, more string) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, append(b.Bytes(), more...), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The page loads nothing, and escapes texts of the webhook.
func TestPageIsSelfContained(t *testing.T) {
	content, err := os.ReadFile(writePage(t, fullReport(), ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, banned := range []string{"<script", "src=", "@import", "url(", "<b>"} {
		if strings.Contains(string(content), banned) {
			t.Errorf("there is %q in the page", banned)
		}
	}
	for _, empty := range []*Report{{}, NewReport([]Series{{Name: "x"}}), NewReport([]Series{{Name: "x", Rounds: []*Result{newRecorder().result()}}})} {
		if err := empty.WriteHTML(io.Discard); err != nil {
			t.Error(err)
		}
		if err := empty.WriteText(io.Discard); err != nil {
			t.Error(err)
		}
	}
}

// Plots with colors have a legend, even if there are only rates.
func TestPageHasLegends(t *testing.T) {
	f := func(r *Report, want int) {
		t.Helper()
		content, err := os.ReadFile(writePage(t, r, ""))
		if err != nil {
			t.Fatal(err)
		}
		entry := regexp.MustCompile(`<li class="target[0-7]"><i></i><span>https://`)
		if got := len(entry.FindAll(content, -1)); got != want {
			t.Errorf("got %d names in legends, want %d", got, want)
		}
	}
	full := fullReport()
	f(full, 3)
	f(&Report{Sweeps: full.Sweeps}, 1)
	f(&Report{Series: full.Series}, 2)
}

// probe is a script that writes the browser's view of the plots to the end of the page.
const probe = `<script>
const found = {};
for (const plot of document.querySelectorAll("svg.plot")) {
	const lines = [...plot.querySelectorAll("path.line, rect.bar")].map(l => {
		const box = l.getBBox();
		return [Math.round(box.width), Math.round(box.height), getComputedStyle(l).color];
	});
	found[plot.id] = {lines: lines, width: Math.round(plot.getBoundingClientRect().width), texts: plot.querySelectorAll("text").length};
}
found.numbers = {lines: [], width: 1, texts: document.querySelectorAll("#numbers td").length};
const out = document.createElement("pre");
out.id = "probe";
out.textContent = JSON.stringify(found);
document.body.append(out);
</script>`

// A browser shows the page without an error, and the plots contain data.
func TestPageInABrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed: on Debian, apt-get install chromium")
	}
	if testing.Short() {
		t.Skip("a browser takes seconds to start")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+t.TempDir(), "--enable-logging=stderr", "--log-level=0", "--dump-dom", "file://"+writePage(t, fullReport(), probe))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	dom, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if strings.Contains(stderr.String(), "CONSOLE") {
		t.Errorf("the browser says %s", stderr.String())
	}
	match := regexp.MustCompile(`(?s)<pre id="probe">(.*?)</pre>`).FindSubmatch(dom)
	if match == nil {
		t.Fatalf("the probe did not run: %s", stderr.String())
	}
	var found map[string]struct {
		Lines [][]any
		Width int
		Texts int
	}
	if err := json.Unmarshal(match[1], &found); err != nil {
		t.Fatal(err)
	}
	for plot, lines := range map[string]int{"latency": 2, "timeline": 2, "ratios": 8, "sweep": 2, "numbers": 0} {
		got := found[plot]
		if len(got.Lines) < lines || got.Width == 0 || got.Texts < 5 {
			t.Errorf("%s: got %+v, want %d lines", plot, got, lines)
		}
		for _, line := range got.Lines {
			if line[0].(float64)+line[1].(float64) == 0 && plot != "ratios" {
				t.Errorf("%s: a line has no extent: %v", plot, got.Lines)
			}
		}
	}
	if first, second := found["latency"].Lines[0], found["latency"].Lines[1]; first[2] == second[2] {
		t.Errorf("both targets have the color %v", first[2])
	}
}

// After Ctrl-C, the result contains the measurement up to then.
func TestInterruptedRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var calls int
	target := newWebhook(t, func(w http.ResponseWriter, r *review) {
		if calls++; calls == 10 {
			cancel()
		}
		allow(w, r)
	})
	result, err := Run(ctx, Config{Target: target, Load: Load{Duration: time.Hour}, Mix: pod(t, "v1")})
	if err != nil || !result.Interrupted || result.Requests < 10 || result.Failed != 0 || result.Latency.P50 == 0 {
		t.Errorf("got %v and %+v", err, result)
	}
}

// The warm-up is not part of the measurement.
func TestWarmUp(t *testing.T) {
	var calls int64
	target := newWebhook(t, func(w http.ResponseWriter, r *review) {
		calls++
		allow(w, r)
	})
	result := run(t, Config{Target: target, Load: Load{WarmUp: time.Second, Count: 5}, Mix: pod(t, "v1")})
	if result.Requests != 5 || result.Opened != 0 || calls <= 5 {
		t.Errorf("got %d requests on %d new connections, and %d calls", result.Requests, result.Opened, calls)
	}
}

// TestOpenLoop runs an open loop over real connections.
func TestOpenLoop(t *testing.T) {
	result := run(t, Config{
		Target: newWebhook(t, allow), Load: Load{Rate: 500, Arrivals: Poisson, Burst: 2, Count: 50}, Mix: pod(t, "v1"),
	})
	if result.Requests != 50 || result.Failed != 0 || result.Lag.Count != 50 || result.Offered != 500 || result.Rate <= 0 {
		t.Errorf("got %+v", result)
	}
}
