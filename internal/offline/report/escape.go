package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf16"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/printable"
)

// Names and messages may come from untrusted users: from a pull request, or from a tenant of a
// cluster. Printed, they must not act as something else: a terminal's escape sequence, a
// workflow command of GitHub, another object or another file. Each kind of output has one
// function: those of package printable for text, escapeJSON for JSON, and Document for YAML.

// escapeJSON escapes characters in JSON that are not printable. They are in strings only.
func escapeJSON(text []byte) []byte {
	return escapeStrings(text, func(b *bytes.Buffer, r rune) {
		if first, second := utf16.EncodeRune(r); first != unicode.ReplacementChar {
			fmt.Fprintf(b, `\u%04x\u%04x`, first, second)
			return
		}
		fmt.Fprintf(b, `\u%04x`, r)
	})
}

// escapeFlow is escapeJSON for JSON that is read as YAML, which has no surrogates.
func escapeFlow(text []byte) []byte {
	return escapeStrings(text, func(b *bytes.Buffer, r rune) {
		if r > 0xffff {
			fmt.Fprintf(b, `\U%08x`, r)
			return
		}
		fmt.Fprintf(b, `\u%04x`, r)
	})
}

func escapeStrings(text []byte, write func(b *bytes.Buffer, r rune)) []byte {
	var b bytes.Buffer
	for _, r := range string(bytes.ReplaceAll(text, []byte(printable.OldCommand), []byte(`#\u0023[`))) {
		if r == '\n' || codec.IsPrintable(r) {
			b.WriteRune(r)
		} else {
			write(&b, r)
		}
	}
	return b.Bytes()
}

// isHarmless reports whether a text can be printed as it is.
func isHarmless(text []byte) bool {
	if bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && !codec.IsPrintable(r) }) {
		return false
	}
	for line := range bytes.Lines(text) {
		if printable.IsCommand(string(line)) {
			return false
		}
	}
	return true
}

// Document returns a JSON document as YAML. If YAML would show something that is not
// harmless, it returns JSON with escapes, which is YAML, too.
func Document(text []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	// The JSON is encoded anew, because YAML has no surrogates.
	indented, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return nil, err
	}
	indented = append(escapeFlow(indented), '\n')
	asYAML, err := yaml.JSONToYAML(indented)
	if err == nil && !isHarmless(asYAML) {
		return indented, nil
	}
	return asYAML, err
}

// cleaned returns a copy of the result whose texts can be printed. Only messages have more than
// one line. Before, After and Response are unchanged.
func (r *Result) cleaned() *Result {
	c := *r
	for _, text := range [...]*string{
		&c.File, &c.Operation, &c.APIVersion, &c.Kind, &c.Resource, &c.SubResource, &c.Namespace, &c.Name, &c.UID, &c.User, &c.Plugin, &c.Reason,
		&c.Change, &c.Policy, &c.Binding, &c.Rule,
	} {
		*text = printable.Word(*text)
	}
	c.Message, c.Recorded = printable.Lines(c.Message), printable.Lines(c.Recorded)
	c.Notes, c.Paths, c.Defaulted = cleanWords(c.Notes), cleanWords(c.Paths), cleanWords(c.Defaulted)
	c.Patch = escapeJSON(c.Patch)
	for _, findings := range [...]*[]Finding{&c.FurtherDenials, &c.Warnings, &c.Audits, &c.Ignored, &c.LeftOut} {
		*findings = cleanFindings(*findings)
	}
	c.Created = make([]*Result, len(r.Created))
	for i, created := range r.Created {
		c.Created[i] = created.cleaned()
	}
	return &c
}

func cleanFindings(all []Finding) []Finding {
	all = slices.Clone(all)
	for i := range all {
		all[i].Plugin, all[i].Message = printable.Word(all[i].Plugin), printable.Lines(all[i].Message)
		for _, text := range [...]*string{&all[i].Policy, &all[i].Binding, &all[i].Rule} {
			*text = printable.Word(*text)
		}
		all[i].Paths, all[i].Defaulted = cleanWords(all[i].Paths), cleanWords(all[i].Defaulted)
	}
	return all
}

func cleanWords(all []string) []string {
	all = slices.Clone(all)
	for i := range all {
		all[i] = printable.Word(all[i])
	}
	return all
}

// A cleaning writer passes cleaned results to another writer.
type cleaning struct{ Writer }

// Write implements Writer.
func (c cleaning) Write(r *Result) error { return c.Writer.Write(r.cleaned()) }

// Close implements Writer.
func (c cleaning) Close(s *Summary) error {
	own := *s
	own.PolicyNotes = slices.Clone(s.PolicyNotes)
	for i := range own.PolicyNotes {
		n := &own.PolicyNotes[i]
		n.File, n.Message = printable.Word(n.File), printable.Lines(n.Message)
	}
	return c.Writer.Close(&own)
}
