package main

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/bench"
)

const (
	// worstFields is how many times a field is repeated in the smaller of TestWorst's two reviews,
	// as in make worst. The larger one has four times as many.
	worstFields      = 10_000
	worstFieldsQuick = 1_000

	// worstShown is how many plugins the table and the picture show.
	worstShown = 12

	// outputShown is how many bytes of a failed test's output an error quotes.
	outputShown = 2 << 10
)

// Worst is the cost of the largest reviews.
type Worst struct {
	Rows []WorstRow `json:"plugins"` // the most expensive plugin first
}

// WorstRow is the review for which a plugin needs most processor time.
type WorstRow struct {
	Plugin    string  `json:"plugin"`
	Phase     string  `json:"phase"`
	Case      string  `json:"case"`   // operation, resource, and which fields are repeated
	Things    int     `json:"things"` // repeated fields
	CPU       float64 `json:"cpu"`    // in microseconds
	Allocated int64   `json:"allocatedBytes"`
}

// measureWorst measures all plugins with TestWorst of package handlers.
func measureWorst(ctx context.Context, fields int) (*Worst, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=30m", "-run", "^TestWorst$", "-v", "./handlers",
		fmt.Sprintf("-worst=%d", fields))
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w; make worst shows all of its output, which ends with:\n%s", cmd, err, out[max(0, len(out)-outputShown):])
	}
	return parseWorst(out)
}

// worstLine matches a line that TestWorst prints for a plugin and two reviews: time and memory of
// the smaller and of the larger one.
var worstLine = regexp.MustCompile(`^ +worst_test\.go:\d+: (\w+) (mutate|validate), (.+): \d+: \S+, \d+ KB; (\d+): (\S+), (\d+) KB; ratios `)

// parseWorst reads the output of TestWorst and keeps the most expensive review
// of each plugin.
func parseWorst(out []byte) (*Worst, error) {
	most := make(map[string]WorstRow)
	for line := range strings.Lines(string(out)) {
		parts := worstLine.FindStringSubmatch(line)
		if parts == nil {
			if strings.Contains(line, "; ratios ") {
				return nil, fmt.Errorf("TestWorst: got the line %q, want one that matches %s", line, worstLine)
			}
			continue
		}
		row := WorstRow{Plugin: parts[1], Phase: parts[2], Case: parts[3]}
		things, errThings := strconv.Atoi(parts[4])
		cpu, errCPU := time.ParseDuration(parts[5])
		kib, errKiB := strconv.ParseInt(parts[6], 10, 64)
		if err := cmp.Or(errThings, errCPU, errKiB); err != nil {
			return nil, fmt.Errorf("TestWorst: line %q: %w", line, err)
		}
		row.Things, row.CPU, row.Allocated = things, float64(cpu)/float64(time.Microsecond), kib<<10
		if known, ok := most[row.Plugin]; !ok || row.CPU > known.CPU {
			most[row.Plugin] = row
		}
	}
	if len(most) == 0 {
		return nil, fmt.Errorf("TestWorst: got no measurements in %d bytes of output, want lines that match %s", len(out), worstLine)
	}
	w := new(Worst)
	for _, row := range most {
		w.Rows = append(w.Rows, row)
	}
	slices.SortFunc(w.Rows, func(a, b WorstRow) int { return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(a.Plugin, b.Plugin)) })
	return w, nil
}

// shown returns the most expensive plugins.
func (w *Worst) shown() []WorstRow { return w.Rows[:min(len(w.Rows), worstShown)] }

// worst shows the most expensive review of each of the most expensive plugins.
func (r *Results) worst(b *strings.Builder) {
	if r.Worst == nil || len(r.Worst.Rows) == 0 {
		return
	}
	shown := r.Worst.shown()
	fmt.Fprintf(b, "Each plugin answered reviews with %d entries in a list or map, a shape at a time; the table has the one that took it most "+
		"processor time. Measured is one call on one thread, without the network and with the garbage collector off, and the memory "+
		"that it allocated. ", shown[0].Things)
	if rest := r.Worst.Rows[len(shown):]; len(rest) > 0 {
		fmt.Fprintf(b, "The other %d plugins took at most %s.", len(rest), bench.Time.Format(rest[0].CPU))
	}
	b.WriteString("\n\n| plugin | phase | review | CPU | allocated |\n|---|---|---|---|---|\n")
	for _, row := range shown {
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", row.Plugin, row.Phase, strings.ReplaceAll(row.Case, "|", "\\|"),
			bench.Time.Format(row.CPU), bench.Bytes.Format(float64(row.Allocated)))
	}
}
