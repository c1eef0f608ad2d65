package codec

import (
	"encoding/json"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string (RFC 8259 section 7). Bytes that are
// not UTF-8 become U+FFFD, as encoding/json has it; "<", ">" and "&" are not
// escaped.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[start:i]...)
		switch {
		case c >= utf8.RuneSelf:
			dst = append(dst, "\ufffd"...)
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}

// isJSON reports whether text is one JSON value in UTF-8 without white space
// around it. It asks encoding/json, as kube-apiserver will: sonic's validation
// lets bad escapes and control characters pass, and reads behind the end of a
// text that ends within a literal.
func isJSON(text string) bool {
	return len(text) > 0 && !isSpace(text[0]) && !isSpace(text[len(text)-1]) &&
		utf8.ValidString(text) && json.Valid(bytesOf(text))
}
