package report

import (
	"crypto/sha256"
	_ "embed" // the page
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/internal/printable"
)

var (
	//go:embed report.html
	pageText string
	//go:embed report.css
	pageStyle string
	//go:embed report.js
	pageScript string
)

var page = template.Must(template.New("").Funcs(template.FuncMap{
	"plain": printable.Plain,
}).Parse(pageText))

// htmlPage is a page that needs no other files. Its rows are written a result at a time, so its summary is at the end, and the
// style shows it at the beginning.
//
// All values are escaped by html/template. If one were not, the page's policy lets nothing run, load or be sent but the
// style and the script that it names by their digests.
type htmlPage struct {
	w     io.Writer
	o     *Options
	began bool
}

func newHTML(w io.Writer, o *Options) Writer { return &htmlPage{w: w, o: o} }

// A htmlRow is a result.
type htmlRow struct {
	Verdict, Class, Object, Of, Location string
	Kind, Verdicts, Policies             string // for the filter; the last two are lines
	Lines                                []htmlLine
}

// A htmlLine is a reason, or a finding.
type htmlLine struct{ Verdict, Class, By, Message, Rule, Paths, Default string }

// digest returns the source of a style or a script for the page's policy.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func (h *htmlPage) begin() error {
	h.began = true
	policy := fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; img-src data:; base-uri 'none'; form-action 'none'",
		digest(pageStyle), digest(pageScript))
	_, err := fmt.Fprintf(h.w, `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>fastadmit</title>
<style>%s</style>
</head>
<body>
`, policy, pageStyle)
	if err != nil {
		return err
	}
	return page.ExecuteTemplate(h.w, "head", h.o)
}

// Write implements Writer.
func (h *htmlPage) Write(root *Result) (err error) {
	if !h.began {
		err = h.begin()
	}
	root.Walk(func(r *Result, depth int) {
		if err != nil {
			return
		}
		row := newHTMLRow(r)
		if depth > 0 {
			row.Of, row.Location = root.Object(), root.Location()
		} else {
			row.add("unchecked", "soft", "", root.AllLeftOut())
		}
		var b strings.Builder
		if err = page.ExecuteTemplate(&b, "row", row); err == nil {
			_, err = io.WriteString(h.w, printable.Defuse(b.String()))
		}
	})
	return err
}

func newHTMLRow(r *Result) *htmlRow {
	row := &htmlRow{Verdict: string(r.Decision), Class: "bad", Object: r.Object(), Location: r.Location(), Kind: r.Kind}
	row.Verdicts = row.Verdict
	if row.Object == "" {
		row.Object, row.Location = row.Location, ""
	}
	reason := htmlLine{Verdict: row.Verdict, By: titleOf(r.Plugin, r.Policy), Message: r.Message + r.changedBefore()}
	switch r.Decision {
	case Allowed:
		row.Class = "good"
	case Patched:
		row.Class = "good"
		reason.By, reason.Message = strings.Join(r.PatchedBy, ", "), string(r.Patch)
	case Skipped:
		row.Class = "soft"
	case Denied:
		reason.Rule, reason.Paths, reason.Default = r.Rule, strings.Join(r.Paths, ", "), Default(r.Defaulted)
	case Differs:
		reason.By, reason.Message = "", r.Differing()+": "+r.Message
	}
	reason.Class = row.Class
	if r.Decision != Allowed {
		row.Lines = append(row.Lines, reason)
	}
	row.name(r.Plugin, r.Policy)
	row.add("also denied", "bad", "", placed(r, r.FurtherDenials))
	row.add("warning", "warn", "warning", placed(r, r.Warnings))
	row.add("audit", "warn", "audit", r.Audits)
	row.add("ignored failure", "warn", "", r.Ignored)
	if r.Unchecked {
		row.Verdicts += "\nunchecked"
	}
	return row
}

// placed returns findings of a result. The messages of those about a place in the file begin with it.
func placed(r *Result, all []Finding) []Finding {
	all = slices.Clone(all)
	for i := range all {
		if f := &all[i]; f.Line > 0 {
			f.Message = fmt.Sprintf("%s:%d: %s", r.File, f.Line, f.Message)
		}
	}
	return all
}

// add adds findings. verdict is their name in the filter, empty for none.
func (row *htmlRow) add(name, class, verdict string, findings []Finding) {
	for i := range findings {
		f := &findings[i]
		row.Lines = append(row.Lines, htmlLine{
			Verdict: name, Class: class, By: titleOf(f.Plugin, f.Policy), Message: f.Message, Rule: f.Rule,
			Paths: strings.Join(f.Paths, ", "), Default: Default(f.Defaulted),
		})
		row.name(f.Plugin, f.Policy)
	}
	if len(findings) > 0 && verdict != "" {
		row.Verdicts += "\n" + verdict
	}
}

// name adds a plugin or a policy to those of the filter.
func (row *htmlRow) name(plugin, policy string) {
	name := titleOf(plugin, policy)
	if known := strings.Split(row.Policies, "\n"); name != "" && !slices.Contains(known, name) {
		row.Policies = strings.TrimPrefix(row.Policies+"\n"+name, "\n")
	}
}

// Close implements Writer.
func (h *htmlPage) Close(s *Summary) error {
	if !h.began {
		if err := h.begin(); err != nil {
			return err
		}
	}
	if err := page.ExecuteTemplate(h.w, "foot", s); err != nil {
		return err
	}
	_, err := fmt.Fprintf(h.w, "<script>%s</script>\n</body>\n</html>\n", pageScript)
	return err
}
