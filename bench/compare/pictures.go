package main

import (
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/compare/contest"
	"github.com/fastadmit/fastadmit/bench/growth"
)

// A picture shows numbers as horizontal bars, or as lines.
type picture struct {
	file, title, about string
	foot               string // what was measured, when and where
	plot               *plot  // nil for bars
	groups             []barGroup
	// sameScale draws all groups on the same scale, so that they can be compared. Otherwise the
	// longest bar of each group has the full width.
	sameScale bool
}

type barGroup struct {
	title string // "" for a picture of one group
	bars  []bar
}

type bar struct {
	name  string
	value float64
	text  string // at the end of the bar: the value with its unit
}

// pictures returns the pictures for which the results have data.
func (r *Results) pictures() []picture {
	all := []picture{r.ratesPicture(), r.saturatedPicture(), r.worstPicture(), r.othersPicture()}
	for i := range all {
		all[i].foot = foot(&growth.Run{Date: r.Date, Commit: r.Commit, Machine: r.Machine})
	}
	all = append(all, r.growthPicture())
	return slices.DeleteFunc(all, func(p picture) bool { return len(p.groups) == 0 && p.plot == nil })
}

// foot describes a run.
func foot(run *growth.Run) string {
	return fmt.Sprintf("%s, commit %s, %s, %s", run.Date, run.Commit, run.Machine.CPU, run.Machine.Go)
}

