package codec

import (
	"fmt"
	"strconv"
)

// EditError says which edit could not be made, and why. The caller made a mistake;
// the document is not at fault.
type EditError struct {
	Pointer string // where, as a JSON Pointer (RFC 6901)
	Reason  string
}

func (e *EditError) Error() string {
	return fmt.Sprintf("cannot edit %q: %s", e.Pointer, e.Reason)
}

// Set sets the value at a path below v, or v itself if there is no path, to json. The
// path names a member of an object, which is added if it does not exist, or an existing
// element of an array. Values on the path that are missing or null become empty objects.
// json must be valid JSON text without white space around it; it is copied.
//
// If an edit is not possible, Object.Err returns an *EditError, and later edits do
// nothing. An edit must start at a Value with a position in the document:
//
//   - A missing Value has no position. Start at the Value that contains it, with a
//     longer path. The root always exists.
//   - A Value that was replaced or removed, or that moved with the elements of its
//     array, has lost its position: read it again. The position of a null remains
//     valid while it exists in the document; an edit changes its current value.
//   - Only Review.Object and your own Objects can be edited, not OldObject and the
//     other parts of a review.
func (v Value) Set(json string, path ...string) {
	if v.accepts(json, path) {
		v.set(json, path)
	}
}

// SetString sets the value at path to the string s, as Set does.
func (v Value) SetString(s string, path ...string) {
	t, ok := v.target(path)
	if ok && (t.node == 0 || !v.object.valueOf(t.node).EqualString(s)) {
		v.put(t, v.object.quote(s), path)
	}
}

// SetInt sets the value at path to the number n, as Set does.
func (v Value) SetInt(n int64, path ...string) {
	v.set(v.mustObject().Compose(func(dst []byte) []byte { return strconv.AppendInt(dst, n, 10) }), path)
}

// SetBool sets the value at path to true or false, as Set does.
func (v Value) SetBool(b bool, path ...string) { v.set(strconv.FormatBool(b), path) }

// set is Set for text that is known to be JSON.
func (v Value) set(json string, path []string) {
	if t, ok := v.target(path); ok {
		v.setAt(t, json, path)
	}
}

// setAt sets the value at the target to json, unless the texts are equal.
func (v Value) setAt(t target, json string, path []string) {
	if t.node == 0 || v.object.valueOf(t.node).JSON() != json {
		v.put(t, json, path)
	}
}

// Append adds json at the end of the array at a path below v, or of v itself if there
// is no path. A missing or null array is created, and so are its parents, as Set does.
// For json, and for what can be edited, see Set.
func (v Value) Append(json string, path ...string) {
	if v.accepts(json, path) {
		v.append(json, path)
	}
}

// AppendString adds the string s at the end of the array at path, as Append
// does.
func (v Value) AppendString(s string, path ...string) {
	v.append(v.mustObject().quote(s), path)
}

func (v Value) append(json string, path []string) {
	t, ok := v.target(path)
	if !ok {
		return
	}
	o, array := v.object, t.node
	switch o.valueOf(array).Kind() {
	case KindArray:
	case KindMissing, KindNull:
		array = v.put(t, "[]", path)
	default:
		v.refuse(path, "not an array")
	}
	if o.err == nil {
		o.addElement(array, json)
	}
}

// Add does what the operation "add" of RFC 6902 section 4.1 does, at a path
// below v: it sets a member, or inserts json into an array before the element
// that the last token names; "-" appends. Missing parents are created, as Set does.
// For json, and for what can be edited, see Set.
//
// Inserting costs a copy of the array. Values of its elements that were read before
// cannot be edited afterwards.
func (v Value) Add(json string, path ...string) {
	if !v.accepts(json, path) {
		return
	}
	if last := len(path) - 1; last >= 0 && path[last] == "-" && v.Get(path[:last]...).Kind() != KindObject {
		v.append(json, path[:last])
		return
	}
	t, ok := v.target(path)
	o := v.object
	switch {
	case !ok:
	case !o.isArray(t.parent):
		v.setAt(t, json, path)
	case t.node != 0:
		o.rewriteArray(t.parent, int(o.nodes[t.node].index), 0, json)
	case parseIndex(t.name) == o.valueOf(t.parent).Len():
		o.addElement(t.parent, json)
	default:
		v.refuse(path, "no such index in the array")
	}
}

// Remove removes the member or element at a path below v, or v itself if there is no
// path. If it does not exist, nothing happens. For what can be edited, see Set.
//
// Removing from an array costs a copy of it. Values of its elements that were read
// before cannot be edited afterwards.
func (v Value) Remove(path ...string) {
	if v.at == 0 {
		return
	}
	o, n := v.object, v.start(path)
	if n == 0 || !o.valueOf(n).Get(path...).Exists() {
		return
	}
	t, ok := v.below(n, path)
	switch {
	case !ok:
	case o.isArray(t.parent):
		o.rewriteArray(t.parent, int(o.nodes[t.node].index), 1, "")
	default:
		v.put(t, "", path)
	}
}

// Set is Root().Set.
func (o *Object) Set(json string, path ...string) { o.Root().Set(json, path...) }

// SetString is Root().SetString.
func (o *Object) SetString(s string, path ...string) { o.Root().SetString(s, path...) }

// SetInt is Root().SetInt.
func (o *Object) SetInt(n int64, path ...string) { o.Root().SetInt(n, path...) }

// SetBool is Root().SetBool.
func (o *Object) SetBool(b bool, path ...string) { o.Root().SetBool(b, path...) }

// Append is Root().Append.
func (o *Object) Append(json string, path ...string) { o.Root().Append(json, path...) }

// AppendString is Root().AppendString.
func (o *Object) AppendString(s string, path ...string) { o.Root().AppendString(s, path...) }

// Add is Root().Add.
func (o *Object) Add(json string, path ...string) { o.Root().Add(json, path...) }

// Remove is Root().Remove.
func (o *Object) Remove(path ...string) { o.Root().Remove(path...) }

// Changes returns how many edits changed something since the Object was reset.
func (o *Object) Changes() int { return o.changes }
