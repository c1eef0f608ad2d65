package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/internal/explain"
	"github.com/fastadmit/fastadmit/internal/printable"
	kjson "sigs.k8s.io/json"
)

// ExplainFormats are the formats that show the explanations of results.
var ExplainFormats = []string{"text", "json", "yaml"}

// text is for people.
type text struct {
	w io.Writer
	o *Options
	// skipped counts the objects of unknown kinds by their kinds, and under unrendered what must be rendered first. unknown
	// counts those that are not skipped.
	skipped, unknown map[string]int
}

func newText(w io.Writer, o *Options) Writer {
	return &text{w, o, make(map[string]int), make(map[string]int)}
}

const unrendered = "charts or kustomizations"

// skippedMax is how many objects of an unknown kind are printed, and how much that must be rendered first.
const skippedMax = 3

// isRepeated reports whether a result is one of very many that were not reviewed for the same reason. It counts them.
func (t *text) isRepeated(r *Result) bool {
	if r.UnknownKind {
		t.unknown[r.Kind]++
		return t.unknown[r.Kind] > skippedMax
	}
	kind := r.Kind
	if r.Unrendered {
		kind = unrendered
	}
	if r.Decision != Skipped || kind == "" || r.Resource != "" {
		return false
	}
	t.skipped[kind]++
	return t.skipped[kind] > skippedMax
}

// Colours, by the numbers of ECMA-48 section 8.3.117.
const (
	red    = 31
	green  = 32
	yellow = 33
	bold   = 1
)

func (t *text) paint(color int, s string) string {
	if !t.o.Color {
		return s
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, s)
}

// Write implements Writer.
func (t *text) Write(r *Result) error {
	if t.isRepeated(r) || t.o.Quiet && !r.IsNews() {
		return nil
	}
	var b strings.Builder
	r.Walk(func(r *Result, depth int) { t.add(&b, r, depth) })
	_, err := io.WriteString(t.w, printable.Defuse(b.String()))
	return err
}

func (t *text) add(b *strings.Builder, r *Result, depth int) {
	indent := strings.Repeat("  ", depth)
	b.WriteString(indent)
	if location := r.Location(); location != "" {
		b.WriteString(location + ": ")
	}
	if depth > 0 {
		b.WriteString("makes ")
	} else if r.Operation != "" && r.Operation != "CREATE" {
		b.WriteString(r.Operation + " ")
	}
	if object := r.Object(); object != "" {
		b.WriteString(t.paint(bold, object) + ": ")
	}
	said := r.Said()
	word := said[:strings.IndexAny(said+" ", " ,:")]
	color := green
	switch r.Decision {
	case Denied, Failed, Broken, Differs:
		color = red
	case Skipped:
		color = yellow
	}
	b.WriteString(t.paint(color, word) + indented(said[len(word):], indent) + "\n")
	t.addDefault(b, indent+"  ", r.Defaulted)
	var leftOut []Finding
	if depth == 0 {
		leftOut = r.AllLeftOut()
	}
	for _, findings := range []struct {
		name string
		list []Finding
	}{{"also denied", r.FurtherDenials}, {"warning", r.Warnings}, {"audit", r.Audits}, {"ignored", r.Ignored}, {"unchecked", leftOut}} {
		for _, f := range findings.list {
			fmt.Fprintf(b, "%s  %s: %s\n", indent, t.paint(yellow, findings.name), indented(r.Reported(&f), indent))
			t.addDefault(b, indent+"    ", f.Defaulted)
		}
	}
	var operations []json.RawMessage
	if r.Decision == Patched && kjson.UnmarshalCaseSensitivePreserveInts(r.Patch, &operations) == nil {
		for _, operation := range operations {
			fmt.Fprintf(b, "%s  %s\n", indent, operation)
		}
	}
	if r.Recorded != "" {
		fmt.Fprintf(b, "%s  %s: %s\n", indent, t.paint(yellow, "recorded"), indented(r.Recorded, indent))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(b, "%s  %s: %s\n", indent, t.paint(yellow, "note"), note)
	}
	b.WriteString(explain.Text(r.Explanation, r.Message, depth+1))
}

// addDefault adds which fields of a finding have Kubernetes' default.
func (t *text) addDefault(b *strings.Builder, indent string, defaulted []string) {
	if said := Default(defaulted); said != "" {
		fmt.Fprintf(b, "%s%s: %s\n", indent, t.paint(yellow, "default"), said)
	}
}

// indented keeps the lines of a text together.
func indented(text, indent string) string { return strings.ReplaceAll(text, "\n", "\n"+indent+"    ") }

func (f Finding) String() string {
	if f.Plugin == "" {
		return f.Message
	}
	return f.Plugin + ": " + f.Message
}

// closeRepeated says how many results were not printed, and how to skip what is unknown.
func (t *text) closeRepeated() error {
	var lines []string
	for _, repeated := range []struct {
		decision Decision
		kinds    map[string]int
	}{{Skipped, t.skipped}, {Broken, t.unknown}} {
		for _, kind := range slices.Sorted(maps.Keys(repeated.kinds)) {
			if more := repeated.kinds[kind] - skippedMax; more > 0 && (!t.o.Quiet || repeated.decision == Broken) {
				lines = append(lines, fmt.Sprintf("and %d more %s: %s", more, repeated.decision, kind))
			}
		}
	}
	if len(t.unknown) > 0 {
		lines = append(lines, "--skip-unknown="+strings.Join(slices.Sorted(maps.Keys(t.unknown)), ",")+" skips what has an unknown kind")
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(t.w, printable.Plain(line)); err != nil {
			return err
		}
	}
	return nil
}

// Close implements Writer.
func (t *text) Close(s *Summary) error {
	if err := t.closeRepeated(); err != nil {
		return err
	}
	for _, line := range s.exceptions() {
		if _, err := fmt.Fprintln(t.w, printable.Plain(line)); err != nil {
			return err
		}
	}
	if len(s.Policies) > 1 { // otherwise the decisions count them
		for i := range s.Policies {
			if _, err := fmt.Fprintf(t.w, "%s\n", printable.Plain(s.Policies[i].String())); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(t.w, "%s\n", s)
	return err
}
