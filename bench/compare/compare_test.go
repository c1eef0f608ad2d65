package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/compare/contest"
	"github.com/fastadmit/fastadmit/bench/growth"
)

// TestQuick runs everything once with two contenders, and checks that all numbers are there. It
// does not check their values.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a while")
	}
	document := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(document, []byte("<!-- compare: summary -->\n<!-- end -->\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, progress bytes.Buffer
	o := options{quick: true, write: true, contenders: "nethttp", pictures: t.TempDir(), file: filepath.Join(t.TempDir(), "results.json"),
		documents: document}
	if err := o.run(t.Context(), &stdout, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	results, err := readResults(o.file)
	if err != nil {
		t.Fatal(err)
	}
	// Shares and spreads of things that did not happen are zero or empty.
	zero := map[string]bool{"Handshakes": true, "Allocations": true, "Allocated": true, "Busy": true}
	checkNumbers(t, "Results", reflect.ValueOf(*results), zero)
	if len(results.Scenarios) != 5 || len(results.Scenarios[0].Rows) != 3 || len(results.Scenarios[0].Rates) != len(shares) ||
		len(results.Scenarios[0].LowRates) != len(lowRates) || len(results.Bursts) != 6 {
		t.Errorf("got %+v", results)
	}
	reviews := results.growth.Reviews
	if reviews == nil || len(reviews.Rows) != 3*len(growth.Works()) {
		t.Fatalf("got %+v, want three numbers of each work", reviews)
	}
	checkNumbers(t, "Reviews", reflect.ValueOf(*reviews), zero)
	content, err := os.ReadFile(document)
	if err != nil || !strings.Contains(string(content), results.table("summary")) {
		t.Errorf("got %s, %v", content, err)
	}
	for _, name := range tableNames {
		if !strings.Contains(stdout.String(), results.table(name)) {
			t.Errorf("table %s was not printed", name)
		}
	}
}

// checkNumbers reports numbers that are not above zero.
func checkNumbers(t *testing.T, path string, v reflect.Value, zero map[string]bool) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; !zero[name] {
				checkNumbers(t, path+"."+name, v.Field(i), zero)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			checkNumbers(t, path, v.Index(i), zero)
		}
	case reflect.Float64:
		if number := v.Float(); !(number > 0) || math.IsInf(number, 0) {
			t.Errorf("%s: got %g", path, number)
		}
	}
}

// TestDocuments compares the tables and pictures in documents with those made from results.json.
func TestDocuments(t *testing.T) {
	results, err := readResults("results.json")
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for _, name := range documents {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		filled, err := results.fill(string(content))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if filled != string(content) {
			t.Errorf("%s has other tables than results.json, go run . -tables writes them anew", name)
		}
		begun := strings.Count(string(content), "<!-- compare:")
		if found := len(place.FindAllString(string(content), -1)); found != begun {
			t.Errorf("%s: got %d places for tables, of which %d have an end", name, begun, found)
		}
		tables += begun
	}
	for _, p := range results.pictures() {
		content, err := os.ReadFile(filepath.Join("../../docs", p.file))
		if err != nil || string(content) != p.svg() {
			t.Errorf("%s is not the picture of results.json (%v), go run . -tables writes it anew", p.file, err)
		}
	}
	if tables < len(tableNames) {
		t.Errorf("got %d tables in %q, want all of %q", tables, documents, tableNames)
	}
}

func TestFill(t *testing.T) {
	spread := func(median float64) bench.Spread {
		return bench.Spread{Median: median, Min: median / 2, Max: median * 2}
	}
	row := func(name string, cpu, busy float64) Row {
		return Row{
			Name: name, CPU: spread(cpu), Rate: spread(1e6 / cpu), Busy: spread(busy), Allocations: spread(1), Allocated: spread(24),
			Resident: spread(1 << 24), ToFloor: spread(cpu / 10), ToOurs: spread(cpu / 20),
		}
	}
	results := &Results{Scenarios: []ScenarioResult{{
		Name: "validate", About: "a plugin", RequestBytes: 1024, Slowest: "nethttp", Knee: 2000,
		Rows: []Row{row(contest.Floor, 10, 0.5), row(contest.Ours, 20, 0.96)},
		Rates: []RateGroup{{Share: 0.25, Rate: 500, Rows: []LatencyRow{
			{Name: contest.Floor, Requests: 1000, P50: 100, P99: 200, P999: 300},
			{Name: contest.Ours, Requests: 99, P50: 100, P99: 200, P999: 300},
		}}},
		LowRates: []LowRate{{Rate: 20, Rows: []LowRow{
			{Name: contest.Floor, CPU: spread(200), ToFloor: spread(1)}, {Name: contest.Ours, CPU: spread(220), ToFloor: spread(1.1)},
		}}},
	}}}
	f := func(name string, want ...string) {
		t.Helper()
		filled, err := results.fill("a\n<!-- compare: " + name + " -->\nold\n<!-- end -->\nb\n")
		if err != nil || strings.Contains(filled, "old") || !strings.HasPrefix(filled, "a\n") || !strings.HasSuffix(filled, "\nb\n") {
			t.Errorf("%s: got %s, %v", name, filled, err)
		}
		for _, part := range want {
			if !strings.Contains(filled, part) {
				t.Errorf("%s: got %s, want %s in it", name, filled, part)
			}
		}
		if again, err := results.fill(filled); err != nil || again != filled {
			t.Errorf("%s: got %s the second time, %v", name, again, err)
		}
	}
	f("summary", "| 10 µs, 0.50x |", "| fastadmit: `fastadmit serve` | 20 µs |")
	results.Scenarios = append(results.Scenarios,
		ScenarioResult{About: "a policy", Rows: []Row{row(contest.Ours, 30, 1), row("nethttp", 40, 1)}})
	f("summary", "| 10 µs, 0.50x | - |", "| fastadmit: `fastadmit serve` | 20 µs | 30 µs |", "| - | 40 µs, 2x |")
	results.Scenarios = results.Scenarios[:1]
	f("scenarios", "| floor | 10 µs (5 µs to 20 µs) | 1x (0.50x to 2x) | 0.50x (0.25x to 1x) | ≥ 100000 (",
		"| fastadmit | 20 µs (10 µs to 40 µs) | 2x (1x to 4x) | 1x (0.50x to 2x) | 50000 (")
	f("rates", "| 20/s | saturated |", "| floor | 200 µs, 1x | 10 µs, 1x |", "| fastadmit | 220 µs, 1.10x | 20 µs, 2x |")
	f("waits", "| p50, p99 | validate, 500/s |", "| floor | 100 µs, 200 µs |", "| fastadmit | 100 µs, - |")
	f("latencies", "25 %: 500/s", "| floor | 100 µs, 200 µs, 300 µs |", "| fastadmit | 100 µs, -, - |")
	if _, err := results.fill("<!-- compare: nothing -->\n<!-- end -->"); err == nil {
		t.Error("a table that there is not is no error")
	}
}

func TestIsIn(t *testing.T) {
	f := func(list, name string, want bool) {
		t.Helper()
		if got := isIn(list, contest.Floor)(name); got != want {
			t.Errorf("%q in %q: got %t", name, list, got)
		}
	}
	f("", "nethttp", true)
	f("nethttp,fastjson", "nethttp", true)
	f("nethttp,fastjson", "kubewebhook", false)
	f("nethttp", contest.Floor, true)
}
