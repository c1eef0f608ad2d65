package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/compare/contest"
)

// worstOutput is output of TestWorst. The cheaper one of a plugin's two reviews comes first.
const worstOutput = `=== RUN   TestWorst
    worst_test.go:178: AlwaysAdmit mutate, CREATE v1/pods, initContainers: containers: 10000: 60µs, 0 KB; 40000: 100µs, 0 KB; ratios 1.9 and 1.0; allowed
    worst_test.go:178: PodPreset mutate, CREATE v1/pods, initContainers: containers: 10000: 46.36ms, 43163 KB; 40000: 200.76ms, 203521 KB; ratios 4.3 and 4.7; patched
    worst_test.go:178: LimitRanger validate, CREATE v1/pods, a|b <c> & "d": 10000: 38.9ms, 8959 KB; 40000: 159.29ms, 35949 KB; ratios 4.1 and 4.0; denied
    worst_test.go:178: LimitRanger mutate, CREATE v1/pods, initContainers: containers: 10000: 46.21ms, 93340 KB; 40000: 1.34905s, 368111 KB; ratios 7.6 and 3.9; patched
    worst_test.go:178: LimitRanger mutate, UPDATE v1/pods, containers: 10000: 1ms, 1 KB; 40000: 4ms, 4 KB; ratios 4.0 and 4.0; patched
--- PASS: TestWorst (290.95s)
PASS
`

func TestParseWorst(t *testing.T) {
	got, err := parseWorst([]byte(worstOutput))
	want := []WorstRow{
		{"LimitRanger", "mutate", "CREATE v1/pods, initContainers: containers", 40000, 1349050, 368111 << 10},
		{"PodPreset", "mutate", "CREATE v1/pods, initContainers: containers", 40000, 200760, 203521 << 10},
		{"AlwaysAdmit", "mutate", "CREATE v1/pods, initContainers: containers", 40000, 100, 0},
	}
	if err != nil || !slices.Equal(got.Rows, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	f := func(output string) {
		t.Helper()
		if got, err := parseWorst([]byte(output)); err == nil {
			t.Errorf("%q: got %+v, want an error", output, got)
		}
	}
	f("PASS\n")
	f(strings.ReplaceAll(worstOutput, "worst_test.go:178: PodPreset", "PodPreset"))
	f(strings.ReplaceAll(worstOutput, "200.76ms", "200.76"))
}

// TestPictures draws all pictures, parses them as XML and looks for the name and value of every
// bar.
func TestPictures(t *testing.T) {
	spread := func(median float64) bench.Spread { return bench.Spread{Median: median} }
	r := &Results{Date: "2026-01-02", Commit: "abc", Machine: bench.Machine{CPU: "CPU <R> & more", Go: "go1.26"}}
	if got := r.pictures(); len(got) != 0 {
		t.Errorf("got pictures without data: %+v", got)
	}
	low := []LowRate{{Rate: 20}, {Rate: 300}}
	scenario := ScenarioResult{Name: ratesScenario, About: `a <scenario> & "more"`}
	for i, c := range contest.Contenders {
		cpu := float64(11 * (i + 1))
		scenario.Rows = append(scenario.Rows, Row{Name: c.Name, CPU: spread(cpu), Rate: spread(7e5 / cpu), Busy: spread(float64(i)), ToOurs: spread(cpu / 22)})
		for j := range low {
			low[j].Rows = append(low[j].Rows, LowRow{Name: c.Name, CPU: spread(1000 * cpu / low[j].Rate)})
		}
	}
	r.Scenarios = []ScenarioResult{scenario, {Name: "policy", About: "no floor", Rows: scenario.Rows[1:2]}}
	if got := r.pictures(); len(got) != 2 {
		t.Errorf("got %+v, want two pictures without low rates and worst reviews", got)
	}
	r.Scenarios[0].LowRates = low
	var err error
	if r.Worst, err = parseWorst([]byte(worstOutput)); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := r.writePictures(folder); err != nil {
		t.Fatal(err)
	}
	f := func(file string, want ...string) {
		t.Helper()
		content, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		var texts []string // the content of the elements text, title and desc
		for d := xml.NewDecoder(strings.NewReader(string(content))); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", file, err, content)
			}
			if text, ok := token.(xml.CharData); ok {
				texts = append(texts, string(text))
			}
		}
		if got := len(strings.Split(string(content), "<rect class=")) - 2; got != len(want)/2 { // one of them is the background
			t.Errorf("%s: got %d bars, want %d", file, got, len(want)/2)
		}
		for at := 0; at < len(want); at += 2 {
			name, value := want[at], want[at+1]
			if i := slices.Index(texts, name); i < 0 || !slices.Contains(texts, value) {
				t.Errorf("%s: got %q, want the bar %q with %q", file, texts, name, value)
			}
			if description := texts[3]; !strings.Contains(description, name+": "+value) {
				t.Errorf("%s: got the description %q, want %s: %s in it", file, description, name, value)
			}
		}
	}
	f("performance-rates.svg", "floor", "550 µs", "fastadmit", "1.10 ms", "fastjson", "1.65 ms", "nethttp", "2.20 ms", "controllerruntime", "2.75 ms", "kubewebhook", "3.30 ms",
		"floor", "36.7 µs", "fastadmit", "73.3 µs", "fastjson", "110 µs", "nethttp", "147 µs", "controllerruntime", "183 µs", "kubewebhook", "220 µs")
	f("performance-saturated.svg", "floor", "≥ 63636/s", "fastadmit", "31818/s", "fastadmit", "31818/s")
	f("performance-worst.svg", "LimitRanger", "1.35 s", "PodPreset", "201 ms", "AlwaysAdmit", "100 µs")
	f("performance-others.svg", "floor", "11 µs, 0.50x", "fastadmit", "22 µs", "fastjson", "33 µs, 1.50x", "nethttp", "44 µs, 2x", "controllerruntime", "55 µs, 2.50x",
		"kubewebhook", "66 µs, 3x", "fastadmit", "22 µs")
}
