package codec

import (
	"strconv"
	"unicode/utf8"
)

// escapedMax is the most bytes that a JSON encoder makes of one byte: \u00XX.
const escapedMax = 6

// TruncateString returns s, or its beginning and a note of its length, so that a
// JSON encoder makes at most max bytes of it between the quotes, whether it
// escapes "<", ">" and "&" (as kube-apiserver's does) or not. It cuts between
// characters. Max must leave room for the note, 64 bytes. Text that fits is
// returned as it is; it allocates nothing then.
func TruncateString(s string, max int) string {
	if len(s) <= max/escapedMax || escapedLen(s, max) == len(s) {
		return s
	}
	note := "... (truncated, " + strconv.Itoa(len(s)) + " bytes)"
	return s[:escapedLen(s, max-len(note))] + note
}

// escapedLen returns how many bytes of s, in whole characters, become at most max
// bytes of JSON.
func escapedLen(s string, max int) int {
	n := 0
	for i := 0; i < len(s); {
		size := 1
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\t':
			n += 2
		case c < ' ' || c == '<' || c == '>' || c == '&':
			n += escapedMax
		case c < utf8.RuneSelf:
			n++
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			if size == 1 || r == '\u2028' || r == '\u2029' { // not UTF-8, or a line separator: \uXXXX
				n += escapedMax
			} else {
				n += size
			}
		}
		if n > max {
			return i
		}
		i += size
	}
	return len(s)
}
