package bench

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
)

//go:embed report.html
var page string

// A view is the data of the page.
type view struct {
	*Report
	Title    string
	Wrong    int64
	Targets  []viewTarget
	Rows     []viewRow
	Latency  template.HTML
	Timeline template.HTML
	Ratios   template.HTML
	Sweep    template.HTML

	AboutRatios string
}

// A viewTarget is a target with the sum of its rounds.
type viewTarget struct {
	Class  string // of its color
	Name   string
	First  *Result // the first round, for values that are the same in all rounds
	Rounds int
	Sum    *Result
}

// A viewRow is a metric with a cell for each target, and for the ratio of each
// but the first.
type viewRow struct {
	Metric string
	Cells  []string
}

// WriteHTML writes the report as a self-contained HTML page without scripts.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{
		"time": Time.Format, "number": Number.Format, "bytes": Bytes.Format, "class": class,
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	v := &view{Report: r, Title: "Admission webhook load report", Wrong: r.Failed(), AboutRatios: aboutRatios}
	for i := range r.Series {
		s := &r.Series[i]
		if len(s.Rounds) > 0 {
			v.Targets = append(v.Targets, viewTarget{Class: class(i), Name: s.Name, First: s.Rounds[0], Rounds: len(s.Rounds), Sum: s.Total()})
		}
	}
	if len(v.Targets) > 0 {
		v.Rows = r.rows()
		v.Latency, v.Timeline = latencyPlot(v.Targets), timelinePlot(r.Series)
	}
	if len(r.Comparisons) > 0 {
		v.Ratios = ratioBars(r.Comparisons)
	}
	if len(r.Sweeps) > 0 {
		v.Sweep = sweepPlot(r.Sweeps)
	}
	return t.Execute(w, v)
}

// class is the name of the color of the nth target.
func class(n int) string { return fmt.Sprintf("target%d", n%8) }

func (r *Report) rows() []viewRow {
	var rows []viewRow
	for _, m := range Metrics() {
		row := viewRow{Metric: m.Name}
		for i := range r.Series {
			if spread, ok := r.Series[i].Spread(&m); ok {
				row.Cells = append(row.Cells, showSpread(spread, len(r.Series[i].Rounds), m.Unit.Format))
			}
		}
		if len(row.Cells) < len(r.Series) {
			continue
		}
		for _, comparison := range r.Comparisons {
			cell := "-"
			for _, ratio := range comparison.Ratios {
				if ratio.Metric == m.Name {
					cell = showSpread(ratio.Spread, len(r.Series[0].Rounds), func(v float64) string { return digits(v) + "×" })
				}
			}
			row.Cells = append(row.Cells, cell)
		}
		rows = append(rows, row)
	}
	return rows
}

func showSpread(s Spread, rounds int, format func(float64) string) string {
	if rounds < 2 {
		return format(s.Median)
	}
	return fmt.Sprintf("%s\n%s to %s", format(s.Median), format(s.Min), format(s.Max))
}

// latencyPlot shows the latency by percentile.
func latencyPlot(targets []viewTarget) template.HTML {
	p := plot{name: "latency", label: "Latency by percentile"}
	low, high, most := math.Inf(1), 0.0, 0.0
	for _, target := range targets {
		l := line{class: target.Class, title: target.Name}
		for _, point := range target.Sum.Latency.Points {
			nines := float64(target.Sum.Latency.Count) // the axis ends at the slowest request
			if point.Percentile < 100 {
				nines = min(nines, 100/(100-point.Percentile))
			}
			l.points = append(l.points, xy{nines, point.Value})
			low, high, most = min(low, point.Value), max(high, point.Value), max(most, nines)
		}
		p.lines = append(p.lines, l)
	}
	if high == 0 {
		low, high = 1, 10
	}
	p.x, p.y = percentiles(most), logTimes("latency", low, high)
	return p.svg()
}

// timelinePlot shows the answers per second over time. The rounds of a target follow one another.
func timelinePlot(series []Series) template.HTML {
	p := plot{name: "timeline", label: "Answers per second over time"}
	var seconds, most float64
	for i, s := range series {
		l := line{class: class(i), title: s.Name}
		var begin float64
		for _, round := range s.Rounds {
			for j, slot := range round.Timeline {
				width := round.SlotSeconds
				if left := round.Seconds - float64(j)*width; left < width { // the last one
					if left < width/2 && j > 0 {
						break
					}
					width = left
				}
				point := xy{begin + float64(j)*round.SlotSeconds + width/2, float64(slot.Requests) / width}
				l.points = append(l.points, point)
				most = max(most, point.y)
			}
			begin += round.Seconds
		}
		seconds = max(seconds, begin)
		p.lines = append(p.lines, l)
	}
	p.x, p.y = linear("time measured", seconds, " s"), linear("answers per second", most, "")
	return p.svg()
}

// sweepPlot shows the latency at each rate that was tried.
func sweepPlot(sweeps []Sweep) template.HTML {
	p := plot{name: "sweep", label: "Latency by offered rate"}
	low, high, most := math.Inf(1), 0.0, 0.0
	for i, sweep := range sweeps {
		p50 := line{class: class(i) + " half", title: sweep.Target + " p50"}
		p99 := line{class: class(i), title: sweep.Target + " p99"}
		for _, step := range sweep.sorted() {
			p50.points = append(p50.points, xy{step.Rate, step.Result.Latency.P50})
			p99.points = append(p99.points, xy{step.Rate, step.Result.Latency.P99})
			low, high = min(low, step.Result.Latency.P50), max(high, step.Result.Latency.P99)
			most = max(most, step.Rate)
		}
		p.lines = append(p.lines, p50, p99)
		high = max(high, sweep.Bound)
		if i == 0 {
			p.marks = append(p.marks, mark{sweep.Bound, "bound of p99: " + Time.Format(sweep.Bound)})
		}
	}
	p.x, p.y = linear("requests offered per second", most, ""), logTimes("latency, p50 (thin) and p99", low, high)
	return p.svg()
}
