package codec

import (
	"math/bits"
	"strings"

	"github.com/bytedance/sonic/ast"
)

// This file finds where JSON values begin and end. It checks only what it has
// to look at: punctuation between members and elements, quotes, and the first
// bytes of scalars. What lies inside a skipped object or array is passed over
// by sonic's native code, which counts brackets outside strings and validates
// nothing.

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
		// A subtraction sets the top bit of a byte that is too small for it, and
		// leaves it in what is not ASCII. The lowest one set is right.
		if at := (((x ^ lowBits*'"') - lowBits) | ((x ^ lowBits*'\\') - lowBits)) &^ x & highBits; at != 0 {
			return pos + bits.TrailingZeros64(at)/8
		}
	}
	for pos < len(text) && text[pos] != '"' && text[pos] != '\\' {
		pos++
	}
	return pos
}

// predictedElement returns where the next element of an array begins, if the one
// before it ends at pos, or the array opens there, and the text goes on without
// white space, as kube-apiserver writes it; 0 if it is to be looked for.
func predictedElement(text string, pos int, first bool) (at int) {
	if !first {
		if pos >= len(text) || text[pos] != ',' {
			return 0
		}
		pos++
	}
	if pos >= len(text) || text[pos] <= ' ' || text[pos] == ']' || text[pos] == ',' {
		return 0
	}
	return pos
}

// skipValue returns the offset behind the value that begins at pos, or -1 with
// the fault recorded in o.
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
	// An empty path finds the value itself. What is found lies in o because Raw
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

// skipScalar returns the offset behind the literal or number that begins at
// pos, or -1 when none does. A number is a run of the bytes numbers are made
// of; whether they make one is for whoever reads it.
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
// The caller moves pos behind each value before it asks for the next one.
type cursor struct {
	object *Object
	text   string
	pos    int
	first  bool

	name, nameEnd int  // where the current member's name is, without its quotes
	escaped       bool // there are escapes in it
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

// written returns the current member's name as it is written.
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

// value returns the text of the value at pos and moves behind it; ok is false,
// with the fault recorded, when the value has no end.
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

// nameIs compares a member name as it is written with one in plain text. An
// escaped name is longer than what it stands for.
func (o *Object) nameIs(raw, name string) bool {
	if raw != "" && name != "" && raw[0] != name[0] && raw[0] != '\\' {
		return false // nearly all names that are passed, without a call
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
	kept := len(o.plain)
	same := o.unescape(raw) == name
	o.plain = o.plain[:kept] // or looking names up over and over would fill it
	return same
}
