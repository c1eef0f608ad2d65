// Package printable escapes texts that may come from untrusted users, so that printed they do not act as something
// else: a terminal's escape sequence or a workflow command of GitHub.
package printable

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fastadmit/fastadmit/codec"
)

// Plain returns a text of several lines as it may be printed: with escapes for characters
// that are not printable, and with a backslash in what GitHub would take for a workflow
// command (https://github.com/actions/runner src/Runner.Common/ActionCommand.cs: a line whose
// first text is "::", or "##[" anywhere).
func Plain(text string) string { return Defuse(Lines(text)) }

// Word returns a text as one that is printed within a line.
func Word(text string) string { return strings.ReplaceAll(escape(text, false), OldCommand, `##\[`) }

// Lines returns a text of several lines with escapes for characters that are not printable.
func Lines(text string) string { return escape(text, true) }

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

// OldCommand begins a workflow command of GitHub's older form, anywhere in a line.
const OldCommand = "##["

// IsCommand reports whether GitHub takes a line for a workflow command.
func IsCommand(line string) bool {
	return strings.HasPrefix(strings.TrimLeftFunc(line, unicode.IsSpace), "::") || strings.Contains(line, OldCommand)
}

// Defuse writes a backslash in what GitHub would take for a workflow command.
func Defuse(text string) string {
	if !strings.Contains(text, "::") && !strings.Contains(text, OldCommand) {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if IsCommand(line) {
			line = strings.ReplaceAll(line, OldCommand, `##\[`)
			if at := strings.Index(line, "::"); at >= 0 && strings.TrimSpace(line[:at]) == "" {
				line = line[:at] + `\` + line[at:]
			}
		}
		b.WriteString(line)
	}
	return b.String()
}
