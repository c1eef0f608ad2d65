package bench

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// The size of a plot and of its margins, in SVG units.
const (
	plotWidth, plotHeight                            = 880, 340
	marginLeft, marginRight, marginTop, marginBottom = 84, 20, 14, 44
)

// A plot draws lines over two axes.
type plot struct {
	name  string // of the element
	label string // a description for screen readers
	x, y  axis
	lines []line
	marks []mark
}

// An axis maps numbers to a length.
type axis struct {
	label    string
	min, max float64
	log      bool
	ticks    []tick
}

type tick struct {
	at   float64
	text string
}

// A line connects points. Its class determines its color and style.
type line struct {
	class  string
	title  string
	points []xy
}

type xy struct{ x, y float64 }

// A mark is a line across the plot, at a y.
type mark struct {
	y    float64
	text string
}

// place maps a number to 0...1.
func (a *axis) place(value float64) float64 {
	low, high := a.min, a.max
	if a.log {
		value, low, high = math.Log10(max(value, a.min)), math.Log10(low), math.Log10(high)
	}
	if high <= low {
		return 0
	}
	return min(max((value-low)/(high-low), 0), 1)
}

// logTimes is a logarithmic axis over times in microseconds, from least to most, with ticks at 1, 2
// and 5 of each power of ten.
func logTimes(label string, low, high float64) axis {
	a := axis{label: label, log: true}
	low, high = max(low, 0.1), max(high, low*1.5, 0.2)
	var steps []float64
	for power := math.Pow(10, math.Floor(math.Log10(low))); power < high*10; power *= 10 {
		steps = append(steps, power, 2*power, 5*power)
	}
	begin, end := 0, len(steps)-1
	for begin+1 < len(steps) && steps[begin+1] <= low {
		begin++
	}
	for end > 0 && steps[end-1] >= high {
		end--
	}
	for _, step := range steps[begin : end+1] {
		a.ticks = append(a.ticks, tick{step, Time.Format(step)})
	}
	a.min, a.max = a.ticks[0].at, a.ticks[len(a.ticks)-1].at
	return a
}

// linear is an axis from 0 with round ticks.
func linear(label string, high float64, unit string) axis {
	if high <= 0 {
		high = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(high)))
	for _, part := range []float64{5, 2.5} {
		if high/step < part {
			step /= 2
		}
	}
	a := axis{label: label}
	for at := 0.0; at < high+step; at += step {
		a.ticks = append(a.ticks, tick{at, digits(at) + unit})
	}
	a.max = a.ticks[len(a.ticks)-1].at
	return a
}

// percentiles is an axis that gives the same length to each further nine: 90, 99, 99.9 %. Its
// numbers are 1/(1-share).
func percentiles(most float64) axis {
	a := axis{label: "percentile of the requests", min: 1, log: true, max: max(most, 100)}
	for _, p := range []tick{
		{1, "0 %"}, {2, "50 %"}, {10, "90 %"}, {100, "99 %"}, {1e3, "99.9 %"}, {1e4, "99.99 %"}, {1e5, "99.999 %"}, {1e6, "99.9999 %"},
	} {
		if p.at <= a.max {
			a.ticks = append(a.ticks, p)
		}
	}
	return a
}

// svg draws the plot. All text in it is escaped.
func (p *plot) svg() template.HTML {
	var b strings.Builder
	x := func(v float64) float64 { return marginLeft + p.x.place(v)*(plotWidth-marginLeft-marginRight) }
	y := func(v float64) float64 {
		return plotHeight - marginBottom - p.y.place(v)*(plotHeight-marginTop-marginBottom)
	}
	fmt.Fprintf(&b, `<svg id=%q class="plot" viewBox="0 0 %d %d" role="img" aria-label=%q>`,
		p.name, plotWidth, plotHeight, template.HTMLEscapeString(p.label))
	for _, t := range p.x.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, x(t.at), x(t.at), marginTop, plotHeight-marginBottom)
		fmt.Fprintf(&b, `<text class="tick middle" x="%.1f" y="%d">%s</text>`, x(t.at), plotHeight-marginBottom+18, template.HTMLEscapeString(t.text))
	}
	for _, t := range p.y.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, marginLeft, plotWidth-marginRight, y(t.at), y(t.at))
		fmt.Fprintf(&b, `<text class="tick end" x="%d" y="%.1f">%s</text>`, marginLeft-8, y(t.at)+4, template.HTMLEscapeString(t.text))
	}
	fmt.Fprintf(&b, `<text class="axis middle" x="%d" y="%d">%s</text>`,
		(plotWidth+marginLeft-marginRight)/2, plotHeight-6, template.HTMLEscapeString(p.x.label))
	fmt.Fprintf(&b, `<text class="axis middle" transform="translate(14 %d) rotate(-90)">%s</text>`,
		(plotHeight+marginTop-marginBottom)/2, template.HTMLEscapeString(p.y.label))
	for _, m := range p.marks {
		fmt.Fprintf(&b, `<line class="mark" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, marginLeft, plotWidth-marginRight, y(m.y), y(m.y))
		fmt.Fprintf(&b, `<text class="axis" x="%d" y="%.1f">%s</text>`, marginLeft+6, y(m.y)-5, template.HTMLEscapeString(m.text))
	}
	for _, l := range p.lines {
		l.svg(&b, x, y)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // every text was escaped
}

func (l *line) svg(b *strings.Builder, x, y func(float64) float64) {
	if len(l.points) == 0 {
		return
	}
	fmt.Fprintf(b, `<path class="line %s" d="`, template.HTMLEscapeString(l.class))
	for i, point := range l.points {
		command := 'L'
		if i == 0 {
			command = 'M'
		}
		fmt.Fprintf(b, "%c%.1f %.1f", command, x(point.x), y(point.y))
	}
	fmt.Fprintf(b, `"><title>%s</title></path>`, template.HTMLEscapeString(l.title))
	if len(l.points) > 30 {
		return
	}
	for _, point := range l.points {
		fmt.Fprintf(b, `<circle class="dot %s" cx="%.1f" cy="%.1f" r="3.5"/>`, template.HTMLEscapeString(l.class), x(point.x), y(point.y))
	}
}
