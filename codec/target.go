package codec

import "strconv"

// A target is where an edit puts a value.
type target struct {
	parent nodeID // the object or array that the value is in, 0 for the document itself
	node   nodeID // the member or element, which may have been removed; 0 if there is none yet
	name   string // of the member, or the index of the element; not known for a Value that is edited itself
}

// Why an edit cannot be made.
const (
	arrayTooShort = "the array is shorter than that, use Append"
	noContainer   = "neither an object nor an array"
	noDocument    = "there is no document, as for the object of a DELETE request"
	isReadOnly    = "only the object of a review can be edited, and not what it was before or what else is in a review"
	isMissing     = "the Value that the edit starts at is missing; start at the one that contains it, with a longer path: missing parents are made"
	isStale       = "the Value that the edit starts at was replaced, removed or moved after it was read; read it again"
)

// target returns where an edit at a path below v puts its value, and makes the
// parents that are missing. ok is false, with the reason recorded, if it cannot
// be put there.
func (v Value) target(path []string) (t target, ok bool) {
	n := v.start(path)
	if n == 0 {
		return target{}, false
	}
	return v.below(n, path)
}

// start returns the node of v, 0 with the reason recorded if no edit can start
// there.
func (v Value) start(path []string) nodeID {
	o := v.mustObject()
	if o.err != nil {
		return 0
	}
	n := v.node
	if n < 0 {
		n = o.nodeAt(-n, v.at)
	}
	var reason string
	switch {
	case o.isReadOnly:
		reason = isReadOnly
	case o.text == "":
		reason = noDocument
	case v.at == 0:
		reason = isMissing
	case !v.isCurrent(n):
		reason = isStale
	default:
		return n
	}
	v.refuse(path, reason)
	return 0
}

// mustObject returns the Object that v is in.
func (v Value) mustObject() *Object {
	if v.object == nil {
		panic("codec: an edit of the zero Value, which belongs to no Object")
	}
	return v.object
}

// isCurrent reports whether n is the node of v, and a part of the document as it
// is now.
func (v Value) isCurrent(n nodeID) bool {
	nodes := v.object.nodes
	if n <= 0 || int(n) >= len(nodes) || nodes[n].at != v.at && !v.IsNull() {
		return false
	}
	for ; n != rootNode; n = nodes[n].up {
		if nodes[n].detached {
			return false
		}
	}
	return true
}

// below returns the target at a path below n, the node of v.
func (v Value) below(n nodeID, path []string) (t target, ok bool) {
	o := v.object
	t = target{parent: o.nodes[n].up, node: n}
	for i, token := range path {
		switch o.kindAt(o.nodes[t.node].at) {
		case KindObject, KindArray:
		case KindMissing, KindNull:
			t.node = v.put(t, "{}", path[:i])
		default:
			v.refuse(path[:i], noContainer)
		}
		if o.err != nil {
			return target{}, false
		}
		t = target{parent: t.node, node: o.inside(t.node, token), name: token}
	}
	return t, o.err == nil
}

// put makes json the value at a target of an edit of v at path, and returns its
// node. With "" for json it removes the value.
func (v Value) put(t target, json string, path []string) nodeID {
	o := v.object
	switch {
	case t.parent == 0:
		v.refuse(path, "cannot replace or remove the whole document")
		return 0
	case t.node == 0 && o.isArray(t.parent):
		v.refuse(path, arrayTooShort)
		return 0
	}
	return o.put(t.parent, t.node, t.name, json)
}

// inside returns the node for a token in n, 0 if there is none: the member may
// have been removed.
func (o *Object) inside(n nodeID, token string) nodeID {
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

// nodeAt returns the node of a value that was read at a place below n without
// one, 0 if there is none because another value is there now. It makes the nodes
// on the way.
func (o *Object) nodeAt(n nodeID, at offset) nodeID {
	for n = o.childAt(n, at); n != 0 && o.nodes[n].was != at; {
		n = o.childAt(n, at)
	}
	return n
}

// childAt returns the node in n whose value begins at a place or is the last one
// to begin before it, 0 if there is none. It begins at the one found last: editing
// one after the other must not take quadratic time.
func (o *Object) childAt(n nodeID, at offset) nodeID {
	if int(n) >= len(o.nodes) || !o.isContainer(n) {
		return 0
	}
	c := o.nodes[n].recent
	if c == 0 || !o.beginsBy(c, at) {
		if c = o.nodes[n].first; c == 0 {
			c = o.scan(n)
		}
		if c == 0 || !o.beginsBy(c, at) {
			return 0
		}
	}
	for {
		next := o.nodes[c].next
		if next == 0 {
			next = o.scan(n)
		}
		if next == 0 || !o.beginsBy(next, at) {
			break
		}
		c = next
	}
	o.nodes[n].recent = c
	return c
}

// beginsBy reports whether the value that n came with begins at a place or
// before.
func (o *Object) beginsBy(n nodeID, at offset) bool {
	was := o.nodes[n].was
	return was != 0 && was <= at
}

func (o *Object) isArray(n nodeID) bool { return o.kindAt(o.nodes[n].at) == KindArray }

func (o *Object) isContainer(n nodeID) bool {
	kind := o.kindAt(o.nodes[n].at)
	return kind == KindObject || kind == KindArray
}

// takes refuses a new value that is not JSON: such a patch would fail the user's
// request whatever the failure policy.
func (v Value) takes(json string, path []string) bool {
	switch {
	case !v.mustObject().arenaFits(len(json) + 1):
		return false
	case isJSON(json):
		return true
	default:
		v.refuse(path, "the new value is not valid JSON")
	}
	return false
}

// refuse records that an edit of v at path cannot be made.
func (v Value) refuse(path []string, reason string) {
	o := v.object
	if o.err != nil {
		return
	}
	n := v.node
	if n < 0 {
		n = -n // what it is in is as near as can be said
	}
	var pointer []byte
	if int(n) < len(o.nodes) {
		pointer = o.appendPointer(nil, n)
	}
	for _, token := range path {
		pointer = AppendPointerToken(append(pointer, '/'), token)
	}
	o.err = &EditError{Pointer: string(pointer), Reason: reason}
}

// appendPointer appends the JSON Pointer of the value at n.
func (o *Object) appendPointer(dst []byte, n nodeID) []byte {
	up := o.nodes[n].up
	if up == 0 {
		return dst
	}
	return o.appendToken(append(o.appendPointer(dst, up), '/'), n)
}

// appendToken appends the last token of the JSON Pointer of the value at n.
func (o *Object) appendToken(dst []byte, n nodeID) []byte {
	if o.nodes[n].name == 0 { // an element, of what need not be an array any more
		return strconv.AppendInt(dst, int64(o.nodes[n].index), 10)
	}
	return AppendPointerToken(dst, o.unescape(o.nameOf(n)))
}
