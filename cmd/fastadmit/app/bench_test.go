package app

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/corpus"
)

// runBench runs "fastadmit bench" and returns what it prints and its exit
// code.
func runBench(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := NewCommand()
	cmd.SetContext(ctx)
	cmd.SetArgs(append([]string{"bench"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code = Execute(cmd)
	return out.String(), errs.String(), code
}

func TestBench(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--profiling")
	dir := t.TempDir()
	page, profiles := filepath.Join(dir, "report.html"), filepath.Join(dir, "profiles")
	out, errs, code := runBench(t, t.Context(), "https://"+s.Address+"/mutate", "--insecure-skip-tls-verify", "--warm-up=0",
		"--duration=1s",
		"--count=300", "--in-flight=2", "--metrics-url="+s.Ops+"/metrics", "--pprof-dir="+profiles, "--html="+page, "--patch-sample=1",
		"--weights=pods:create=3,configmaps=1")
	if code != exitDone || errs != "" {
		t.Fatalf("got %d: %s%s", code, out, errs)
	}
	for _, want := range []string{" 0 failed", "CPU per request", "resident memory", "pods:create ", "closed loop, 2 in flight"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q in\n%s", want, out)
		}
	}
	for _, file := range []string{page, filepath.Join(profiles, "cpu.pprof"), filepath.Join(profiles, "heap.pprof"),
		filepath.Join(profiles, "allocs.pprof")} {
		if about, err := os.Stat(file); err != nil || about.Size() < 100 {
			t.Errorf("%s: got %v and %v", file, about, err)
		}
	}
}

// TestBenchEverything puts load on all plugins, with every answer checked and
// every patch applied. With the tag poison or the race detector, it finds uses
// of memory of released requests.
func TestBenchEverything(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds with the race detector, with which the tests of package bench run")
	}
	s := serve(t, nil, append(everythingFlags(t, true), "--allow-unauthenticated-writes")...)
	for _, phase := range []string{"mutate", "validate"} {
		out, errs, code := runBench(t, t.Context(), "https://"+s.Address+"/"+phase, "--insecure-skip-tls-verify", "--warm-up=0",
			"--duration=1m",
			"--count=2000", "--in-flight=16", "--patch-sample=1")
		if code != exitDone || errs != "" || !strings.Contains(out, " 0 failed") {
			t.Errorf("%s: got %d: %s%s", phase, code, out, errs)
		}
	}
}

func TestBenchAgainst(t *testing.T) {
	a, b := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages"), serve(t, nil, "--enable-admission-plugins=AlwaysDeny")
	out, errs, code := runBench(t, t.Context(), "https://"+a.Address+"/mutate", "--insecure-skip-tls-verify", "--warm-up=0", "--count=20",
		"--against=https://"+b.Address+"/mutate", "--against-insecure-skip-tls-verify", "--rounds=2", "-o=json", "--sizes=2KB,10KB:update")
	if code != exitDone || errs != "" {
		t.Fatalf("got %d: %s%s", code, out, errs)
	}
	var report struct {
		Series []struct {
			Name   string
			Rounds []struct{ Requests, Failed int }
		}
		Comparisons []struct {
			Ratios        []struct{ Metric string }
			Disagreements []string
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Series) != 2 || len(report.Series[1].Rounds) != 2 || report.Series[1].Rounds[1].Requests != 20 ||
		len(report.Comparisons[0].Ratios) == 0 || len(report.Comparisons[0].Disagreements) != 2 {
		t.Errorf("got %+v", report)
	}
}

// A wrong answer ends with 1, after the report.
func TestBenchWrongAnswers(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysDeny")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mine.allowed.json"), corpus.MustRead("pods-create-v1-1.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := runBench(t, t.Context(), "https://"+s.Address+"/mutate", "--insecure-skip-tls-verify", "--warm-up=0",
		"--count=5", "--recordings="+dir)
	if code != exitFailed || !strings.Contains(errs, "5 requests got a wrong answer or none") ||
		!strings.Contains(out, "WRONG: decision, 5 times; the first: mine.allowed: ") {
		t.Errorf("got %d: %s%s", code, out, errs)
	}
}

func TestBenchSweep(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages")
	out, errs, code := runBench(t, t.Context(), "https://"+s.Address+"/mutate", "--insecure-skip-tls-verify", "--warm-up=0",
		"--sweep", "--sweep-p99=1ns", "--rate=100", "--duration=50ms")
	if code != exitDone || errs != "" || !strings.Contains(out, "knee  inconclusive: the first rate is too high already") ||
		strings.Count(out, "100/s") < 2 {
		t.Errorf("got %d: %s%s", code, out, errs)
	}
}

// Two targets are loaded in turns: the second began before the first ended.
func TestBenchSweepAgainst(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages")
	out, errs, code := runBench(t, t.Context(), "https://"+s.Address+"/mutate", "--insecure-skip-tls-verify", "--warm-up=0",
		"--against=https://"+s.Address+"/validate", "--against-insecure-skip-tls-verify", "--expect=any",
		"--sweep", "--sweep-p99=1ns", "--rate=100", "--duration=50ms", "-o=json")
	var report bench.Report
	if err := json.Unmarshal([]byte(out), &report); code != exitDone || errs != "" || err != nil || len(report.Sweeps) != 2 {
		t.Fatalf("got %d and %v: %s%s", code, err, out, errs)
	}
	first, second := report.Sweeps[0].Steps, report.Sweeps[1].Steps
	if len(first) != 2 || len(second) != 2 || second[0].Result.Started.After(first[1].Result.Started) {
		t.Errorf("got %s", out)
	}
}

// Ctrl-C prints the results so far.
func TestBenchInterrupted(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, errs, code := runBench(t, ctx, "https://"+s.Address+"/mutate", "--insecure-skip-tls-verify", "--duration=1h")
	if code != exitDone || errs != "" || !strings.Contains(out, "interrupted") {
		t.Errorf("got %d: %s%s", code, out, errs)
	}
}

func TestBenchUsage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds with the race detector, with which the tests of package bench run")
	}
	f := func(code int, want string, args ...string) {
		t.Helper()
		out, errs, got := runBench(t, t.Context(), args...)
		if got != code || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%q: got %d: %s%s, want %d: %s", args, got, out, errs, code, want)
		}
	}
	const url = "https://127.0.0.1:1/mutate"
	f(exitUsage, "got 0 arguments, want one: the URL of a webhook")
	f(exitUsage, "the URL of the webhook", "http://x")
	f(exitUsage, "the URL of the webhook", url, "--against=x")
	f(exitUsage, "--output: got", url, "-o=yaml")
	f(exitUsage, "--weights: got", url, "--weights=pods=many")
	f(exitUsage, "of which there is no recording", url, "--weights=pad=1")
	f(exitUsage, "--sizes: got", url, "--sizes=big")
	f(exitUsage, "bytes for a synthetic CREATE review", url, "--sizes=100MB")
	f(exitUsage, "want one of them", url, "--sizes=1KB", "--recordings=x")
	f(exitUsage, "--rounds", url, "--rounds=-1")
	f(exitUsage, "no duration and no count", url, "--duration=0")
	f(exitFailed, "cannot read the CA certificates", url, "--certificate-authority=/nowhere")
	f(exitFailed, "cannot load the client certificate", url, "--client-certificate=/nowhere")
	f(exitFailed, "cannot read the token", url, "--token-file=/nowhere")
	f(exitFailed, "found no file", url, "--recordings=/nowhere")
	f(exitFailed, "cannot connect to https://127.0.0.1:1", url)
	f(exitFailed, "--html: open /nowhere/report.html: no such file", url, "--html=/nowhere/report.html") // before it connects
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages")
	served := "https://" + s.Address + "/mutate"
	f(exitFailed, "unknown authority; set its CA certificates with --certificate-authority, or skip the verification with --insecure",
		served)
	f(exitFailed, "set its CA certificates with --against-certificate-authority, or skip the verification with --against-insecure", served,
		"--insecure-skip-tls-verify", "--count=1", "--warm-up=0", "--against=https://"+s.Address+"/validate")
	page := filepath.Join(t.TempDir(), "report.html")
	f(exitFailed, "cannot connect to https://127.0.0.1:1", url, "--html="+page)
	if _, err := os.Stat(page); err == nil {
		t.Error("got a page of a load that was none")
	}
}

