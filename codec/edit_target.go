package codec

import "strconv"

// A target is where an edit puts a value.
type target struct {
	parent nodeID // the object or array that contains the value, 0 for the document itself
	node   nodeID // the member or element, which may have been removed; 0 if there is no node yet
	name   string // of the member, or the index of the element; not known for an edit without a path
}

// The reasons why an edit cannot be made.
const (
	arrayTooShort = "the array is shorter than that, use Append"
	noContainer   = "neither an object nor an array"
	noDocument    = "there is no document, as for the object of a DELETE request"
	isReadOnly    = "only Review.Object can be edited, not OldObject, Options and the other fields of a review"
	isMissing     = "the Value that the edit starts at is missing; start at the Value that contains it, with a longer path: " +
		"missing parents are created"
	isStale = "the Value that the edit starts at was replaced, removed or moved after it was read; read it again"
)

// target returns where an edit at a path below v puts its value, and creates missing
// parents. If the edit is not possible, ok is false and the reason is recorded.
func (v Value) target(path []string) (t target, ok bool) {
	n := v.start(path)
	if n == 0 {
		return target{}, false
	}
	return v.below(n, path)
}

// start returns the node of v. If no edit can start there, it records the reason and
// returns 0.
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

// mustObject returns the Object that v is in, and panics if there is none.
func (v Value) mustObject() *Object {
	if v.object == nil {
		panic("codec: an edit of the zero Value, which belongs to no Object")
	}
	return v.object
}

// isCurrent reports whether n is the node of v and still a part of the document.
func (v Value) isCurrent(n nodeID) bool {
	nodes := v.object.nodes
	if n <= 0 || int(n) >= len(nodes) || nodes[n].at != v.at && !v.IsNull() {
		return false
	}
	for ; n != rootNode; n = nodes[n].parent {
		if nodes[n].detached {
			return false
		}
	}
	return true
}

// below returns the target at a path below n, the node of v.
func (v Value) below(n nodeID, path []string) (t target, ok bool) {
	o := v.object
	t = target{parent: o.nodes[n].parent, node: n}
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
		t = target{parent: t.node, node: o.childFor(t.node, token), name: token}
	}
	return t, o.err == nil
}

// put sets the value at the target of an edit of v at path to json, or removes it if
// json is "", and returns its node.
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

// childFor returns the node in n that a token of a path names, 0 if there is none. It
// may be the node of a member that was removed.
func (o *Object) childFor(n nodeID, token string) nodeID {
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

// nodeAt returns the node of the value that begins at an offset somewhere below n,
// for a Value that was read without making nodes. It makes the nodes on the way. It
// returns 0 if the value was replaced since.
func (o *Object) nodeAt(n nodeID, at offset) nodeID {
	for n = o.childAt(n, at); n != 0 && o.nodes[n].original != at; {
		n = o.childAt(n, at)
	}
	return n
}

// childAt returns the last node in n whose value begins at an offset or before it, 0
// if there is none. It starts at the node that it found last: editing one element after
// the other must not take quadratic time.
func (o *Object) childAt(n nodeID, at offset) nodeID {
	if int(n) >= len(o.nodes) || !o.isContainer(n) {
		return 0
	}
	c := o.nodes[n].recentChild
	if c == 0 || !o.beginsBy(c, at) {
		if c = o.nodes[n].firstChild; c == 0 {
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
	o.nodes[n].recentChild = c
	return c
}

// beginsBy reports whether the original value of n begins at an offset or before it.
func (o *Object) beginsBy(n nodeID, at offset) bool {
	was := o.nodes[n].original
	return was != 0 && was <= at
}

func (o *Object) isArray(n nodeID) bool { return o.kindAt(o.nodes[n].at) == KindArray }

func (o *Object) isContainer(n nodeID) bool {
	kind := o.kindAt(o.nodes[n].at)
	return kind == KindObject || kind == KindArray
}

// accepts reports whether json can be a new value. It refuses text that is not JSON:
// kube-apiserver cannot decode a patch with it, and fails the user's request whatever
// the failure policy.
func (v Value) accepts(json string, path []string) bool {
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
		n = -n // the value has no node; point at the one that contains it
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
	up := o.nodes[n].parent
	if up == 0 {
		return dst
	}
	return o.appendToken(append(o.appendPointer(dst, up), '/'), n)
}

// appendToken appends the last token of the JSON Pointer of the value at n.
func (o *Object) appendToken(dst []byte, n nodeID) []byte {
	if o.nodes[n].name == 0 { // an element, even if its parent is no array any more
		return strconv.AppendInt(dst, int64(o.nodes[n].index), 10)
	}
	return AppendPointerToken(dst, o.unescape(o.nameOf(n)))
}
