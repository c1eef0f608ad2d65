package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/apiserver"
	"github.com/fastadmit/fastadmit/bench/compare/contest"
	"github.com/fastadmit/fastadmit/bench/growth"
)

// growthWork is the name of the measurement with growing numbers for the flag -scenarios.
const growthWork = "policies"

// growthQuick is the largest number of policies, bindings and parameters with -quick.
const growthQuick = 100

// growthFile is the file with the results of growing numbers, beside the other results.
func growthFile(file string) string { return filepath.Join(filepath.Dir(file), "growth.json") }

// growth measures reviews with growing numbers of policies, bindings and parameters, up to the largest one.
func (m *measurer) growth(ctx context.Context, largest int) ([]growth.Review, error) {
	var reviews []growth.Review
	for _, work := range growth.Works() {
		sizes := slices.DeleteFunc(slices.Clone(work.Sizes), func(n int) bool { return n > largest })
		fmt.Fprintf(m.progress, "%s: %s\n", growthWork, work.About)
		rows, err := m.growing(ctx, &work, sizes)
		if err != nil {
			return nil, err
		}
		reviews = append(reviews, rows...)
	}
	return reviews, nil
}

// growing measures a work. All sizes have a process each, and are measured in turns.
func (m *measurer) growing(ctx context.Context, work *growth.Work, sizes []int) ([]growth.Review, error) {
	var all []*contest.Process
	var clusters []*apiserver.Server
	defer func() {
		contest.StopAll(all) // they have connections to the API servers
		for _, c := range clusters {
			c.Close()
		}
	}()
	for _, n := range sizes {
		url := ""
		if work.Name == growth.Parameters { // files have none
			c, err := apiserver.Start([]byte(growth.Namespace("shop")), []byte(growth.AsCustomResources(string(work.Manifest(n)))))
			if err != nil {
				return nil, err
			}
			clusters = append(clusters, c)
			url = c.URL
		}
		s := contest.Growing(work, n, url)
		p, err := m.arena.Start(contest.OurContender(), s, contest.Settings{}, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
		if err := p.AwaitReady(ctx); err != nil {
			return nil, err
		}
		if _, err := p.Check(ctx, s); err != nil {
			return nil, err
		}
	}
	// A review of the largest size takes tens of milliseconds. More in flight would only wait for each other.
	configs, err := m.configs(all, func(load *bench.Load) { load.InFlight = inFlightLarge })
	if err != nil {
		return nil, err
	}
	series, err := m.interleave(ctx, m.Rounds, configs)
	if err != nil {
		return nil, err
	}
	rows := make([]growth.Review, len(series))
	for i := range series {
		rows[i] = growth.Review{Work: work.Name, Number: sizes[i], CPU: spread(&series[i], "CPU per request"),
			Resident: spread(&series[i], "resident memory")}
	}
	return rows, nil
}

// growthSizes returns the numbers of policies, bindings and parameters, as columns of a table.
func growthSizes() (all []int) {
	for _, work := range growth.Works() {
		all = append(all, work.Sizes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// growthHead writes the head of a table with a column for each of the sizes.
func growthHead(b *strings.Builder, first string, sizes []int) {
	b.WriteString("| " + first + " |")
	for _, n := range sizes {
		b.WriteString(" " + thousands(n) + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(sizes)) + "\n")
}

// thousands formats a number with commas.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// growthLink shows the picture of growing numbers in the folder docs.
func (r *Results) growthLink(b *strings.Builder) {
	if p := r.growthPicture(); p.plot != nil {
		fmt.Fprintf(b, "![Processor time that policies add to the creation of a Pod, over their number, in-tree and in webhooks](%s)\n",
			p.file)
	}
}

// reviews shows the processor time of reviews with growing numbers.
func (r *Results) reviews(b *strings.Builder) {
	reviews := r.growth.Reviews
	if reviews == nil {
		return
	}
	run := reviews.Run
	fmt.Fprintf(b, "%s, commit %s, %s, %s; %s. Medians of the rounds.\n\n", run.Date, run.Commit, run.Machine.CPU, run.Machine.Go,
		reviews.CPUs)
	sizes := growthSizes()
	growthHead(b, "CPU per request, memory of the process", sizes)
	for _, work := range growth.Works() {
		b.WriteString("| " + work.About + " |")
		for _, n := range sizes {
			at := slices.IndexFunc(reviews.Rows, func(row growth.Review) bool { return row.Work == work.Name && row.Number == n })
			if at < 0 {
				b.WriteString(" - |")
				continue
			}
			row := reviews.Rows[at]
			fmt.Fprintf(b, " %s, %s |", bench.Time.Format(row.CPU.Median), bench.Bytes.Format(row.Resident.Median))
		}
		b.WriteString("\n")
	}
}

// creates shows the costs of creates with growing numbers, a table for each work.
func (r *Results) creates(b *strings.Builder) {
	for _, work := range growth.Works() {
		var missing []string
		begun := false
		for i := range r.growth.Cluster {
			c := &r.growth.Cluster[i]
			if c.Work != work.Name {
				continue
			}
			if !begun {
				fmt.Fprintf(b, "**%s**: %s.\n\n", work.Name, work.About)
				growthHead(b, "added CPU; p50, p99", work.Sizes)
				begun = true
			}
			missing = append(missing, createRows(b, c, work.Sizes)...)
		}
		if !begun {
			continue
		}
		b.WriteString("\n")
		if len(missing) > 0 {
			b.WriteString("Not measured: " + strings.Join(missing, "; ") + ".\n\n")
		}
	}
}

// createRows writes a row for everyone who evaluated the policies. It returns what was not measured, and why.
func createRows(b *strings.Builder, c *growth.Cluster, sizes []int) (missing []string) {
	for _, by := range growth.Evaluators() {
		var cells string
		found := false
		for _, n := range sizes {
			row := c.Find(by, n)
			found = found || row != nil
			switch {
			case row == nil:
				cells += " |"
			case row.Missing != "":
				cells += " - |"
				if reason := fmt.Sprintf("%s, %s", of(by, c), row.Missing); !slices.Contains(missing, reason) {
					missing = append(missing, reason)
				}
			case by == growth.Nobody:
				cells += fmt.Sprintf(" (all %s); %s, %s |", bench.Time.Format(row.Server.Median), bench.Time.Format(row.P50),
					bench.Time.Format(row.P99))
			default:
				cells += fmt.Sprintf(" %s; %s, %s |", bench.Time.Format(row.Added.Median), bench.Time.Format(row.P50),
					bench.Time.Format(row.P99))
			}
		}
		if found {
			fmt.Fprintf(b, "| %s |%s\n", of(by, c), cells)
		}
	}
	return missing
}

// of names who evaluates policies, and for which release.
func of(by string, c *growth.Cluster) string {
	if by == growth.InTree || by == growth.Nobody {
		return by + ", v" + c.Release
	}
	return by + " before v" + c.Release
}
