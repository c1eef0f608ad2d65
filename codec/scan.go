package codec

import (
	"math/bits"
	"strings"

	"github.com/bytedance/sonic/ast"
)

// This file finds where JSON values begin and end. It checks only the bytes that it
// needs: punctuation between members and elements, quotes, and the first bytes of
// scalars. sonic's native code skips objects and arrays: it counts brackets outside of
// strings and validates nothing.

// skipSpace returns the offset of the first byte at or after pos that is not
// JSON white space (RFC 8259 section 2), or len(text).
func skipSpace(text string, pos int) int {
	for pos < len(text) && text[pos] <= ' ' && isSpace(text[pos]) {
		pos++
	}
	return pos
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\n' || c == '\t' || c == '\r'
}

// skipString returns the offset behind the string that opens at pos, or -1
// when it has no end, and whether there are escapes in it. It does not look for
// control characters or bad escapes.
func skipString(text string, pos int) (end int, escaped bool) {
	for pos = quoteAt(text, pos+1); pos < len(text); pos = quoteAt(text, pos+2) {
		if text[pos] == '"' {
			return pos + 1, escaped
		}
		escaped = true
	}
	return -1, escaped
}

const lowBits, highBits = 0x0101010101010101, 0x8080808080808080 // 1 and the top bit of each of eight bytes

// quoteAt returns the offset of the first quote or backslash at or after pos,
// len(text) or more if there is none. It looks at eight bytes at a time: nearly
// all names and strings of Kubernetes are short.
func quoteAt(text string, pos int) int {
	for ; pos+8 <= len(text); pos += 8 {
		x := word(text, pos)
		// x ^ c is 0 in bytes that equal c, and subtracting 1 sets their top bit. "&^ x"
		// excludes bytes that are not ASCII. A borrow may set the top bit of a later byte,
		// so only the lowest one is certain.
		if at := (((x ^ lowBits*'"') - lowBits) | ((x ^ lowBits*'\\') - lowBits)) &^ x & highBits; at != 0 {
			return pos + bits.TrailingZeros64(at)/8
		}
	}
	for pos < len(text) && text[pos] != '"' && text[pos] != '\\' {
		pos++
	}
	return pos
}

// skipValue returns the offset behind the value that begins at pos. If the value has no
// end, it records the error and returns -1.
func (o *Object) skipValue(text string, pos int) int {
	if pos >= len(text) {
		return o.fail(text, pos, "a value")
	}
	var end int
	switch text[pos] {
	case '"':
		end, _ = skipString(text, pos)
	case '{', '[':
		end = o.skipComposite(text, pos)
	default:
		end = skipScalar(text, pos)
	}
	if end < 0 {
		return o.fail(text, pos, "a complete value")
	}
	return end
}

// skipComposite returns the offset behind the object or array that opens at
// pos, or -1 when it has no end.
func (o *Object) skipComposite(text string, pos int) int {
	if end := pos + 2; end <= len(text) && text[end-1] == text[pos]+2 { // "{}" or "[]"
		return end
	}
	s := ast.NewSearcher(text[pos:])
	s.ValidateJSON = false
	var err error
	// An empty path finds the value itself. The result is a field of o, because Raw
	// moves its receiver to the heap.
	if o.found, err = s.GetByPath(); err != nil {
		return -1
	}
	raw, err := o.found.Raw()
	if err != nil {
		return -1
	}
	return pos + len(raw)
}

// skipScalar returns the offset behind the literal or number that begins at pos, or -1
// if there is none. A number is a sequence of the bytes that occur in numbers; Int64
// checks it.
func skipScalar(text string, pos int) int {
	literal := ""
	switch text[pos] {
	case 't':
		literal = "true"
	case 'f':
		literal = "false"
	case 'n':
		literal = "null"
	}
	if literal != "" {
		if !strings.HasPrefix(text[pos:], literal) {
			return -1
		}
		return pos + len(literal)
	}
	end := pos
	for end < len(text) && isNumberByte(text[end]) {
		end++
	}
	if end == pos {
		return -1
	}
	return end
}

