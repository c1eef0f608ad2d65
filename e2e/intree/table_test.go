package intree

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// A row is the cost of a setting.
type row struct {
	setting        *setting
	dryRun, stored costs
}

// costs are the costs in several rounds.
type costs struct {
	api, webhook []time.Duration // processor time per Pod, in each round
	latencies    []time.Duration // of all Pods
}

func (r *row) costs(dryRun bool) *costs {
	if dryRun {
		return &r.dryRun
	}
	return &r.stored
}

// table returns the rows in Markdown.
func table(all []row, pods int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d processors, %s: %d rounds of %d Pods, %d at a time. Processor time of a Pod: the median and the least "+
		"of the rounds.\n\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), rounds, pods, inFlight)
	b.WriteString("| | dry run: kube-apiserver | webhook | p50, p99 | stored: kube-apiserver | webhook | p50, p99 |\n" +
		"|---|---|---|---|---|---|---|\n")
	for i := range all {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", all[i].setting.name, &all[i].dryRun, &all[i].stored)
	}
	return b.String()
}

// String returns three cells of the table.
func (c *costs) String() string {
	webhook := "-"
	if slices.Max(c.webhook) >= time.Microsecond {
		webhook = middleAndLeast(c.webhook)
	}
	latencies := slices.Sorted(slices.Values(c.latencies))
	n := len(latencies)
	return fmt.Sprintf("%s | %s | %s, %s", middleAndLeast(c.api), webhook, rounded(latencies[n/2]), rounded(latencies[n*99/100]))
}

func middleAndLeast(of []time.Duration) string {
	sorted := slices.Sorted(slices.Values(of))
	return rounded(sorted[len(sorted)/2]) + ", " + rounded(sorted[0])
}

// rounded returns a duration with three digits.
func rounded(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%d µs", d.Round(time.Microsecond).Microseconds())
	}
	return fmt.Sprintf("%.3g ms", d.Seconds()*1000)
}

const document = "../../bench/README.md"

var place = regexp.MustCompile(`(?s)(<!-- compare-cluster -->\n).*?(<!-- end -->)`)

// write puts the table into the document.
func write(table string) error {
	content, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	if !place.Match(content) {
		return errors.New(document + ": no place for the table")
	}
	return os.WriteFile(document, place.ReplaceAll(content, []byte("${1}"+table+"${2}")), 0o644)
}

// TestTable renders a table, and checks that the document has a place for it.
func TestTable(t *testing.T) {
	second := time.Second
	c := costs{api: []time.Duration{3 * second, second, 2 * second}, webhook: []time.Duration{0, 1234, 150_400},
		latencies: []time.Duration{2 * second, second}}
	none := c
	none.webhook = []time.Duration{0, 0}
	got := table([]row{{&setting{name: "a"}, c, none}}, 7)
	want := "| a | 2e+03 ms, 1e+03 ms | 1 µs, 0 µs | 2e+03 ms, 2e+03 ms | 2e+03 ms, 1e+03 ms | - | 2e+03 ms, 2e+03 ms |\n"
	if !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if !place.Match(content) {
		t.Errorf("%s has no place for the table", document)
	}
}
