package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/growth"
)

// A plot shows times over numbers, on logarithmic scales.
type plot struct {
	x     string // what the numbers are
	lines []line
}

// A line has its name at its end.
type line struct {
	name   string
	class  string // its CSS class
	dashes string // empty for a solid line
	points []point
}

// A point is a number and a time in microseconds. Both are above zero.
type point struct {
	number int
	time   float64
}

// growthPicture shows what policies for Pods add to a create, and, with the newest release, policies of which one is for Pods.
func (r *Results) growthPicture() picture {
	p := picture{
		file: "performance-growth.svg", title: "What policies add to the creation of a Pod",
		about: "CPU of kube-apiserver and webhook, without what a Pod costs anyway. All policies are for Pods, or only one",
	}
	var lines []line
	for i := range r.growth.Cluster {
		c := &r.growth.Cluster[i]
		if c.Work != growth.Matching && (c.Work != growth.Others || c.Release != newestRelease) {
			continue
		}
		for _, by := range growth.Evaluators()[1:] {
			if l := lineOf(c, by); len(l.points) > 0 {
				lines = append(lines, l)
			}
		}
		p.foot = foot(&c.Run)
	}
	if len(lines) > 0 {
		p.plot = &plot{x: "policies", lines: lines}
	}
	return p
}

// lineOf returns the line of those who evaluate policies. What adds nothing that can be measured has no point.
func lineOf(c *growth.Cluster, by string) line {
	l := line{name: by, class: "others"}
	if by != growth.Gatekeeper {
		l.name += " v" + c.Release
	}
	if by == growth.Fastadmit {
		l.class = "own"
	}
	if c.Release != newestRelease {
		l.dashes = "7 4"
	}
	if c.Work == growth.Others {
		l.name += ", one for Pods"
		l.dashes = "2 3"
	}
	for _, row := range c.Rows {
		if row.By == by && row.Added.Median > 0 {
			l.points = append(l.points, point{row.Number, row.Added.Median})
		}
	}
	return l
}

// newestRelease is the release of kube-apiserver whose lines are solid.
const newestRelease = "1.37"

// Sizes in a plot, in its pixels.
const (
	plotHeight = 330
	plotLeft   = margin + 62        // of the times
	plotRight  = pictureWidth - 240 // of the names
	nameStep   = 17
)

const plotStyle = `  <style>
    .grid { stroke: #5b6b7f; stroke-opacity: 0.25; }
    .own, .others { fill: none; stroke-width: 2; }
    .own { stroke: #2f7a45; }
    .others { stroke: #5b6b7f; }
    @media (prefers-color-scheme: dark) {
      .grid { stroke: #8b99ab; }
      .own { stroke: #5fbf7d; }
      .others { stroke: #8b99ab; }
    }
  </style>
`

// draw draws the plot from a height on. It returns where it ends.
func (p *plot) draw(b *strings.Builder, top int) int {
	numbers, times := p.decades()
	bottom := float64(top + plotHeight)
	x := func(number int) float64 {
		return plotLeft + (plotRight-plotLeft)*(math.Log10(float64(number))-numbers[0])/(numbers[1]-numbers[0])
	}
	y := func(time float64) float64 { return bottom - plotHeight*(math.Log10(time)-times[0])/(times[1]-times[0]) }
	for decade := numbers[0]; decade <= numbers[1]; decade++ {
		number := int(math.Pow10(int(decade)))
		fmt.Fprintf(b, "  <path class=\"grid\" d=\"M%.1f %dV%.1f\"/>\n", x(number), top, bottom)
		fmt.Fprintf(b, "  <text class=\"small\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", x(number), bottom+18,
			thousands(number))
	}
	fmt.Fprintf(b, "  <text class=\"small\" x=\"%d\" y=\"%.1f\">%s</text>\n", plotRight+gap+20, bottom+18, html.EscapeString(p.x))
	for decade := times[0]; decade <= times[1]; decade++ {
		time := math.Pow10(int(decade))
		fmt.Fprintf(b, "  <path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", plotLeft, y(time), plotRight)
		fmt.Fprintf(b, "  <text class=\"small\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", plotLeft-8, y(time)+4,
			bench.Time.Format(time))
	}
	ends := make([]float64, len(p.lines))
	for i := range p.lines {
		l := &p.lines[i]
		path := ""
		for j, point := range l.points {
			command := "L"
			if j == 0 {
				command = "M"
			}
			path += fmt.Sprintf("%s%.1f %.1f", command, x(point.number), y(point.time))
			fmt.Fprintf(b, "  <circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/>\n", l.class, x(point.number), y(point.time))
		}
		fmt.Fprintf(b, "  <path class=\"%s\" stroke-dasharray=\"%s\" d=\"%s\"/>\n", l.class, cmp.Or(l.dashes, "none"), path)
		ends[i] = y(l.points[len(l.points)-1].time)
	}
	for i, at := range spaced(ends, bottom) {
		last := p.lines[i].points[len(p.lines[i].points)-1]
		fmt.Fprintf(b, "  <path class=\"grid\" d=\"M%.1f %.1fL%d %.1f\"/>\n", x(last.number), ends[i], plotRight+gap-2, at)
		fmt.Fprintf(b, "  <text x=\"%d\" y=\"%.1f\">%s</text>\n", plotRight+gap, at+4, html.EscapeString(p.lines[i].name))
	}
	return top + plotHeight + 24
}

// decades returns the decimal logarithms of the powers of ten around all numbers and times.
func (p *plot) decades() (numbers, times [2]float64) {
	numbers, times = [2]float64{0, 1}, [2]float64{math.Inf(1), math.Inf(-1)}
	for i := range p.lines {
		for _, point := range p.lines[i].points {
			numbers[1] = max(numbers[1], math.Ceil(math.Log10(float64(point.number))))
			times[0] = min(times[0], math.Floor(math.Log10(point.time)))
			times[1] = max(times[1], times[0]+1, math.Ceil(math.Log10(point.time)))
		}
	}
	return numbers, times
}

// spaced returns heights near the given ones for names that do not overlap, above the bottom.
func spaced(heights []float64, bottom float64) []float64 {
	order := make([]int, len(heights))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(heights[b], heights[a]) })
	result, next := make([]float64, len(heights)), bottom
	for _, i := range order { // from the bottom up
		result[i] = min(heights[i], next)
		next = result[i] - nameStep
	}
	return result
}

// description has all numbers in words.
func (p *plot) description() string {
	lines := make([]string, len(p.lines))
	for i := range p.lines {
		points := make([]string, len(p.lines[i].points))
		for j, point := range p.lines[i].points {
			points[j] = fmt.Sprintf("%s with %s", bench.Time.Format(point.time), thousands(point.number))
		}
		lines[i] = p.lines[i].name + ": " + strings.Join(points, ", ") + " " + p.x + "."
	}
	return strings.Join(lines, " ")
}
