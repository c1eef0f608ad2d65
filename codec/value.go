package codec

import (
	"errors"
	"strconv"

	"github.com/bytedance/sonic/ast"
)

// Kind says what a Value is, by the first byte of its text.
type Kind uint8

// The kinds of JSON values (RFC 8259 section 3), and KindMissing for no value.
const (
	KindMissing Kind = iota
	KindNull
	KindBool
	KindNumber
	KindString
	KindArray
	KindObject
)

func (k Kind) String() string {
	return [...]string{"nothing", "null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// kindOf returns the kind of a value by the first byte of its text.
var kindOf = func() (kinds [256]Kind) {
	for b := range kinds {
		kinds[b] = KindNumber
	}
	kinds['{'], kinds['['], kinds['"'] = KindObject, KindArray, KindString
	kinds['t'], kinds['f'], kinds['n'] = KindBool, KindBool, KindNull
	return kinds
}()

// kindOfText returns the kind of the value that begins with text.
func kindOfText(text string) Kind {
	if text == "" {
		return KindMissing
	}
	return kindOf[text[0]]
}

// Value is a view of one JSON value inside an Object, edits included. The zero
// Value is missing. Reading a Value of another kind than the one asked for
// gives the zero result, as a missing one does; only text that is not JSON is
// an error, and Object.Err holds the first one met.
//
// A Value, and every string read from it, is valid until its Object is reset
// or its Review released; use strings.Clone to keep a string. Edits below a
// Value are visible in it. If the value itself is replaced, the Value keeps the old
// one.
type Value struct {
	object *Object
	at     offset // where its text begins, 0 if it is missing
	node   nodeID // its node, or the negative of one that it is in; 0 for none
}

// valueAt returns the value that begins with text, which is a view of the document. It
// is missing if text is "".
func (o *Object) valueAt(text string) Value {
	return Value{object: o, at: offset(offsetIn(o.text, text) + 1)}
}

// text returns the document's text from the value on, "" if the value is missing.
func (v Value) text() string {
	if v.at == 0 {
		return ""
	}
	return v.object.from(v.at)
}

// Kind returns what the value is.
func (v Value) Kind() Kind {
	if v.at == 0 {
		return KindMissing
	}
	return v.object.kindAt(v.at)
}

// Exists reports whether the value exists; null does.
func (v Value) Exists() bool { return v.at != 0 }

// IsSet reports whether the value exists and is not null.
func (v Value) IsSet() bool { return v.Exists() && !v.IsNull() }

// IsNull reports whether the value is the literal null.
func (v Value) IsNull() bool { return v.Kind() == KindNull }

// Get returns the value at a path below v: member names in plain text, array
// indexes in decimal. It returns the zero Value when there is none. Of two
// members with the same name it returns the first.
func (v Value) Get(path ...string) Value {
	for _, token := range path {
		v = v.child(token)
	}
	return v
}

// child returns the value one step below v.
func (v Value) child(token string) Value {
	o := v.object
	switch v.Kind() {
	case KindObject:
		if n := v.currentNode(); n != 0 {
			if m, full := o.member(n, token); !full {
				return o.valueOf(m)
			}
		}
		return v.search(token)
	case KindArray:
		index := parseIndex(token)
		if n := v.currentNode(); n != 0 {
			return o.valueOf(o.element(n, index))
		}
		return v.elementAt(index)
	}
	return Value{object: o}
}

// currentNode returns the node of v, 0 if v has none, or if the node has another value
// now.
func (v Value) currentNode() nodeID {
	if nodes := v.object.nodes; uint(v.node) < uint(len(nodes)) && nodes[v.node].at == v.at {
		return v.node
	}
	return 0
}

// enclosingNode returns Value.node for a value in v that has no node of its own.
func (v Value) enclosingNode() nodeID { return min(v.node, -v.node) }

// search returns the member of that name of an object without a node. It uses sonic's
// native code; going over the members with textItems takes two to five times longer.
func (v Value) search(name string) Value {
	o := v.object
	text := o.from(v.at)
	s := ast.NewSearcher(text)
	s.ValidateJSON = false
	var err error
	if o.found, err = s.GetByPath(name); err == nil {
		var found string
		if found, err = o.found.Raw(); err == nil {
			return Value{object: o, at: v.at + offset(offsetIn(text, found)), node: v.enclosingNode()}
		}
	}
	if !errors.Is(err, ast.ErrNotExist) {
		o.fail(text, 0, "an object whose members can be read")
	}
	return Value{object: o}
}

// An elementScan remembers the element that was looked up last in an array without a
// node, so that looking up one after the other does not take quadratic time.
type elementScan struct {
	textItems
	array offset
	index int
}

// elementAt returns an element of an array without a node.
func (v Value) elementAt(index int) Value {
	if index < 0 {
		return Value{object: v.object}
	}
	s := &v.object.elements
	if s.array != v.at || s.index > index {
		*s = elementScan{textItems: v.textItems(), array: v.at, index: -1}
	}
	for s.index < index {
		if !s.next() {
			*s = elementScan{}
			return Value{object: v.object}
		}
		s.index++
	}
	return s.value()
}

// textItems iterates over the members or elements of an object or array in the text,
// without nodes. nodeItems iterates over those that have nodes.
type textItems struct {
	cursor
	base  offset // of the text
	in    nodeID // the field node of the Values
	opens int    // where the bracket is
	start int    // where the current value begins, 0 before the first
}

func (v Value) textItems() textItems {
	text, base := v.object.textAt(v.at)
	opens := int(v.at - base)
	return textItems{cursor: v.object.enter(text, opens), base: base, in: v.enclosingNode(), opens: opens}
}

// next moves to the next item. It returns false at the end, and after an error: going on
// through a million elements would change nothing.
func (it *textItems) next() (ok bool) {
	if it.object == nil || it.object.err != nil {
		return false
	}
	if it.start != 0 {
		if it.pos, it.first = it.object.skipValue(it.text, it.start), false; it.pos < 0 {
			return false
		}
	}
	if it.text[it.opens] == '[' {
		ok = it.element()
	} else {
		ok = it.member()
	}
	it.start = it.pos
	return ok
}

// value returns the current value.
func (it *textItems) value() Value {
	return Value{object: it.object, at: it.base + offset(it.start), node: it.in}
}

// parseIndex returns the array index a path token stands for, or -1 (RFC 6901
// section 4: no sign, no leading zeros).
func parseIndex(token string) int {
	if token == "" || len(token) > 1 && token[0] == '0' || token[0] == '+' {
		return -1
	}
	n, err := strconv.Atoi(token)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// Index returns the path token for an array index. It allocates nothing below
// 100.
func Index(i int) string { return strconv.Itoa(i) }

// String returns the unescaped text of a string, "" for other kinds. It copies only
// strings with escapes. Text that is not UTF-8 or longer than StringMax is an error of
// the Object.
func (v Value) String() string {
	if v.Kind() != KindString {
		return ""
	}
	text := v.object.from(v.at)
	if end := plainEnd(text, 1); end < len(text) && text[end] == '"' {
		return v.object.bounded(text[1:end])
	}
	return v.object.unescape(v.quoted())
}

// quoted returns the text between the quotes of a string, with its escapes.
func (v Value) quoted() string {
	text := v.source()
	if text == "" {
		return ""
	}
	return text[1 : len(text)-1]
}

// EqualString reports whether the value is a string that equals s.
func (v Value) EqualString(s string) bool {
	return v.Kind() == KindString && v.object.nameIs(v.quoted(), s)
}

// Bool reports whether the value is the literal true.
func (v Value) Bool() bool { return v.Kind() == KindBool && v.source() == "true" }

// Int64 returns the value of a number without fraction and exponent; ok is
// false for anything else and for numbers out of range.
func (v Value) Int64() (n int64, ok bool) {
	if v.Kind() != KindNumber {
		return 0, false
	}
	n, err := strconv.ParseInt(v.source(), 10, 64)
	return n, err == nil
}

// Scalar returns the text of a number, a boolean or null, and the unescaped text of
// a string. Kubernetes writes quantities and IntOrString in these forms. It returns
// "" for objects, arrays and missing values.
func (v Value) Scalar() string {
	switch v.Kind() {
	case KindString:
		return v.String()
	case KindArray, KindObject:
		return ""
	}
	return v.source()
}

// source returns the value's text as it was before edits inside the value, "" if it has
// no end.
func (v Value) source() string {
	if v.at == 0 {
		return ""
	}
	o := v.object
	if n := v.currentNode(); n != 0 {
		if end := o.endOf(n); end != 0 {
			return o.view(v.at, end)
		}
		return ""
	}
	text := o.from(v.at)
	end := o.skipValue(text, 0)
	if end < 0 {
		return ""
	}
	return text[:end]
}

// isEdited reports whether something in the value was set, added or removed.
func (v Value) isEdited() bool {
	if v.at == 0 {
		return false
	}
	n := v.currentNode()
	return n != 0 && v.object.nodes[n].edited
}

// AppendJSON appends the value's JSON text, with its edits, to dst.
func (v Value) AppendJSON(dst []byte) []byte {
	if !v.isEdited() {
		return append(dst, v.source()...)
	}
	start := len(dst)
	if v.Kind() == KindArray {
		for _, element := range v.Elements() {
			dst = element.AppendJSON(append(dst, ','))
		}
		if len(dst) == start {
			return append(dst, "[]"...)
		}
		dst[start] = '['
		return append(dst, ']')
	}
	for name, member := range v.Members() {
		dst = AppendString(append(dst, ','), name)
		dst = member.AppendJSON(append(dst, ':'))
	}
	if len(dst) == start {
		return append(dst, "{}"...)
	}
	dst[start] = '{'
	return append(dst, '}')
}

// JSON returns the value's JSON text with its edits. Without edits below the value
// it is a view; otherwise it is a copy in the memory of the Object.
func (v Value) JSON() string {
	if !v.isEdited() {
		return v.source()
	}
	o := v.object
	if !o.arenaFits(len(v.source())) {
		return ""
	}
	start, capacity := len(o.arena), cap(o.arena)
	o.arena = v.AppendJSON(o.arena)
	o.grown(capacity)
	o.views.add(o.arena)
	return stringOf(o.arena[start:])
}
