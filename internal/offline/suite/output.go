package suite

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/internal/offline/report"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// Summary counts outcomes.
type Summary struct{ Suites, Cases, Passed, Failed, Broken, Skipped int }

// Count counts outcomes.
func Count(outcomes []Outcome) (s Summary) {
	last := ""
	for i := range outcomes {
		o := &outcomes[i]
		if o.File != last {
			last = o.File
			s.Suites++
		}
		if o.Case != "" {
			s.Cases++
		}
		switch {
		case o.Skipped:
			s.Skipped++
		case o.Broken != nil:
			s.Broken++
		case len(o.Failures) > 0:
			s.Failed++
		default:
			s.Passed++
		}
	}
	return s
}

func (s *Summary) String() string {
	text := fmt.Sprintf("%s in %s: %d passed, %d failed", counted(s.Cases, "case"), counted(s.Suites, "suite"), s.Passed, s.Failed)
	if s.Broken > 0 {
		text += fmt.Sprintf(", %d broken", s.Broken)
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	return text
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Formats returns the names of the formats of Write.
func Formats() []string { return []string{"text", "junit"} }

// Write writes the outcomes as text or as JUnit XML. With verbose, the text also shows
// cases that passed or were skipped. tool is the name of the command, for JUnit. The text does not have the notes.
func Write(w io.Writer, format, tool string, verbose bool, outcomes []Outcome, notes []Note) error {
	if format == "junit" {
		return report.WriteJUnit(w, tool, asJUnit(outcomes, notes))
	}
	var b strings.Builder
	said := make(map[string]string) // what breaks all cases of a suite, with the first of them
	for i := range outcomes {
		o := &outcomes[i]
		name := printable.Word(strings.TrimSuffix(o.Suite+"/"+o.Case, "/"))
		at := printable.Word(o.File)
		if o.Line > 0 {
			at = fmt.Sprintf("%s:%d", at, o.Line)
		}
		switch {
		case o.Broken != nil:
			fmt.Fprintf(&b, "BROKEN %s (%s)\n", name, at)
			text := o.Broken.Error()
			if first, known := said[o.File+"\n"+text]; known {
				text = "as in " + first
			} else {
				said[o.File+"\n"+text] = name
			}
			indent(&b, text)
		case len(o.Failures) > 0:
			fmt.Fprintf(&b, "FAIL   %s (%s)\n", name, at)
			for _, failure := range o.Failures {
				indent(&b, failure)
			}
		case verbose && o.Skipped:
			fmt.Fprintf(&b, "SKIP   %s (%s)\n", name, at)
		case verbose:
			fmt.Fprintf(&b, "PASS   %s (%s)\n", name, o.Took.Round(time.Millisecond/10))
		}
	}
	summary := Count(outcomes)
	fmt.Fprintf(&b, "%s\n", &summary)
	_, err := io.WriteString(w, printable.Plain(b.String()))
	return err
}

func indent(b *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		b.WriteString("  " + strings.TrimSuffix(line, "\n") + "\n")
	}
}

func asJUnit(outcomes []Outcome, notes []Note) (suites []report.TestSuite) {
	for i := range outcomes {
		o := &outcomes[i]
		if len(suites) == 0 || suites[len(suites)-1].File != o.File {
			suites = append(suites, report.TestSuite{Name: o.Suite, File: o.File})
		}
		last := &suites[len(suites)-1]
		c := report.TestCase{Name: cmp.Or(o.Case, o.Suite), Line: o.Line, Took: o.Took, Skipped: o.Skipped, Failure: strings.Join(o.Failures, "\n")}
		if o.Broken != nil {
			c.Error = o.Broken.Error()
		}
		last.Cases = append(last.Cases, c)
	}
	for i := range suites {
		for _, note := range notes {
			if note.Suite == suites[i].File {
				suites[i].Output += note.Text + "\n"
			}
		}
	}
	return suites
}
