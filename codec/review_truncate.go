package codec

import (
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// escapedMax is the most bytes that a JSON encoder makes of one byte: \u00XX.
const escapedMax = 6

// TruncateString returns s, truncated if necessary, so that a JSON encoder writes
// at most the given number of bytes for it, without the quotes. This holds whether
// or not the encoder escapes "<", ">", "&" (as kube-apiserver's does) and
// characters that are not printable. Truncated text ends with a note of its
// original length, so bytes must be at least TruncatedMin. It is cut between
// characters. Text that fits is returned unchanged, without an allocation.
func TruncateString(s string, bytes int) string {
	if len(s) <= bytes/escapedMax {
		return s
	}
	if end, _ := escaped(s, bytes); end == len(s) {
		return s
	}
	note := "... (truncated, " + strconv.Itoa(len(s)) + " bytes)"
	end, _ := escaped(s, bytes-len(note))
	return s[:end] + note
}

// TruncatedMin is the smallest number of bytes for TruncateString.
const TruncatedMin = 64

// JSONLen returns the maximum number of bytes, without the quotes, that a JSON
// encoder writes for s.
func JSONLen(s string) int {
	_, written := escaped(s, math.MaxInt)
	return written
}

// escaped returns the end of the longest part of s, in whole characters, whose JSON has
// at most the given number of bytes, and how many bytes that JSON has.
func escaped(s string, bytes int) (end, written int) {
	for i := 0; i < len(s); {
		n, size := 1, 1
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\t':
			n = 2
		case c < ' ' || c == '<' || c == '>' || c == '&' || c == 0x7f:
			n = escapedMax
		case c >= utf8.RuneSelf:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			switch n = size; {
			case size == utf8.UTFMax && !IsPrintable(r):
				n = 2 * escapedMax // two units of UTF-16
			case size == 1 || !IsPrintable(r): // 1: not UTF-8
				n = escapedMax
			}
		}
		if written+n > bytes {
			return i, written
		}
		written += n
		i += size
	}
	return len(s), written
}

// IsPrintable reports whether a character is visible when it is printed. It is unicode.IsPrint
// without the characters that have no width although they are letters or marks: Hangul fillers, joiners
// and variation selectors (Unicode's Default_Ignorable_Code_Point). With those, two different names
// look the same. Terminals' control characters, changes of the direction of text, and other
// spaces than U+0020 are not printable either.
func IsPrintable(r rune) bool {
	return unicode.IsPrint(r) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
