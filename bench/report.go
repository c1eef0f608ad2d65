package bench

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Report contains the results of one or more targets.
type Report struct {
	// Command is the command that repeats the measurement.
	Command string  `json:"command,omitempty"`
	Machine Machine `json:"machine"`
	// Series contains the results of each target. The first target is the base of the
	// comparisons.
	Series []Series `json:"series,omitempty"`
	// Comparisons compares each other target with the first.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// Sweeps contains the rate sweep of each target, if there was one.
	Sweeps []Sweep `json:"sweeps,omitempty"`
}

// Comparison compares a target with the base. See Compare and Disagreements.
type Comparison struct {
	Base          string   `json:"base"`
	Other         string   `json:"other"`
	Ratios        []Ratio  `json:"ratios"`
	Disagreements []string `json:"disagreements,omitempty"`
}

// Machine describes the machine that generated the load.
type Machine struct {
	OS         string `json:"os"`            // GOOS/GOARCH, on Linux with the kernel release
	CPU        string `json:"cpu,omitempty"` // model name, empty if unknown
	Processors int    `json:"processors"`
	Go         string `json:"go"` // version
}

// ThisMachine returns the description of the machine on which the program runs.
func ThisMachine() Machine {
	m := Machine{OS: runtime.GOOS + "/" + runtime.GOARCH, Processors: runtime.NumCPU(), Go: runtime.Version()}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, after, _ := strings.Cut(string(info), "model name")
		line, _, _ := strings.Cut(after, "\n")
		m.CPU = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), ":"))
	}
	if kernel, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.OS += " " + strings.TrimSpace(string(kernel))
	}
	return m
}

// NewReport creates a report and compares each series with the first one. It keeps the
// list.
func NewReport(series []Series) *Report {
	r := &Report{Machine: ThisMachine(), Series: series}
	for i := 1; i < len(series); i++ {
		r.Comparisons = append(r.Comparisons, Comparison{
			Base: series[0].Name, Other: series[i].Name,
			Ratios: Compare(&series[0], &series[i]), Disagreements: Disagreements(&series[0], &series[i]),
		})
	}
	return r
}

// Failed returns the number of failed requests. In sweeps, it ignores faults that
// overload can cause: FaultTimeout, FaultConnect, FaultBroken and FaultStatus.
func (r *Report) Failed() int64 {
	var failed int64
	for i := range r.Series {
		failed += r.Series[i].Failed()
	}
	for _, sweep := range r.Sweeps {
		failed += sweep.wrong()
	}
	return failed
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// WriteText writes the report as tables for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for i := range r.Series {
		r.Series[i].writeText(t)
	}
	if len(r.Series) > 1 {
		writeComparison(t, r.Series, r.Comparisons)
	}
	for i := range r.Sweeps {
		r.Sweeps[i].writeText(t)
	}
	fmt.Fprintf(t, "%d processors %s, %s, %s\n", r.Machine.Processors, r.Machine.CPU, r.Machine.OS, r.Machine.Go)
	return t.Flush()
}

// writeText writes the measurement of a target.
func (s *Series) writeText(w io.Writer) {
	if len(s.Rounds) == 0 {
		return
	}
	first := s.Rounds[0]
	fmt.Fprintf(w, "%s\n", s.Name)
	fmt.Fprintf(w, "  %s; %s connections; %s\n", first.Load, first.Model, first.Mix)
	if len(s.Rounds) > 1 {
		fmt.Fprintf(w, "  %d rounds: median, lowest, highest\n", len(s.Rounds))
	}
	fmt.Fprintln(w)
	total := s.Total()
	fmt.Fprintf(w, "  requests\t%d in %s s, %d failed", total.Requests, digits(total.Seconds), total.Failed)
	writeCount(w, ", %d tried again", total.Retries)
	writeCount(w, ", %d due but not sent", total.Unsent)
	if total.Interrupted {
		fmt.Fprint(w, ", interrupted")
	}
	fmt.Fprintln(w)
	for _, m := range Metrics() {
		spread, ok := s.Spread(&m)
		if !ok {
			continue
		}
		fmt.Fprintf(w, "  %s\t%s", m.Name, m.Unit.Format(spread.Median))
		if len(s.Rounds) > 1 {
			fmt.Fprintf(w, "\t%s\t%s", m.Unit.Format(spread.Min), m.Unit.Format(spread.Max))
		}
		fmt.Fprintln(w)
	}
	if first.Offered > 0 {
		fmt.Fprintf(w, "  late by the generator\tp50 %s, p99 %s\n", Time.Format(first.Lag.P50), Time.Format(first.Lag.P99))
	}
	fmt.Fprintf(w, "  connections\t%d opened, %d closed", total.Opened, total.Closed)
	if h := first.Handshakes; h.Count > 0 {
		fmt.Fprintf(w, "; handshake p50 %s, p99 %s", Time.Format(h.P50), Time.Format(h.P99))
	}
	fmt.Fprintf(w, "\n  bodies\t%s sent, %s received\n\n", Bytes.Format(first.RequestBytes), Bytes.Format(first.AnswerBytes))
	writeKinds(w, total.Kinds)
	writeFaults(w, total)
}

