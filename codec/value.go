package codec

import (
	"errors"
	"iter"
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

// Value is a view of one JSON value inside an Object, edits included. The zero
// Value is missing. Reading a Value of another kind than the one asked for
// gives the zero result, as a missing one does; only text that is not JSON is
// an error, and Object.Err holds the first one met.
//
// A Value, and every string read from it, is valid until its Object is reset
// or its Review released; use strings.Clone to keep a string. Edits never
// invalidate a Value, but may not show in one that was read before them.
type Value struct {
	object *Object
	text   string // begins with the value; may go on behind it
	edit   int32  // the node in object.edits with edits below this value, 0 for none

	// element is set for elements of arrays and all that is in them: their
	// members are not worth an index, for each is read once or twice.
	element bool
}

// Kind returns what the value is.
func (v Value) Kind() Kind {
	if v.text == "" {
		return KindMissing
	}
	switch v.text[0] {
	case '{':
		return KindObject
	case '[':
		return KindArray
	case '"':
		return KindString
	case 't', 'f':
		return KindBool
	case 'n':
		return KindNull
	}
	return KindNumber
}

// Exists reports whether the value is there at all; null is.
func (v Value) Exists() bool { return v.text != "" }

// IsSet reports whether the value is there and not null: what a pointer of a
// Go type would not be nil for.
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
	if n := v.object.childEdit(v.over(), token); n != 0 {
		return v.object.valueOf(n)
	}
	switch v.Kind() {
	case KindObject:
		if v.element {
			return v.find(token)
		}
		return v.member(token)
	case KindArray:
		return v.elementAt(parseIndex(token))
	}
	return Value{object: v.object}
}

// member returns a member of an object, edits not laid over.
func (v Value) member(name string) Value {
	o, it := v.object, v.items()
	if x := &o.index; it.shaped {
		if s := x.find(it.opens); s != nil {
			for n := s.first; n != 0; n = x.items[n].next {
				if o.nameIs(x.items[n].name, name) {
					return Value{object: o, text: o.text[x.items[n].start:]}
				}
			}
			if s.ends != 0 {
				return Value{object: o}
			}
			it.known, it.start = s.last, int(x.items[s.last].start) // scanning goes on from here
		}
	}
	for {
		written, ok := it.next()
		if !ok {
			return Value{object: o}
		}
		if o.nameIs(written, name) {
			return it.value()
		}
	}
}

// elementAt returns an element of an array, edits not laid over. It goes on
// from where it was last in that array: reading or editing one element after
// the other must not begin at the first each time.
func (v Value) elementAt(index int) Value {
	if index < 0 {
		return Value{object: v.object}
	}
	near := v.object.finger(v.text)
	v.object.pointed = true
	if !sameStart(near.array, v.text) || near.at > index {
		*near = finger{items: v.items(), array: v.text, at: -1}
	}
	for near.at < index {
		if _, ok := near.next(); !ok {
			*near = finger{}
			return Value{object: v.object}
		}
		near.at++
	}
	return near.value()
}

// find returns the member of that name of an object, searched for by sonic's
// native code: in a container of a Pod, that takes little more than half of the
// time that stepping over its members takes.
func (v Value) find(name string) Value {
	o := v.object
	found := Value{object: o, element: true}
	s := ast.NewSearcher(v.text)
	s.ValidateJSON = false
	var err error
	if o.node, err = s.GetByPath(name); err == nil {
		found.text, err = o.node.Raw()
	}
	if err != nil && !errors.Is(err, ast.ErrNotExist) {
		o.fail(v.text, 0, "an object whose members can be read")
	}
	return found
}

// over returns the node whose children lie over v's text, 0 for none. Once the
// value itself was replaced, they lie over another text.
func (v Value) over() int32 {
	if v.edit != 0 && v.object.edits[v.edit].text != v.text {
		return 0
	}
	return v.edit
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

// Elements iterates over the elements of an array, in order. It yields nothing
// for other kinds. Elements that are appended inside the loop are not yielded;
// other edits made inside it may show in what comes later.
func (v Value) Elements() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) { v.elements(yield) }
}

