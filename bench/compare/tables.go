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

// documents are the documents with tables, seen from this folder.
var documents = []string{"../README.md", "../results.md", "../../README.md", "../../docs/performance.md"}

// tableNames are the names of all tables, in the order in which they are printed.
var tableNames = []string{"summary", "waits", "scenarios", "rates", "mutateRates", "latencies", "bursts", "worst", "machine",
	"growth", "reviews", "creates"}

// table returns a table in Markdown.
func (r *Results) table(name string) string {
	var b strings.Builder
	switch name {
	case "summary":
		r.summary(&b)
	case "waits":
		r.waits(&b)
	case "scenarios":
		for i := range r.Scenarios {
			r.Scenarios[i].closed(&b)
		}
	case "rates":
		for i := range r.Scenarios {
			if s := &r.Scenarios[i]; len(s.LowRates) > 0 {
				b.WriteString("**" + s.Name + "**\n\n")
				s.lowRates(&b)
				b.WriteString("\n")
			}
		}
	case "mutateRates":
		for i := range r.Scenarios {
			if s := &r.Scenarios[i]; s.Name == "mutate" && len(s.LowRates) > 0 {
				s.lowRates(&b)
			}
		}
	case "latencies":
		for i := range r.Scenarios {
			r.Scenarios[i].latencies(&b)
		}
	case "bursts":
		r.bursts(&b)
	case "worst":
		r.worst(&b)
	case "machine":
		r.machine(&b)
	case "growth":
		r.growthLink(&b)
	case "reviews":
		r.reviews(&b)
	case "creates":
		r.creates(&b)
	}
	return b.String()
}

// place matches the place of a table in a document: its name, and the table.
var place = regexp.MustCompile(`(?s)(<!-- compare: (\w+) -->\n)(.*?)(<!-- end -->)`)

// fill returns the document with the tables of the results. It returns an error that names a table
// which does not exist.
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

// summary shows the processor time per request, and its ratio to fastadmit's.
func (r *Results) summary(b *strings.Builder) {
	b.WriteString("| CPU per request |")
	for i := range r.Scenarios {
		b.WriteString(" " + r.Scenarios[i].About + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(r.Scenarios)) + "\n")
	for _, c := range contest.Contenders {
		cells, took := "", false
		for i := range r.Scenarios {
			row := r.Scenarios[i].row(c.Name)
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

// waits shows latencies at the lowest open-loop rate of each scenario, the one nearest to a
// cluster's.
func (r *Results) waits(b *strings.Builder) {
	head, line := "| p50, p99 |", "|---|"
	cells := make(map[string]string) // by contender
	for i := range r.Scenarios {
		if len(r.Scenarios[i].Rates) == 0 {
			continue
		}
		lowest := &r.Scenarios[i].Rates[0]
		head += fmt.Sprintf(" %s, %s/s |", r.Scenarios[i].Name, bench.Number.Format(lowest.Rate))
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

func (s *ScenarioResult) row(name string) *Row {
	at := slices.IndexFunc(s.Rows, func(r Row) bool { return r.Name == name })
	if at < 0 {
		return nil
	}
	return &s.Rows[at]
}

// closed shows the results of closed loops.
func (s *ScenarioResult) closed(b *strings.Builder) {
	fmt.Fprintf(b, "**%s**: %s; a request of %s.\n\n", s.Name, s.About, bench.Bytes.Format(float64(s.RequestBytes)))
	b.WriteString("| | CPU per request | to the floor | to fastadmit | requests/s | allocations | allocated | memory |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|\n")
	for _, row := range s.Rows {
		// If the server had time left, the generator was the limit.
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

// lowRates shows the processor time per request at low rates and in closed loops.
func (s *ScenarioResult) lowRates(b *strings.Builder) {
	b.WriteString("| CPU per request, and its ratio to the floor |")
	for _, group := range s.LowRates {
		fmt.Fprintf(b, " %s/s |", bench.Number.Format(group.Rate))
	}
	b.WriteString(" saturated |\n|---|" + strings.Repeat("---|", len(s.LowRates)+1) + "\n")
	cell := func(cpu, toFloor bench.Spread) {
		fmt.Fprintf(b, " %s, %s |", bench.Time.Format(cpu.Median), times(toFloor.Median))
	}
	for i, row := range s.Rows {
		fmt.Fprintf(b, "| %s |", row.Name)
		for _, group := range s.LowRates {
			cell(group.Rows[i].CPU, group.Rows[i].ToFloor)
		}
		cell(row.CPU, row.ToFloor)
		b.WriteString("\n")
	}
}

// busyMin is the share of its processor that a server under full load uses.
const busyMin = 0.95

// latencies shows the results of open loops.
func (s *ScenarioResult) latencies(b *strings.Builder) {
	fmt.Fprintf(b, "**%s**: the knee of %s is at %s requests/s.\n\n| p50, p99, p99.9 |", s.Name, s.Slowest, bench.Number.Format(s.Knee))
	for _, group := range s.Rates {
		fmt.Fprintf(b, " %.0f %%: %s/s |", 100*group.Share, bench.Number.Format(group.Rate))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(s.Rates)) + "\n")
	for i, row := range s.Rows {
		fmt.Fprintf(b, "| %s |", row.Name)
		for _, group := range s.Rates {
			l := &group.Rows[i]
			fmt.Fprintf(b, " %s, %s, %s |", bench.Time.Format(l.P50), percentile(l.P99, l.Requests, 100),
				percentile(l.P999, l.Requests, 1000))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// percentile formats a percentile, unless there were so few requests that only the slowest one is
// above it.
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
	fmt.Fprintf(b, "%s, commit %s, on %d processors %s, %s, %s; %s. Medians of %d rounds of %s, latencies of %d; in brackets the "+
		"lowest and the highest.\n",
		r.Date, r.Commit, r.Machine.Processors, r.Machine.CPU, r.Machine.OS, r.Machine.Go, r.CPUs,
		r.Plan.Rounds, r.Plan.Measured.Round(time.Millisecond), r.Plan.RateRounds)
}

// spreadOf formats a spread: the median, and the lowest and highest value in brackets.
func spreadOf(s bench.Spread, format func(float64) string) string {
	return fmt.Sprintf("%s (%s to %s)", format(s.Median), format(s.Min), format(s.Max))
}

func times(ratio float64) string { return bench.Number.Format(ratio) + "x" }
