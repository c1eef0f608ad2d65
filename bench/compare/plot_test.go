package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/growth"
)

// grown returns results with growing numbers: of the newest release in-tree and fastadmit, of the one before it in-tree alone.
func grown() *Results {
	spread := func(median float64) bench.Spread { return bench.Spread{Median: median} }
	row := func(by string, number int, added float64) growth.Create {
		return growth.Create{By: by, Number: number, Added: spread(added), Server: spread(1500), P50: 4000, P99: 12_000}
	}
	gone := growth.Create{By: growth.InTree, Number: 1000, Missing: "1000 were not in use after 5m0s"}
	r := new(Results)
	r.growth.Reviews = &growth.Reviews{Run: growth.Run{Date: "2026-01-02"}, CPUs: "one processor", Rows: []growth.Review{
		{Work: growth.Matching, Number: 10, CPU: spread(44), Resident: spread(1 << 24)},
		{Work: growth.Parameters, Number: 1024, CPU: spread(1234), Resident: spread(1 << 25)},
	}}
	r.growth.Cluster = []growth.Cluster{
		{Release: "1.36", Work: growth.Matching, Rows: []growth.Create{row(growth.Nobody, 1, 0), row(growth.InTree, 1, 300),
			row(growth.InTree, 10, 3000), gone}},
		{Run: growth.Run{Date: "2026-01-02", Commit: "abc"}, Release: newestRelease, Work: growth.Matching, Rows: []growth.Create{
			row(growth.InTree, 1, 100), row(growth.InTree, 10, 900), row(growth.Fastadmit, 1, -5), row(growth.Fastadmit, 10_000, 90_000)}},
		{Release: "1.36", Work: growth.Others, Rows: []growth.Create{row(growth.Fastadmit, 10, 400)}},
		{Release: newestRelease, Work: growth.Others, Rows: []growth.Create{row(growth.Fastadmit, 10, 400)}},
		{Release: newestRelease, Work: growth.Bindings, Rows: []growth.Create{row(growth.Fastadmit, 10, 500)}},
	}
	return r
}

func TestPlot(t *testing.T) {
	p := grown().growthPicture()
	text := p.svg()
	for _, want := range []string{
		">in-tree v1.36<", ">in-tree v1.37<", ">fastadmit v1.37<", ">fastadmit v1.37, one for Pods<", ">10,000<", ">100 ms<", ">100 µs<",
		"in-tree v1.36: 300 µs with 1, 3 ms with 10 policies.", "fastadmit v1.37: 90 ms with 10,000 policies.",
		`class="others" stroke-dasharray="7 4"`, `class="others" stroke-dasharray="none"`, `class="own" stroke-dasharray="2 3"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %s in it", text, want)
		}
	}
	if got := strings.Count(text, "<circle"); got != 6 {
		t.Errorf("got %d points, want 6: of all rows that were measured, are above zero and are shown", got)
	}
	if p := new(Results).growthPicture(); p.plot != nil {
		t.Errorf("got %+v without results", p.plot)
	}
}

func TestSpaced(t *testing.T) {
	f := func(heights, want []float64) {
		t.Helper()
		if got := spaced(heights, 100); !slices.Equal(got, want) {
			t.Errorf("%v: got %v, want %v", heights, got, want)
		}
	}
	f(nil, []float64{})
	f([]float64{10, 90}, []float64{10, 90})
	f([]float64{90, 88, 100}, []float64{83, 66, 100})
}

// TestGrowthTables renders the tables of growing numbers.
func TestGrowthTables(t *testing.T) {
	r := grown()
	f := func(table string, want ...string) {
		t.Helper()
		got := r.table(table)
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: got %s, want %s in it", table, got, part)
			}
		}
	}
	f("reviews", "2026-01-02", "one processor", "| 1,000 | 1,024 | 10,000 |",
		"| policies for Pods, each with another expression | - | 44 µs, 16 MiB | - |",
		"| parameters of one binding | - | - | - | - | 1.23 ms, 32 MiB | - |")
	f("creates", "**matching**: policies for Pods", "| no policies, v1.36 | (all 1.50 ms); 4 ms, 12 ms | | | | |",
		"| in-tree, v1.36 | 300 µs; 4 ms, 12 ms | 3 ms; 4 ms, 12 ms | | - | |",
		"| fastadmit before v1.37 | -5 µs; ", "Not measured: in-tree, v1.36, 1000 were not in use after 5m0s.\n", "**others**",
		"**bindings**")
	if text := new(Results).table("reviews") + new(Results).table("creates"); text != "" {
		t.Errorf("got %q without results", text)
	}
}
