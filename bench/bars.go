package bench

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// ratioBars shows ratios on a logarithmic scale, with a whisker from the lowest to the highest
// round.
func ratioBars(comparisons []Comparison) template.HTML {
	const (
		left, right, top, row, bar = 190, 150, 26, 26, 12
	)
	most, rows := 2.0, 0
	for _, comparison := range comparisons {
		for _, ratio := range comparison.Ratios {
			for _, value := range []float64{ratio.Min, ratio.Max} {
				if value > 0 {
					most = max(most, value, 1/value)
				}
			}
			rows++
		}
	}
	x := axis{min: 1 / most, max: most, log: true}
	at := func(v float64) float64 { return left + x.place(v)*(plotWidth-left-right) }
	height := top + rows*row + 10
	var b strings.Builder
	fmt.Fprintf(&b, `<svg id="ratios" class="plot" viewBox="0 0 %d %d" role="img" aria-label="Ratios to the first target">`, plotWidth, height)
	for _, tick := range ratioTicks(most) {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text class="tick middle" x="%.1f" y="%d">%g×</text>`,
			at(tick), at(tick), top, height-10, at(tick), top-8, tick)
	}
	fmt.Fprintf(&b, `<line class="one" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, at(1), at(1), top, height-10)
	y := top
	for i, comparison := range comparisons {
		for _, ratio := range comparison.Ratios {
			middle := float64(y) + row/2
			begin, end := min(at(1), at(ratio.Median)), max(at(1), at(ratio.Median))
			fmt.Fprintf(&b, `<text class="axis end" x="%d" y="%.1f">%s</text>`, left-10, middle+4, template.HTMLEscapeString(ratio.Metric))
			fmt.Fprintf(&b, `<rect class="bar %s" x="%.1f" y="%.1f" width="%.1f" height="%d"><title>%s</title></rect>`,
				class(i+1), begin, middle-bar/2, max(end-begin, 1), bar, template.HTMLEscapeString(comparison.Other))
			fmt.Fprintf(&b, `<line class="whisker" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, at(ratio.Min), at(ratio.Max), middle, middle)
			fmt.Fprintf(&b, `<text class="axis" x="%d" y="%.1f">%s×</text>`, plotWidth-right+10, middle+4, digits(ratio.Median))
			y += row
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // every text was escaped
}

// ratioTicks are powers of two, or powers of ten if the ratios are large.
func ratioTicks(most float64) []float64 {
	base := 2.0
	if most > 32 {
		base = 10
	}
	ticks := []float64{1}
	for power := base; power <= most*1.001; power *= base {
		ticks = append(ticks, power, math.Round(1e6/power)/1e6)
	}
	return ticks
}
