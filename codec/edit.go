package codec

import (
	"fmt"
	"strings"
)

// EditError says which edit could not be made, and why. It is a fault of the
// caller, not of the document's sender.
type EditError struct {
	Pointer string // where, as a JSON Pointer (RFC 6901)
	Reason  string
}

func (e *EditError) Error() string {
	return fmt.Sprintf("cannot edit %q: %s", e.Pointer, e.Reason)
}

// Set makes json the value at path: a member of an object, which is added if
// it is not there, or an existing element of an array. What the path goes
// through must exist; EnsureObject makes it. json must be valid JSON text
// without white space around it; it is copied.
func (o *Object) Set(json string, path ...string) {
	if !o.checkJSON(json, path) {
		return
	}
	parent, ok := o.parentOf(path)
	if !ok {
		return
	}
	token := path[len(path)-1]
	n := o.inside(parent, token)
	if n == 0 && o.isArray(parent) {
		o.refuse(path, "the array is shorter than that, use Append")
		return
	}
	if n == 0 || o.valueOf(n).JSON() != json {
		o.put(parent, n, token, json)
	}
}

// SetString makes the string s the value at path, as Set does.
func (o *Object) SetString(s string, path ...string) {
	o.Set(o.quote(s), path...)
}

// Append adds json at the end of the array at path. An array that is missing
// or null is made, in a parent that must exist. For json see Set.
func (o *Object) Append(json string, path ...string) {
	if !o.checkJSON(json, path) {
		return
	}
	parent, ok := o.parentOf(path)
	if !ok {
		return
	}
	token := path[len(path)-1]
	n := o.inside(parent, token)
	switch o.valueOf(n).Kind() {
	case KindMissing, KindNull:
		if n == 0 && o.isArray(parent) {
			o.refuse(path, "no such element")
			return
		}
		n = o.put(parent, n, token, "[]")
	case KindArray:
	default:
		o.refuse(path, "not an array")
		return
	}
	if o.err != nil {
		return
	}
	if o.finish(n); o.err == nil {
		o.add(n, int32(o.count(n)), 0, json)
	}
}

// AppendString adds the string s at the end of the array at path, as Append
// does.
func (o *Object) AppendString(s string, path ...string) {
	o.Append(o.quote(s), path...)
}

// Add does what the operation "add" of RFC 6902 section 4.1 does: it sets a
// member, or inserts json into an array before the element that the last token
// names; "-" appends.
func (o *Object) Add(json string, path ...string) {
	if !o.checkJSON(json, path) {
		return
	}
	parent, ok := o.parentOf(path)
	if !ok {
		return
	}
	token := path[len(path)-1]
	if !o.isArray(parent) {
		o.put(parent, o.inside(parent, token), token, json)
		return
	}
	if token == "-" {
		o.Append(json, path[:len(path)-1]...)
		return
	}
	at := parseIndex(token)
	if at < 0 || at > o.valueOf(parent).Len() {
		o.refuse(path, "no such index in the array")
		return
	}
	o.rewriteArray(parent, at, at, json)
}

// Remove removes the member or element at path. Nothing happens when there is
// none. Inserting into an array and removing from it cost a copy of the array.
func (o *Object) Remove(path ...string) {
	if !o.Get(path...).Exists() {
		return
	}
	parent, ok := o.parentOf(path)
	if !ok {
		return
	}
	token := path[len(path)-1]
	if o.isArray(parent) {
		at := parseIndex(token)
		o.rewriteArray(parent, at, at+1, "")
		return
	}
	o.put(parent, o.inside(parent, token), token, "")
}

// EnsureObject makes sure that there is an object at path, and at everything
// the path goes through below the root: what is missing or null becomes an
// empty object.
func (o *Object) EnsureObject(path ...string) {
	if !o.mayEdit(path) {
		return
	}
	n := o.root()
	for i, token := range path {
		if !o.isContainer(n) {
			o.refuse(path[:i], "neither an object nor an array")
			return
		}
		inside := o.inside(n, token)
		if inside == 0 && o.isArray(n) {
			o.refuse(path, "the array is shorter than that, use Append")
			return
		}
		if !o.valueOf(inside).IsSet() {
			inside = o.put(n, inside, token, "{}")
		}
		n = inside
	}
	if o.err == nil && o.valueOf(n).Kind() != KindObject {
		o.refuse(path, "not an object")
	}
}

