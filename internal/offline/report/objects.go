package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fastadmit/fastadmit/internal/printable"
	"github.com/pmezard/go-difflib/difflib"
)

// objectWriter writes objects as they would be stored. For an object that would
// not be stored, it writes a comment with the reason, so that the output stays
// YAML.
type objectWriter struct{ w io.Writer }

func newObject(w io.Writer, _ *Options) Writer { return &objectWriter{w} }

// Write implements Writer.
func (o *objectWriter) Write(r *Result) error {
	if r.Decision == Skipped {
		return nil
	}
	if r.After != nil {
		text, err := Document(r.After)
		if err == nil {
			_, err = fmt.Fprintf(o.w, "---\n%s", text)
		}
		return err
	}
	_, err := fmt.Fprintf(o.w, "---\n%s", comment(r, r))
	return err
}

// comment is the decision about a result as a comment. A controller makes its object of root's, unless they are the same.
func comment(root, r *Result) string {
	text, object := r.Said(), r.Object()
	if r != root {
		object = root.Object() + " makes " + object
	}
	for _, part := range []string{object, root.Location()} {
		if part != "" {
			text = part + ": " + text
		}
	}
	return printable.Defuse("# " + strings.ReplaceAll(text, "\n", "\n# ") + "\n")
}

// Close implements Writer.
func (o *objectWriter) Close(*Summary) error { return nil }

// diffWriter writes the changes by mutation as a unified diff, which patch(1)
// and editors read. Denials and failures are comments, which these programs
// skip.
type diffWriter struct{ w io.Writer }

func newDiff(w io.Writer, _ *Options) Writer { return &diffWriter{w} }

// Write implements Writer.
func (d *diffWriter) Write(r *Result) (err error) {
	root := r
	r.Walk(func(r *Result, depth int) {
		if err == nil {
			err = d.write(root, r, depth)
		}
	})
	return err
}

func (d *diffWriter) write(root, r *Result, depth int) error {
	switch r.Decision {
	case Allowed, Skipped:
		return nil
	case Denied, Failed, Broken, Differs:
		_, err := io.WriteString(d.w, comment(root, r))
		return err
	}
	before, err := Document(r.Before)
	if err != nil {
		return err
	}
	after, err := Document(r.After)
	if err != nil {
		return err
	}
	name := strings.TrimSpace(root.Location() + " " + r.Object())
	if depth > 0 {
		name = fmt.Sprintf("%s %s makes %s", root.Location(), root.Object(), r.Object())
	}
	return difflib.WriteUnifiedDiff(d.w, difflib.UnifiedDiff{
		A: slices.Collect(strings.Lines(string(before))), FromFile: name,
		B: slices.Collect(strings.Lines(string(after))), ToFile: name + ", patched by " + strings.Join(r.PatchedBy, ", "),
		Context: 3,
	})
}

// Close implements Writer.
func (d *diffWriter) Close(*Summary) error { return nil }

// responseWriter writes the AdmissionReviews that the server would answer, one a
// line. An object that cannot be reviewed has none.
type responseWriter struct{ w io.Writer }

func newResponse(w io.Writer, _ *Options) Writer { return &responseWriter{w} }

// Write implements Writer.
func (w *responseWriter) Write(r *Result) error {
	if r.Response == nil {
		return nil
	}
	_, err := fmt.Fprintf(w.w, "%s\n", escapeJSON(r.Response))
	return err
}

// Close implements Writer.
func (w *responseWriter) Close(*Summary) error { return nil }
