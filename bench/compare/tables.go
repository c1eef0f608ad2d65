package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/compare/contest"
)

// documents have places for tables, from this folder.
var documents = []string{"../README.md", "../results.md", "../../README.md", "../../docs/performance.md"}

// tableNames are the tables there are, in the order in which they are printed.
var tableNames = []string{"summary", "waits", "works", "rates", "mutateRates", "latencies", "bursts", "worst", "machine"}

// table returns a table in Markdown.
func (r *Results) table(name string) string {
	var b strings.Builder
	switch name {
	case "summary":
		r.summary(&b)
	case "waits":
		r.waits(&b)
	case "works":
		for i := range r.Works {
			r.Works[i].closed(&b)
		}
	case "rates":
		for i := range r.Works {
			if w := &r.Works[i]; len(w.LowRates) > 0 {
				b.WriteString("**" + w.Name + "**\n\n")
				w.lowRates(&b)
				b.WriteString("\n")
			}
		}
	case "mutateRates":
		for i := range r.Works {
			if w := &r.Works[i]; w.Name == "mutate" && len(w.LowRates) > 0 {
				w.lowRates(&b)
			}
		}
	case "latencies":
		for i := range r.Works {
			r.Works[i].latencies(&b)
		}
	case "bursts":
		r.bursts(&b)
	case "worst":
		r.worst(&b)
	case "machine":
		r.machine(&b)
	}
	return b.String()
}

// place is where a document has a table: its name, and the table.
var place = regexp.MustCompile(`(?s)(<!-- compare: (\w+) -->\n)(.*?)(<!-- end -->)`)

// fill returns the document with the tables of the results. The error names a
// table that there is not.
func (r *Results) fill(document string) (string, error) {
	var err error
	filled := place.ReplaceAllStringFunc(document, func(found string) string {
		parts := place.FindStringSubmatch(found)
		if !slices.Contains(tableNames, parts[2]) {
			err = fmt.Errorf("got a place for table %q, want one of %q", parts[2], tableNames)
		}
		return parts[1] + r.table(parts[2]) + parts[4]
	})
	return filled, err
}