// Changes returns how many edits changed something since the Object was reset.
func (o *Object) Changes() int { return o.changes }

// mayEdit reports whether there is a document to edit, and no fault yet.
func (o *Object) mayEdit(path []string) bool {
	if o.text == "" {
		o.refuse(path, "there is no document, as for the object of a DELETE request")
	}
	return o.err == nil
}

// parentOf returns the node of the object or array that path's last token is
// in; ok is false, with the reason recorded, when there is none.
func (o *Object) parentOf(path []string) (n int32, ok bool) {
	if len(path) == 0 {
		o.refuse(path, "cannot replace or remove the whole document")
		return 0, false
	}
	if !o.mayEdit(path) {
		return 0, false
	}
	n = o.root()
	for i, token := range path {
		if !o.isContainer(n) {
			o.refuse(path[:i], "neither an object nor an array")
			return 0, false
		}
		if i == len(path)-1 {
			break
		}
		inside := o.inside(n, token)
		if inside == 0 && o.isArray(n) {
			o.refuse(path[:i+1], "no such element")
			return 0, false
		}
		n = inside
	}
	return n, o.err == nil
}

func (o *Object) isArray(n int32) bool { return o.kindAt(o.nodes[n].at) == KindArray }

func (o *Object) isContainer(n int32) bool {
	kind := o.kindAt(o.nodes[n].at)
	return kind == KindObject || kind == KindArray
}

// inside returns the node for a token in n, 0 if there is none: the member may
// have been removed.
func (o *Object) inside(n int32, token string) int32 {
	if o.isArray(n) {
		return o.element(n, parseIndex(token))
	}
	m, full := o.member(n, token)
	if full {
		o.finish(n)
		o.indexMembers(n)
		m, _ = o.member(n, token)
	}
	return m
}

// put makes json the value of n, "" to remove it. If n is 0 it becomes a new
// member of parent. All of parent has nodes then, so that the end of what was
// replaced need not be known, and only one member of that name.
func (o *Object) put(parent, n int32, name, json string) int32 {
	if o.finish(parent); o.err != nil {
		return n
	}
	isArray := o.isArray(parent)
	if o.isFull() && !isArray {
		o.indexMembers(parent)
	}
	if n == 0 {
		if json == "" {
			return 0
		}
		at, length := o.keepName(name)
		if n = o.add(parent, at, length, json); n != 0 && o.nodes[parent].indexed {
			o.index[memberName{parent, o.unescape(o.nameOf(n))}] = n
		}
		return n
	}
	if !isArray && !o.nodes[parent].indexed {
		o.unlinkOthers(n)
	}
	if o.nodes[n].first != 0 {
		o.finish(n) // for who goes over it just now
	}
	if o.nodes[n].indexed {
		o.forgetMembers(n)
	}
	e := &o.nodes[n]
	*e = node{name: e.name, nameLen: e.nameLen, was: e.was, up: e.up, next: e.next}
	o.change(n, json)
	return n
}

// keepName puts a name into the arena, and returns what a node says of it.
func (o *Object) keepName(name string) (at place, length int32) {
	quoted := o.quote(name)
	at, length = o.keep(quoted)+1, int32(len(quoted)-2)
	if strings.IndexByte(quoted, '\\') >= 0 {
		length = -length
	}
	return at, length
}

// add adds json behind all that is in parent, with what its node says of the
// name or, for an element, the index.
func (o *Object) add(parent int32, name place, nameLen int32, json string) int32 {
	if !o.hasRoom(parent) {
		return 0
	}
	n := o.link(parent, name, nameLen, 0)
	o.change(n, json)
	return n
}