func isNumberByte(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// A cursor steps over the members of an object or the elements of an array.
// The caller moves pos behind each value before it calls element or member again.
type cursor struct {
	object *Object
	text   string
	pos    int
	first  bool

	name, nameEnd int  // where the current member's name begins and ends, without its quotes
	escaped       bool // there are escapes in the name
}

// enter returns a cursor inside the object or array that opens at pos.
func (o *Object) enter(text string, pos int) cursor {
	return cursor{object: o, text: text, pos: pos + 1, first: true}
}

// element moves to the next element and reports whether there is one.
// Afterwards pos is where its value begins, or behind the closing bracket.
func (c *cursor) element() bool { return c.step(']') && c.hasValue() }

// member moves to the next member and reports whether there is one. Afterwards
// pos is where its value begins, or behind the closing brace.
func (c *cursor) member() bool {
	if !c.step('}') {
		return false
	}
	start := c.pos
	if c.text[start] != '"' {
		return c.fail("a member name in quotes")
	}
	end, escaped := skipString(c.text, start)
	if end < 0 {
		return c.fail("a complete member name")
	}
	c.name, c.nameEnd, c.escaped = start+1, end-1, escaped
	if c.pos = end; c.pos+1 < len(c.text) && c.text[c.pos] == ':' && c.text[c.pos+1] > ' ' {
		c.pos++ // without white space, as kube-apiserver writes it
		return true
	}
	c.pos = skipSpace(c.text, end)
	if c.pos >= len(c.text) || c.text[c.pos] != ':' {
		return c.fail("':' behind a member name")
	}
	c.pos = skipSpace(c.text, c.pos+1)
	return c.hasValue()
}

func (c *cursor) hasValue() bool { return c.pos < len(c.text) || c.fail("a value") }

// written returns the current member's name as in the text, with escapes.
func (c *cursor) written() string { return c.text[c.name:c.nameEnd] }

// step passes over the comma before an item, or the closing bracket.
func (c *cursor) step(closing byte) bool {
	if !c.first && c.pos+1 < len(c.text) && c.text[c.pos] == ',' && c.text[c.pos+1] > ' ' && c.text[c.pos+1] != closing {
		c.pos++ // without white space, as kube-apiserver writes it
		return true
	}
	c.pos = skipSpace(c.text, c.pos)
	if c.pos >= len(c.text) {
		return c.fail("',' or a closing bracket")
	}
	switch b := c.text[c.pos]; {
	case b == closing:
		c.pos++
		return false
	case c.first:
		c.first = false
		return true
	case b != ',':
		return c.fail("',' or a closing bracket")
	}
	c.pos = skipSpace(c.text, c.pos+1)
	if c.pos >= len(c.text) || c.text[c.pos] == closing {
		return c.fail("an item behind ','")
	}
	return true
}

// value returns the text of the value at pos and moves behind it. If the value has no
// end, it records the error and ok is false.
func (c *cursor) value() (text string, ok bool) {
	end := c.object.skipValue(c.text, c.pos)
	if end < 0 {
		return "", false
	}
	text = c.text[c.pos:end]
	c.pos = end
	return text, true
}

func (c *cursor) fail(want string) bool {
	c.object.fail(c.text, c.pos, want)
	return false
}

// nameIs reports whether raw, a member name as in the text, stands for the plain name.
// An escaped name is longer than the plain one.
func (o *Object) nameIs(raw, name string) bool {
	if raw != "" && name != "" && raw[0] != name[0] && raw[0] != '\\' {
		return false // saves a call for nearly all names
	}
	return o.nameEquals(raw, name)
}

func (o *Object) nameEquals(raw, name string) bool {
	if len(raw) <= len(name) {
		return raw == name && strings.IndexByte(raw, '\\') < 0
	}
	if strings.IndexByte(raw, '\\') < 0 {
		return false
	}
	before := len(o.plain)
	same := o.unescape(raw) == name
	o.plain = o.plain[:before] // otherwise repeated lookups would fill it
	return same
}
