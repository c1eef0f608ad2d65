package codec

import "strings"

// AppendPointerToken appends a reference token of a JSON Pointer, escaped (RFC 6901
// section 3), without the slash before it.
func AppendPointerToken(dst []byte, token string) []byte {
	if strings.IndexByte(token, '~') < 0 && strings.IndexByte(token, '/') < 0 {
		return append(dst, token...)
	}
	for i := range len(token) {
		switch c := token[i]; c {
		case '~':
			dst = append(dst, "~0"...)
		case '/':
			dst = append(dst, "~1"...)
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// AppendPath appends the tokens of a JSON Pointer (RFC 6901), unescaped. ok is
// false if pointer is neither empty nor starts with a slash, or has an invalid
// escape.
func AppendPath(dst []string, pointer string) (path []string, ok bool) {
	if pointer == "" {
		return dst, true
	}
	if pointer[0] != '/' {
		return dst, false
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		if strings.Contains(token, "~") {
			rest := strings.NewReplacer("~0", "", "~1", "").Replace(token)
			if strings.Contains(rest, "~") {
				return dst, false
			}
			token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		}
		dst = append(dst, token)
	}
	return dst, true
}
