package codec

import (
	"fmt"
	"strings"
)

// rootEdit is the node of the document itself in Object.edits.
const rootEdit = 1

// An edit is a node in the tree of what edits touched. Its children lie over
// its text; a container without changes of its own is a node only because
// something below it was changed.
type edit struct {
	name  string // the member's name in plain text
	index int32  // the element's index; siblings in an array are sorted by it
	set   bool   // text is no longer was
	was   string // begins with what was in the parent's text, "" if it was not in there
	text  string // begins with what is there now, children not laid over, "" if removed
	child int32  // the first child
	last  int32  // the last child
	next  int32  // the next sibling

	inArray bool  // it is an element or in one, see Value.element
	recent  int32 // of an array, the child found last
	length  int32 // of an array, appended elements included, -1 if not counted yet
}

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
// without white space around it, and the caller must not change what it views
// until the Object is reset.
func (o *Object) Set(json string, path ...string) {
	if !o.checkJSON(json, path) {
		return
	}
	parent, ok := o.touchParent(path)
	if !ok {
		return
	}
	n := o.touchChild(parent, path[len(path)-1])
	if n == 0 {
		o.refuse(path, "the array is shorter than that, use Append")
		return
	}
	if now := o.valueOf(n); now.edit == 0 && !strings.HasPrefix(now.text, json) || now.JSON() != json {
		o.replace(n, json)
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
	n, ok := o.touchArray(path)
	if !ok {
		return
	}
	o.addEdit(n, &edit{index: o.edits[n].length, set: true, text: json, length: -1})
	o.edits[n].length++
	o.changes++
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
	parent, ok := o.touchParent(path)
	if !ok {
		return
	}
	token := path[len(path)-1]
	if o.valueOf(parent).Kind() != KindArray {
		o.replace(o.touchChild(parent, token), json)
		return
	}
	if token == "-" {
		o.Append(json, path[:len(path)-1]...)
		return
	}
	at := parseIndex(token)
	if at < 0 || at > o.count(parent) {
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
	parent, ok := o.touchParent(path)
	if !ok {
		return
	}
	token := path[len(path)-1]
	if o.valueOf(parent).Kind() == KindArray {
		at := parseIndex(token)
		o.rewriteArray(parent, at, at+1, "")
		return
	}
	o.replace(o.touchChild(parent, token), "")
}

// EnsureObject makes sure that there is an object at path, and at everything
// the path goes through below the root: what is missing or null becomes an
// empty object.
func (o *Object) EnsureObject(path ...string) {
	v := o.Root()
	for i, token := range path {
		if v = v.child(token); !v.IsSet() {
			o.makeObjects(path, i, v.text)
			return
		}
	}
	if o.err == nil && v.Kind() != KindObject {
		o.refuse(path, "not an object")
	}
}

// makeObjects makes empty objects at path[:first+1], where there is nothing or
// null in the text was, and at all that path goes through from there on.
func (o *Object) makeObjects(path []string, first int, was string) {
	n, ok := o.touchParent(path[:first+1])
	for _, token := range path[first:] {
		switch {
		case !ok:
			return
		case o.edits[n].text[0] == '[':
			n = o.touchElement(n, parseIndex(token))
		default:
			n = o.touchMember(n, token, func() string { return was })
		}
		if n == 0 {
			o.refuse(path, "the array is shorter than that, use Append")
			return
		}
		o.replace(n, "{}")
		was = ""
	}
}

// Changes returns how many edits changed something since the Object was reset.
func (o *Object) Changes() int { return o.changes }

// valueOf returns the value at a node.
func (o *Object) valueOf(n int32) Value {
	e := &o.edits[n]
	v := Value{object: o, text: e.text, element: e.inArray}
	if e.child != 0 {
		v.edit = n
	}
	return v
}

// below returns the value at a node without the edits below it.
func (o *Object) below(n int32) Value {
	e := &o.edits[n]
	return Value{object: o, text: e.text, element: e.inArray}
}

// firstEdit returns the first node below n, 0 if there is none.
func (o *Object) firstEdit(n int32) int32 {
	if n == 0 {
		return 0
	}
	return o.edits[n].child
}

// childEdit returns the node for a token below n, 0 if there is none.
func (o *Object) childEdit(n int32, token string) int32 {
	if n == 0 || o.edits[n].text == "" {
		return 0
	}
	if o.edits[n].text[0] == '[' {
		return o.editOfIndex(n, parseIndex(token))
	}
	return o.editOfName(o.firstEdit(n), token)
}

// editOfName returns the node of that name among child and its next siblings,
// 0 if there is none.
func (o *Object) editOfName(child int32, name string) int32 {
	for child != 0 && o.edits[child].name != name {
		child = o.edits[child].next
	}
	return child
}

// editOfIndex returns the node below n for an element, 0 if there is none.
// Plugins edit one element after the other, so it begins where it was last.
func (o *Object) editOfIndex(n int32, index int) int32 {
	e := &o.edits[n]
	if e.last == 0 || int(o.edits[e.last].index) < index {
		return 0
	}
	if int(o.edits[e.last].index) == index {
		return e.last
	}
	child := o.editBefore(n, index+1)
	if child == 0 || int(o.edits[child].index) != index {
		return 0
	}
	e.recent = child
	return child
}

// editBefore returns the last node below the array at n that is for an element
// before index, 0 if there is none.
func (o *Object) editBefore(n int32, index int) int32 {
	before := o.edits[n].recent
	if before == 0 || int(o.edits[before].index) >= index {
		before = 0
		if first := o.edits[n].child; first != 0 && int(o.edits[first].index) < index {
			before = first
		}
	}
	if before == 0 {
		return 0
	}
	for next := o.edits[before].next; next != 0 && int(o.edits[next].index) < index; next = o.edits[before].next {
		before = next
	}
	return before
}

// touchParent returns the node of the container that path's last token is in,
// making nodes on the way; ok is false, with the reason recorded, when there
// is no such container.
func (o *Object) touchParent(path []string) (n int32, ok bool) {
	if o.err != nil {
		return 0, false
	}
	if len(path) == 0 {
		o.refuse(path, "cannot replace or remove the whole document")
		return 0, false
	}
	if o.text == "" {
		o.refuse(path, "there is no document, as for the object of a DELETE request")
		return 0, false
	}
	if len(o.edits) == 0 {
		o.edits = append(o.edits, edit{}, edit{was: o.text, text: o.text, length: -1})
	}
	n = rootEdit
	for i, token := range path {
		if kind := o.valueOf(n).Kind(); kind != KindObject && kind != KindArray {
			o.refuse(path[:i], "neither an object nor an array")
			return 0, false
		}
		if i == len(path)-1 {
			break
		}
		if n = o.touchChild(n, token); n == 0 {
			o.refuse(path[:i+1], "no such element")
			return 0, false
		}
	}
	return n, true
}

// touchChild returns the node for a token below n, making it; 0 when n is an
// array that has no such element.
func (o *Object) touchChild(n int32, token string) int32 {
	text := o.edits[n].text
	if text[0] == '[' {
		return o.touchElement(n, parseIndex(token))
	}
	return o.touchMember(n, token, func() string { return o.below(n).child(token).text })
}

// touchMember returns the node for a member of the object at n, making it. Find
// is asked for its text.
func (o *Object) touchMember(n int32, name string, find func() string) int32 {
	if child := o.editOfName(o.firstEdit(n), name); child != 0 {
		return child
	}
	was := find()
	return o.addEdit(n, &edit{name: name, was: was, text: was, length: -1})
}

func (o *Object) touchElement(n int32, index int) int32 {
	if index < 0 {
		return 0
	}
	if child := o.editOfIndex(n, index); child != 0 {
		return child
	}
	was := o.below(n).elementAt(index).text
	if was == "" {
		return 0
	}
	return o.addEdit(n, &edit{index: int32(index), was: was, text: was, length: -1})
}

// touchArray returns the node of the array at path, made if it is missing or
// null, with its length counted.
func (o *Object) touchArray(path []string) (n int32, ok bool) {
	parent, ok := o.touchParent(path)
	if !ok {
		return 0, false
	}
	if n = o.touchChild(parent, path[len(path)-1]); n == 0 {
		o.refuse(path, "no such element")
		return 0, false
	}
	switch o.valueOf(n).Kind() {
	case KindMissing, KindNull:
		o.replace(n, "[]")
	case KindArray:
	default:
		o.refuse(path, "not an array")
		return 0, false
	}
	o.count(n)
	return n, o.err == nil
}

// count returns how many elements the array at n has.
func (o *Object) count(n int32) int {
	if o.edits[n].length < 0 {
		o.edits[n].length = int32(o.valueOf(n).Len())
	}
	return int(o.edits[n].length)
}

// replace makes json the text at n, "" to remove it.
func (o *Object) replace(n int32, json string) {
	o.changes++
	e := &o.edits[n]
	e.set, e.text = true, json
	e.child, e.last, e.recent, e.length = 0, 0, 0, -1
}

// rewriteArray replaces the elements from index from up to index to of the
// array at n by json, if that is not empty. Every later index changes, so the
// array gets a new text.
func (o *Object) rewriteArray(n int32, from, to int, json string) {
	if n == rootEdit {
		o.refuse(nil, "cannot insert into or remove from an array that is the document itself")
		return
	}
	v := o.valueOf(n)
	start := len(o.arena)
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
	if json != "" && from == o.count(n) {
		put()
		o.arena = append(o.arena, json...)
	}
	o.arena = append(o.arena, ']')
	o.replace(n, stringOf(o.arena[start:]))
}

// addEdit adds a node below parent. Children of arrays stay sorted.
func (o *Object) addEdit(parent int32, e *edit) int32 {
	n := int32(len(o.edits))
	p := &o.edits[parent]
	e.inArray = p.inArray || p.text[0] == '['
	switch {
	case p.child == 0:
		p.child, p.last = n, n
	case p.text[0] == '{' || o.edits[p.last].index < e.index:
		o.edits[p.last].next = n
		p.last = n
	case o.edits[p.child].index > e.index:
		e.next = p.child
		p.child = n
	default:
		before := o.editBefore(parent, int(e.index))
		e.next = o.edits[before].next
		o.edits[before].next = n
	}
	o.edits = append(o.edits, *e)
	return n
}

// Compose returns JSON text that build appends to its argument, for the use in
// an edit. It costs no allocation: the text is in o's own memory, and valid
// until o is reset. build must not use o.
func (o *Object) Compose(build func(dst []byte) []byte) string {
	start := len(o.arena)
	o.arena = build(o.arena)
	return stringOf(o.arena[start:])
}

// quote returns the JSON string for s, in the arena.
func (o *Object) quote(s string) string {
	start := len(o.arena)
	o.arena = AppendString(o.arena, s)
	return stringOf(o.arena[start:])
}

// checkJSON refuses a new value that is not JSON: such a patch would fail the
// user's request whatever the failure policy.
func (o *Object) checkJSON(json string, path []string) bool {
	if isPlainString(json) || isLiteral(json) || isJSON(json) {
		return true
	}
	o.refuse(path, "the new value is not valid JSON")
	return false
}

// isLiteral reports whether json is one of the texts that plugins set most.
func isLiteral(json string) bool {
	switch json {
	case "true", "false", "null", "{}", "[]":
		return true
	}
	return false
}

// isPlainString reports whether json is a string of ASCII without escapes.
func isPlainString(json string) bool {
	return len(json) >= 2 && json[0] == '"' && json[len(json)-1] == '"' && isPlain(json[1:len(json)-1])
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