// TestBenchHint expects the advice to send other reviews if most are denied.
func TestBenchHint(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysDeny")
	for flag, want := range map[string]string{
		"--expect=any": "20 of 20 requests were denied, which says little about allowed ones; " +
			"--weights=pods:create=1 sends only this recording",
		"--weights=pods:create=1": "",
	} {
		_, errs, code := runBench(t, t.Context(), "https://"+s.Address+"/mutate", "--insecure-skip-tls-verify", "--warm-up=0",
			"--count=20", flag)
		if code != exitDone || !strings.Contains(errs, want) || want == "" && errs != "" {
			t.Errorf("%s: got %d and %q, want %q", flag, code, errs, want)
		}
	}
}

// Profiles are served only with the flag.
func TestProfiling(t *testing.T) {
	get := func(url string) int {
		t.Helper()
		response, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	on, off := serve(t, nil, "--enable-admission-plugins=AlwaysAdmit", "--profiling"), serve(t, nil,
		"--enable-admission-plugins=AlwaysAdmit")
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
		if got := get(on.Ops + path); got != http.StatusOK {
			t.Errorf("%s: got %d with --profiling", path, got)
		}
		if got := get(off.Ops + path); got != http.StatusNotFound {
			t.Errorf("%s: got %d without --profiling", path, got)
		}
	}
}