func (r *Results) writeDocuments(names []string) error {
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		filled, err := r.fill(string(content))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(name, []byte(filled), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// summary is processor time per request, with how many times that of fastadmit
// it is.
func (r *Results) summary(b *strings.Builder) {
	b.WriteString("| CPU per request |")
	for i := range r.Works {
		b.WriteString(" " + r.Works[i].About + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(r.Works)) + "\n")
	for _, c := range contest.Contenders {
		cells, took := "", false
		for i := range r.Works {
			row := r.Works[i].row(c.Name)
			if row == nil {
				cells += " - |"
				continue
			}
			took = true
			cells += " " + bench.Time.Format(row.CPU.Median)
			if c.Name != contest.Ours {
				cells += ", " + times(row.ToOurs.Median)
			}
			cells += " |"
		}
		if took {
			b.WriteString("| " + c.About + " |" + cells + "\n")
		}
	}
}

// waits are latencies at the lowest open-loop rate of each work that has some, which is nearest to that of a cluster.
func (r *Results) waits(b *strings.Builder) {
	head, line := "| p50, p99 |", "|---|"
	cells := make(map[string]string) // of contenders
	for i := range r.Works {
		if len(r.Works[i].Rates) == 0 {
			continue
		}
		lowest := &r.Works[i].Rates[0]
		head += fmt.Sprintf(" %s, %s/s |", r.Works[i].Name, bench.Number.Format(lowest.Rate))
		line += "---|"
		for _, row := range lowest.Rows {
			cells[row.Name] += fmt.Sprintf(" %s, %s |", bench.Time.Format(row.P50), percentile(row.P99, row.Requests, 100))
		}
	}
	b.WriteString(head + "\n" + line + "\n")
	for _, c := range contest.Contenders {
		if cells[c.Name] != "" {
			b.WriteString("| " + c.Name + " |" + cells[c.Name] + "\n")
		}
	}
}

func (w *WorkResult) row(name string) *Row {
	at := slices.IndexFunc(w.Rows, func(r Row) bool { return r.Name == name })
	if at < 0 {
		return nil
	}
	return &w.Rows[at]
}

// closed is what was measured in closed loops.
func (w *WorkResult) closed(b *strings.Builder) {
	fmt.Fprintf(b, "**%s**: %s; a request of %s.\n\n", w.Name, w.About, bench.Bytes.Format(float64(w.RequestBytes)))
	b.WriteString("| | CPU per request | to the floor | to fastadmit | requests/s | allocations | allocated | memory |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|\n")
	for _, row := range w.Rows {
		// Where the server had time left, the generator was the limit.
		limit := ""
		if row.Busy.Median < busyMin {
			limit = "≥ "
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s%s | %s | %s | %s |\n", row.Name,
			spreadOf(row.CPU, bench.Time.Format), spreadOf(row.ToFloor, times), spreadOf(row.ToOurs, times),
			limit, spreadOf(row.Rate, bench.Number.Format), bench.Number.Format(row.Allocations.Median),
			bench.Bytes.Format(row.Allocated.Median), bench.Bytes.Format(row.Resident.Median))
	}
	b.WriteString("\n")
}

// lowRates is processor time per request at low rates, beside that in closed
// loops.
func (w *WorkResult) lowRates(b *strings.Builder) {
	b.WriteString("| CPU per request, and its ratio to the floor |")
	for _, group := range w.LowRates {
		fmt.Fprintf(b, " %s/s |", bench.Number.Format(group.Rate))
	}
	b.WriteString(" saturated |\n|---|" + strings.Repeat("---|", len(w.LowRates)+1) + "\n")
	cell := func(cpu, toFloor bench.Spread) {
		fmt.Fprintf(b, " %s, %s |", bench.Time.Format(cpu.Median), times(toFloor.Median))
	}
	for i, row := range w.Rows {
		fmt.Fprintf(b, "| %s |", row.Name)
		for _, group := range w.LowRates {
			cell(group.Rows[i].CPU, group.Rows[i].ToFloor)
		}
		cell(row.CPU, row.ToFloor)
		b.WriteString("\n")
	}
}

// busyMin is the part of its processor that a server under full load uses.
const busyMin = 0.95

// latencies is what was measured in open loops.
func (w *WorkResult) latencies(b *strings.Builder) {
	fmt.Fprintf(b, "**%s**: the knee of %s is at %s requests/s.\n\n| p50, p99, p99.9 |", w.Name, w.Slowest, bench.Number.Format(w.Knee))
	for _, group := range w.Rates {
		fmt.Fprintf(b, " %.0f %%: %s/s |", 100*group.Share, bench.Number.Format(group.Rate))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(w.Rates)) + "\n")
	for i, row := range w.Rows {
		fmt.Fprintf(b, "| %s |", row.Name)
		for _, group := range w.Rates {
			l := &group.Rows[i]
			fmt.Fprintf(b, " %s, %s, %s |", bench.Time.Format(l.P50), percentile(l.P99, l.Requests, 100), percentile(l.P999, l.Requests, 1000))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// percentile shows a percentile, unless there were so few requests that it is
// that of the slowest one.
func percentile(value float64, requests, least int64) string {
	if requests < least {
		return "-"
	}
	return bench.Time.Format(value)
}

func (r *Results) bursts(b *strings.Builder) {
	b.WriteString("| | CPU per request | handshakes per request | p50 | p99 |\n|---|---|---|---|---|\n")
	for _, row := range r.Bursts {
		fmt.Fprintf(b, "| %s | %s | %.2f | %s | %s |\n", row.Name, spreadOf(row.CPU, bench.Time.Format), row.Handshakes,
			bench.Time.Format(row.P50), bench.Time.Format(row.P99))
	}
}

func (r *Results) machine(b *strings.Builder) {
	fmt.Fprintf(b, "%s, commit %s, on %d processors %s, %s, %s; %s. Medians of %d rounds of %s, latencies of %d; in brackets the lowest and the highest.\n",
		r.Date, r.Commit, r.Machine.Processors, r.Machine.CPU, r.Machine.OS, r.Machine.Go, r.CPUs,
		r.Plan.Rounds, r.Plan.Measured.Round(time.Millisecond), r.Plan.RateRounds)
}

// spreadOf shows the median, and in brackets from where to where.
func spreadOf(s bench.Spread, format func(float64) string) string {
	return fmt.Sprintf("%s (%s to %s)", format(s.Median), format(s.Min), format(s.Max))
}

func times(ratio float64) string { return bench.Number.Format(ratio) + "x" }
