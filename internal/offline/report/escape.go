package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/codec"
)

// Names and messages may come from untrusted users: from a pull request, or from a tenant of a
// cluster. Printed, they must not act as something else: a terminal's escape sequence, a
// workflow command of GitHub, another object or another file. Each kind of output has one
// function here: Plain for text, escapeJSON for JSON, and Document for YAML.

// Plain returns a text of several lines as it may be printed: with escapes for characters
// that are not printable, and with a backslash in what GitHub would take for a workflow
// command (https://github.com/actions/runner src/Runner.Common/ActionCommand.cs: a line whose
// first text is "::", or "##[" anywhere).
func Plain(text string) string { return defuse(escape(text, true)) }

// Word returns a text as one that is printed within a line.
func Word(text string) string { return strings.ReplaceAll(escape(text, false), oldCommand, `##\[`) }

// escape replaces characters that are not printable. Line breaks and tabs stay if lines is
// true.
func escape(text string, lines bool) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !codec.IsPrintable(r) || r == utf8.RuneError }) {
		return text
	}
	var b strings.Builder
	var quoted [12]byte // "'\U0010ffff'"
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case codec.IsPrintable(r), lines && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		default:
			b.Write(bytes.Trim(strconv.AppendQuoteRuneToASCII(quoted[:0], r), "'"))
		}
		text = text[size:]
	}
	return b.String()
}

const oldCommand = "##["

// isCommand reports whether GitHub takes a line for a workflow command.
func isCommand(line string) bool {
	return strings.HasPrefix(strings.TrimLeftFunc(line, unicode.IsSpace), "::") || strings.Contains(line, oldCommand)
}

func defuse(text string) string {
	if !strings.Contains(text, "::") && !strings.Contains(text, oldCommand) {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if isCommand(line) {
			line = strings.ReplaceAll(line, oldCommand, `##\[`)
			if at := strings.Index(line, "::"); at >= 0 && strings.TrimSpace(line[:at]) == "" {
				line = line[:at] + `\` + line[at:]
			}
		}
		b.WriteString(line)
	}
	return b.String()
}

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
	for _, r := range string(bytes.ReplaceAll(text, []byte(oldCommand), []byte(`#\u0023[`))) {
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
		if isCommand(string(line)) {
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
		&c.Change, &c.Policy,
	} {
		*text = Word(*text)
	}
	c.Message, c.Recorded = escape(c.Message, true), escape(c.Recorded, true)
	c.Notes = slices.Clone(c.Notes)
	for i := range c.Notes {
		c.Notes[i] = Word(c.Notes[i])
	}
	c.Patch = escapeJSON(c.Patch)
	c.Warnings, c.Audits, c.Ignored, c.LeftOut = cleanFindings(c.Warnings), cleanFindings(c.Audits), cleanFindings(c.Ignored), cleanFindings(c.LeftOut)
	c.Created = make([]*Result, len(r.Created))
	for i, created := range r.Created {
		c.Created[i] = created.cleaned()
	}
	return &c
}

func cleanFindings(all []Finding) []Finding {
	all = slices.Clone(all)
	for i := range all {
		all[i].Plugin, all[i].Message = Word(all[i].Plugin), escape(all[i].Message, true)
	}
	return all
}

// A cleaning writer passes cleaned results to another writer.
type cleaning struct{ Writer }

// Write implements Writer.
func (c cleaning) Write(r *Result) error { return c.Writer.Write(r.cleaned()) }
