package codec

import (
	"encoding/binary"
	"encoding/json"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string (RFC 8259 section 7). Bytes that are
// not UTF-8 become U+FFFD, as encoding/json has it; "<", ">" and "&" are not
// escaped.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	if isPlain(s) {
		dst = append(dst, s...)
		return append(dst, '"')
	}
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

// AppendStringBytes is AppendString for text that is held as bytes.
func AppendStringBytes(dst, text []byte) []byte { return AppendString(dst, stringOf(text)) }

// isPlain reports whether a JSON string holds s as it is: ASCII without quotes,
// backslashes and control characters, as nearly all strings of Kubernetes are.
// It looks at eight bytes at a time.
func isPlain(s string) bool {
	const each, top = 0x0101010101010101, 0x8080808080808080 // 1 and the top bit of every byte
	b := bytesOf(s)
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		// A subtraction sets the top bit of a byte that is too small for it.
		if (x|(x-each*' ')|((x^each*'"')-each)|((x^each*'\\')-each))&top != 0 {
			return false
		}
	}
	for _, c := range b {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// isJSON reports whether text is one JSON value in UTF-8 without white space
// around it. It asks encoding/json, as kube-apiserver will: sonic's validation
// lets bad escapes and control characters pass, and reads behind the end of a
// text that ends within a literal.
func isJSON(text string) bool {
	return len(text) > 0 && !isSpace(text[0]) && !isSpace(text[len(text)-1]) &&
		utf8.ValidString(text) && json.Valid(bytesOf(text))
}