func (r *Results) writePictures(folder string) error {
	for _, p := range r.pictures() {
		if err := os.WriteFile(filepath.Join(folder, p.file), []byte(p.svg()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ratesScenario is the scenario that the picture of rates shows.
const ratesScenario = "mutate"

func (r *Results) ratesPicture() picture {
	p := picture{file: "performance-rates.svg", title: "What a request costs at a low rate", sameScale: true}
	at := slices.IndexFunc(r.Scenarios, func(s ScenarioResult) bool { return s.Name == ratesScenario })
	if at < 0 {
		return p
	}
	p.about = "CPU per request on kept connections. " + r.Scenarios[at].About
	for _, low := range r.Scenarios[at].LowRates {
		group := barGroup{title: bench.Number.Format(low.Rate) + " requests/s"}
		for _, row := range low.Rows {
			group.bars = append(group.bars, bar{row.Name, row.CPU.Median, bench.Time.Format(row.CPU.Median)})
		}
		p.groups = append(p.groups, group)
	}
	return p
}

func (r *Results) saturatedPicture() picture {
	p := picture{
		file: "performance-saturated.svg", title: "How many requests one processor answers",
		about: "Requests per second of a saturated server. The floor is the transport alone",
	}
	for i := range r.Scenarios {
		group := barGroup{title: r.Scenarios[i].About}
		for _, name := range []string{contest.Floor, contest.Ours} {
			row := r.Scenarios[i].row(name)
			if row == nil {
				continue
			}
			text := bench.Number.Format(row.Rate.Median) + "/s"
			if row.Busy.Median < busyMin {
				text = "≥ " + text
			}
			group.bars = append(group.bars, bar{name, row.Rate.Median, text})
		}
		if len(group.bars) > 0 {
			p.groups = append(p.groups, group)
		}
	}
	return p
}

func (r *Results) worstPicture() picture {
	p := picture{file: "performance-worst.svg", title: "What the worst review costs"}
	if r.Worst == nil || len(r.Worst.Rows) == 0 {
		return p
	}
	shown := r.Worst.shown()
	p.about = fmt.Sprintf("CPU of one review with %d entries in a list or map, of the plugins that take most", shown[0].Things)
	var group barGroup
	for _, row := range shown {
		group.bars = append(group.bars, bar{row.Plugin, row.CPU, bench.Time.Format(row.CPU)})
	}
	p.groups = []barGroup{group}
	return p
}

func (r *Results) othersPicture() picture {
	p := picture{
		file: "performance-others.svg", title: "What a request costs with other ways to write a webhook",
		about: "CPU per request of a saturated server, and its ratio to fastadmit's",
	}
	for i := range r.Scenarios {
		group := barGroup{title: r.Scenarios[i].About}
		for _, row := range r.Scenarios[i].Rows {
			text := bench.Time.Format(row.CPU.Median)
			if row.Name != contest.Ours {
				text += ", " + times(row.ToOurs.Median)
			}
			group.bars = append(group.bars, bar{row.Name, row.CPU.Median, text})
		}
		p.groups = append(p.groups, group)
	}
	return p
}

// Sizes in a picture, in its pixels.
const (
	pictureWidth = 760
	margin       = 20
	headHeight   = 66 // title, and what the bars show
	groupHeight  = 30 // title of a group
	barHeight    = 16
	barStep      = 22
	gap          = 10
	footHeight   = 36
	charWidth    = 7.4 // an upper bound of the average width in the font of size 13
)

// pictureStyle uses the colors of docs/request-path.svg.
const pictureStyle = `  <style>
    .page { fill: #ffffff; }
    .floor { fill: #f4f6f9; stroke: #5b6b7f; }
    .ours { fill: #2f7a45; }
    .other { fill: #5b6b7f; }
    text { fill: #1b2430; }
    .small { font-size: 12px; fill: #48566a; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; }
      .floor { fill: #1c232d; stroke: #8b99ab; }
      .ours { fill: #5fbf7d; }
      .other { fill: #8b99ab; }
      text { fill: #e6edf3; }
      .small { fill: #aab6c5; }
    }
  </style>
`

// svg draws the picture. Its description contains all numbers, for screen readers.
func (p *picture) svg() string {
	var body strings.Builder
	style, draw := pictureStyle, p.drawBars
	if p.plot != nil {
		style, draw = pictureStyle+plotStyle, p.plot.draw
	}
	y := draw(&body, headHeight) + footHeight
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\" aria-labelledby=\"title "+
		"description\" "+
		"font-family=\"system-ui, sans-serif\" font-size=\"13\">\n", pictureWidth, y, pictureWidth)
	fmt.Fprintf(&b, "  <title id=\"title\">%s</title>\n", html.EscapeString(p.title))
	fmt.Fprintf(&b, "  <desc id=\"description\">%s</desc>\n", html.EscapeString(p.description()))
	b.WriteString(style)
	fmt.Fprintf(&b, "  <rect class=\"page\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", pictureWidth, y)
	fmt.Fprintf(&b, "  <text x=\"%d\" y=\"30\" font-size=\"16\" font-weight=\"600\">%s</text>\n", margin, html.EscapeString(p.title))
	fmt.Fprintf(&b, "  <text class=\"small\" x=\"%d\" y=\"50\">%s</text>\n", margin, html.EscapeString(p.about))
	b.WriteString(body.String())
	fmt.Fprintf(&b, "  <text class=\"small\" x=\"%d\" y=\"%d\">%s</text>\n</svg>\n", margin, y-margin+4, html.EscapeString(p.foot))
	return b.String()
}

// drawBars draws the bars from a height on. It returns where they end.
func (p *picture) drawBars(b *strings.Builder, y int) int {
	names, texts, most := 0.0, 0.0, 0.0
	for _, group := range p.groups {
		for _, bar := range group.bars {
			names = max(names, charWidth*float64(utf8.RuneCountInString(bar.name)))
			texts = max(texts, charWidth*float64(utf8.RuneCountInString(bar.text)))
		}
		most = max(most, group.most())
	}
	left := margin + names + gap
	full := pictureWidth - margin - texts - gap - left // the longest bar
	for _, group := range p.groups {
		scale := most
		if !p.sameScale {
			scale = group.most()
		}
		if group.title != "" {
			fmt.Fprintf(b, "  <text x=\"%d\" y=\"%d\" font-weight=\"600\">%s</text>\n", margin, y+16, html.EscapeString(group.title))
			y += groupHeight
		}
		for _, bar := range group.bars {
			width := max(1, full*bar.value/scale)
			fmt.Fprintf(b, "  <text x=\"%d\" y=\"%d\">%s</text>\n", margin, y+13, html.EscapeString(bar.name))
			fmt.Fprintf(b, "  <rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"/>\n", bar.class(), left, y,
				width, barHeight)
			fmt.Fprintf(b, "  <text x=\"%.1f\" y=\"%d\">%s</text>\n", left+width+gap, y+13, html.EscapeString(bar.text))
			y += barStep
		}
		y += gap
	}
	return y
}

// description describes the picture in words.
func (p *picture) description() string {
	parts := []string{p.about + "."}
	if p.plot != nil {
		parts = append(parts, p.plot.description())
	}
	for _, group := range p.groups {
		bars := make([]string, len(group.bars))
		for i, bar := range group.bars {
			bars[i] = bar.name + ": " + bar.text
		}
		if group.title != "" {
			parts = append(parts, group.title+".")
		}
		parts = append(parts, strings.Join(bars, "; ")+".")
	}
	return strings.Join(parts, " ")
}

// most returns the value of the longest bar.
func (g *barGroup) most() float64 {
	most := 0.0
	for _, bar := range g.bars {
		most = max(most, bar.value)
	}
	return most
}

// class returns the CSS class of the bar: of the floor, of another contender, or of fastadmit and
// its plugins.
func (b *bar) class() string {
	isContender := slices.ContainsFunc(contest.Contenders, func(c contest.Contender) bool { return c.Name == b.name })
	switch {
	case b.name == contest.Floor:
		return "floor"
	case b.name == contest.Ours || !isContender:
		return "ours"
	}
	return "other"
}
