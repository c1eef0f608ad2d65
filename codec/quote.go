package codec

import (
	"encoding/json"
	"math/bits"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string (RFC 8259 section 7). Bytes that are not UTF-8
// become U+FFFD, as in encoding/json; "<", ">" and "&" are not escaped.
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

// AppendStringBytes is AppendString for a byte slice.
func AppendStringBytes(dst, text []byte) []byte { return AppendString(dst, stringOf(text)) }

// isPlain reports whether s needs no escapes in a JSON string: it is ASCII without
// quotes, backslashes and control characters, as nearly all strings of Kubernetes are.
func isPlain(s string) bool { return plainEnd(s, 0) == len(s) }

// plainEnd returns the offset of the first byte of s at or after pos that is not plain.
// It looks at eight bytes at a time.
func plainEnd(s string, pos int) int {
	for ; pos+8 <= len(s); pos += 8 {
		x := word(s, pos)
		// The top bit gets set in bytes that are not ASCII (x), are less than a space, or
		// equal a quote or backslash. A borrow may set that of a later byte, so only the
		// lowest one is certain.
		if other := (x | (x - lowBits*' ') | ((x ^ lowBits*'"') - lowBits) | ((x ^ lowBits*'\\') - lowBits)) & highBits; other != 0 {
			return pos + bits.TrailingZeros64(other)/8
		}
	}
	for pos < len(s) {
		if c := s[pos]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
		pos++
	}
	return pos
}

// isJSON reports whether text is one JSON value in UTF-8 without white space around it.
// If simpleEnd cannot tell, encoding/json validates it, as kube-apiserver does. sonic's
// validation accepts bad escapes and control characters, and reads behind the end of a
// text that ends within a literal.
func isJSON(text string) bool {
	return simpleEnd(text, 0, 0) == len(text) || len(text) > 0 && !isSpace(text[0]) && !isSpace(text[len(text)-1]) &&
		utf8.ValidString(text) && json.Valid(bytesOf(text))
}

// simpleDepthMax is the maximum depth of nesting that simpleEnd follows.
const simpleDepthMax = 16

// simpleEnd returns the end of the JSON value that begins at pos, if it has the form in
// which plugins write values: no white space, plain strings, integers. It returns -1 for
// other text, which may be valid JSON too.
func simpleEnd(text string, pos, depth int) int {
	if pos >= len(text) || depth > simpleDepthMax {
		return -1
	}
	switch c := text[pos]; c {
	case '"':
		end := plainEnd(text, pos+1)
		if end >= len(text) || text[end] != '"' {
			return -1
		}
		return end + 1
	case '{', '[':
		return simpleCompositeEnd(text, pos, depth)
	case 't', 'f', 'n':
		return skipScalar(text, pos)
	default:
		if c == '-' {
			pos++
		}
		end := pos
		for end < len(text) && '0' <= text[end] && text[end] <= '9' {
			end++
		}
		if end == pos || text[pos] == '0' && end > pos+1 {
			return -1
		}
		return end
	}
}

func simpleCompositeEnd(text string, pos, depth int) int {
	closing := text[pos] + 2 // the distance of the brackets in ASCII
	isObject := closing == '}'
	if pos++; pos < len(text) && text[pos] == closing {
		return pos + 1
	}
	for {
		if isObject {
			if pos >= len(text) || text[pos] != '"' {
				return -1
			}
			if pos = simpleEnd(text, pos, depth); pos < 0 || pos >= len(text) || text[pos] != ':' {
				return -1
			}
			pos++
		}
		if pos = simpleEnd(text, pos, depth+1); pos < 0 || pos >= len(text) {
			return -1
		}
		switch text[pos] {
		case closing:
			return pos + 1
		case ',':
			pos++
		default:
			return -1
		}
	}
}