func (v Value) elements(yield func(int, Value) bool) {
	if v.Kind() != KindArray {
		return
	}
	o := v.object
	n, known := o.firstEdit(v.over()), int32(len(o.edits))
	i := 0
	it := v.items()
	for ; ; i++ {
		if _, ok := it.next(); !ok {
			break
		}
		element := it.value()
		if n != 0 && int(o.edits[n].index) == i {
			element = o.valueOf(n)
			n = o.edits[n].next
		}
		if !yield(i, element) {
			return
		}
	}
	// What is left was appended. Elements appended since the loop began are
	// for the next one, or a loop that appends would never end.
	for ; n != 0 && n < known; n = o.edits[n].next {
		if !yield(i, o.valueOf(n)) {
			return
		}
		i++
	}
}

// Members iterates over the members of an object: the names in plain text, in
// the order of the text, then members that edits added. It yields nothing for
// other kinds. Members that are added inside the loop are not yielded; other
// edits made inside it may show in what comes later.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) { v.members(yield) }
}

func (v Value) members(yield func(string, Value) bool) {
	if v.Kind() != KindObject {
		return
	}
	o := v.object
	first, known := o.firstEdit(v.over()), int32(len(o.edits))
	it := v.items()
	for {
		raw, ok := it.next()
		if !ok {
			break
		}
		name, member := o.unescape(raw), it.value()
		if n := o.editOfName(first, name); n != 0 {
			member = o.valueOf(n)
		}
		if member.Exists() && !yield(name, member) {
			return
		}
	}
	for n := first; n != 0; n = o.edits[n].next {
		added := o.edits[n].was == "" && o.edits[n].text != "" && n < known
		if added && !yield(o.edits[n].name, o.valueOf(n)) {
			return
		}
	}
}

// Len returns the number of elements or members, 0 for other kinds.
func (v Value) Len() int {
	n := 0
	switch v.Kind() {
	case KindArray:
		for range v.Elements() {
			n++
		}
	case KindObject:
		for range v.Members() {
			n++
		}
	}
	return n
}

// String returns the plain text of a string, "" for other kinds. It copies
// only when there are escapes in it. Text that is not UTF-8 is an error of the
// Object.
func (v Value) String() string {
	if v.Kind() != KindString {
		return ""
	}
	return v.object.unescape(v.quoted())
}

// quoted returns what stands between the quotes of a string.
func (v Value) quoted() string {
	end := skipString(v.text, 0)
	if end < 0 {
		v.object.fail(v.text, 0, "a complete string")
		return ""
	}
	return v.text[1 : end-1]
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

// Scalar returns what stands in the text for a number, a boolean or null, and
// the plain text of a string: the form in which Kubernetes writes quantities
// and IntOrString. It returns "" for objects, arrays and missing values.
func (v Value) Scalar() string {
	switch v.Kind() {
	case KindString:
		return v.String()
	case KindArray, KindObject:
		return ""
	}
	return v.source()
}

// source returns the value's text without what comes behind it, edits not laid
// over; "" when it has no end.
func (v Value) source() string {
	if v.text == "" {
		return ""
	}
	end := v.object.skipValue(v.text, 0)
	if end < 0 {
		return ""
	}
	return v.text[:end]
}

// AppendJSON appends the value's JSON text to dst, edits laid over.
func (v Value) AppendJSON(dst []byte) []byte {
	if v.over() == 0 {
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

// JSON returns the value's JSON text, edits laid over. It is a view where
// nothing below the value was edited, and a copy in the Object's arena where
// something was.
func (v Value) JSON() string {
	if v.over() == 0 {
		return v.source()
	}
	o := v.object
	start := len(o.arena)
	o.arena = v.AppendJSON(o.arena)
	return stringOf(o.arena[start:])
}