func writeCount(w io.Writer, format string, count int64) {
	if count > 0 {
		fmt.Fprintf(w, format, count)
	}
}

func writeKinds(w io.Writer, kinds []KindCount) {
	fmt.Fprintln(w, "  SENT\tREQUESTS\tALLOWED\tPATCHED\tDENIED\tFAILED\tMEAN LATENCY")
	for _, k := range most(kinds) {
		fmt.Fprintf(w, "  %s\t%d\t%d\t%d\t%d\t%d\t%s\n", k.Kind, k.Requests, k.Allowed, k.Patched, k.Denied, k.Failed, Time.Format(k.Mean))
	}
	fmt.Fprintln(w)
}

// most returns the kinds with the most requests, and the sum of the others.
func most(kinds []KindCount) []KindCount {
	const shown = 12
	if len(kinds) <= shown {
		return kinds
	}
	sorted := slices.SortedStableFunc(slices.Values(kinds), func(a, b KindCount) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(b.Requests, a.Requests))
	})
	others := KindCount{Kind: fmt.Sprintf("%d other kinds", len(kinds)-shown)}
	for i := range sorted[shown:] {
		others.merge(&sorted[shown+i])
	}
	return append(sorted[:shown:shown], others)
}

func writeFaults(w io.Writer, total *Result) {
	for _, fault := range total.Faults {
		fmt.Fprintf(w, "  WRONG: %s, %d times; the first: %s\n", fault.Fault, fault.Count, fault.Example)
	}
	for _, note := range total.Notes {
		fmt.Fprintf(w, "  note: %s\n", note)
	}
	if len(total.Faults)+len(total.Notes) > 0 {
		fmt.Fprintln(w)
	}
}

// direction says which target is divided by which.
func direction(comparisons []Comparison) string {
	if len(comparisons) == 1 {
		return comparisons[0].Other + " / " + comparisons[0].Base
	}
	return "OTHERS / " + comparisons[0].Base
}

// aboutRatios explains the ratios.
const aboutRatios = "Under 1x is less than the base. Less is better, but of requests/s."

// writeComparison writes the targets in columns next to one another.
func writeComparison(w io.Writer, series []Series, comparisons []Comparison) {
	fmt.Fprint(w, "  COMPARED")
	for i := range series {
		fmt.Fprintf(w, "\t%s", series[i].Name)
	}
	fmt.Fprintf(w, "\t%s (LOWEST TO HIGHEST)\n", direction(comparisons))
	for _, m := range Metrics() {
		var cells, ratios []string
		for i := range series {
			if spread, ok := series[i].Spread(&m); ok {
				cells = append(cells, m.Unit.Format(spread.Median))
			}
		}
		for _, comparison := range comparisons {
			for _, ratio := range comparison.Ratios {
				if ratio.Metric == m.Name {
					ratios = append(ratios, fmt.Sprintf("%sx (%s to %s)", digits(ratio.Median), digits(ratio.Min), digits(ratio.Max)))
				}
			}
		}
		if len(cells) == len(series) {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", m.Name, strings.Join(cells, "\t"), strings.Join(ratios, ", "))
		}
	}
	fmt.Fprintf(w, "  %s\n", aboutRatios)
	for _, comparison := range comparisons {
		if n := len(comparison.Disagreements); n > 0 {
			fmt.Fprintf(w, "  decided differently on %d recordings; the first: %s\n", n, comparison.Disagreements[0])
		}
	}
	fmt.Fprintln(w)
}