// change makes json the text of n.
func (o *Object) change(n int32, json string) {
	if json != "" {
		at := o.keep(json)
		o.nodes[n].at, o.nodes[n].end = at, at+place(len(json))
		o.nodes[n].complete = len(json) == len("{}")
	}
	for up := o.nodes[n].up; up != 0 && !o.nodes[up].edited; up = o.nodes[up].up {
		o.nodes[up].edited = true
	}
	o.changes++
}

// unlinkOthers takes out what has the same name as the member at n, behind it.
func (o *Object) unlinkOthers(n int32) {
	name, last := o.unescape(o.nameOf(n)), n
	for next := o.nodes[n].next; next != 0; next = o.nodes[next].next {
		if o.isNamed(&o.nodes[next], name) {
			o.nodes[last].next = o.nodes[next].next
			continue
		}
		last = next
	}
	o.nodes[o.nodes[n].up].last = last
}

// keep returns where json is in the arena, after putting it there if it is not.
func (o *Object) keep(json string) place {
	at := offsetIn(stringOf(o.arena), json)
	if at < 0 {
		at = len(o.arena)
		o.arena = append(append(o.arena, json...), ' ')
		o.lent.add(o.arena)
	}
	return place(1 + len(o.text) + at)
}

// rewriteArray replaces the elements from index from up to index to of the
// array at n by json, if that is not empty. Every later index changes, so the
// array gets a new text.
func (o *Object) rewriteArray(n int32, from, to int, json string) {
	if n == rootNode {
		o.refuse(nil, "cannot insert into or remove from an array that is the document itself")
		return
	}
	v := o.valueOf(n)
	if !o.arenaFits(len(v.source()) + len(json) + len("[],")) {
		return
	}
	start, capacity := len(o.arena), cap(o.arena)
	o.arena = append(o.arena, '[')
	put := func() {
		if len(o.arena) > start+1 {
			o.arena = append(o.arena, ',')
		}
	}
	for i, element := range v.Elements() {
		if i == from && json != "" {
			put()
			o.arena = append(o.arena, json...)
		}
		if i < from || i >= to {
			put()
			o.arena = element.AppendJSON(o.arena)
		}
	}
	if json != "" && from == v.Len() {
		put()
		o.arena = append(o.arena, json...)
	}
	o.arena = append(o.arena, ']')
	o.grown(capacity)
	o.put(o.nodes[n].up, n, "", o.kept(start))
}

// Compose returns JSON text that build appends to its argument, for the use in
// an edit. It costs no allocation: the text is in o's own memory, and valid
// until o is reset, and "" after a fault. build must not use o.
func (o *Object) Compose(build func(dst []byte) []byte) string {
	if o.err != nil {
		return ""
	}
	start, capacity := len(o.arena), cap(o.arena)
	o.arena = build(o.arena)
	o.grown(capacity)
	return o.kept(start)
}

// quote returns the JSON string for s, in the arena, or an empty one if it does
// not fit.
func (o *Object) quote(s string) string {
	if !o.arenaFits(len(s) + len(`"" `)) {
		return `""`
	}
	start := len(o.arena)
	o.arena = AppendString(o.arena, s)
	return o.kept(start)
}

// kept returns the text that begins at start in the arena and is its last, after
// putting a space behind it: a number must not run into the next text.
func (o *Object) kept(start int) string {
	o.arena = append(o.arena, ' ')
	o.lent.add(o.arena)
	return stringOf(o.arena[start : len(o.arena)-1])
}

// checkJSON refuses a new value that is not JSON: such a patch would fail the
// user's request whatever the failure policy.
func (o *Object) checkJSON(json string, path []string) bool {
	switch {
	case !o.arenaFits(len(json) + 1):
		return false
	case isJSON(json):
		return true
	default:
		o.refuse(path, "the new value is not valid JSON")
	}
	return false
}

func (o *Object) refuse(path []string, reason string) {
	if o.err != nil {
		return
	}
	var pointer []byte
	for _, token := range path {
		pointer = AppendPointerToken(append(pointer, '/'), token)
	}
	o.err = &EditError{Pointer: string(pointer), Reason: reason}
}
