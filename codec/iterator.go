package codec

import "iter"

// Elements iterates over the elements of an array, in order. It yields nothing for
// other kinds. Elements that are appended inside the loop are not yielded; other edits
// inside the loop may be visible in later elements.
func (v Value) Elements() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) { v.elements(yield) }
}

func (v Value) elements(yield func(int, Value) bool) {
	if v.Kind() != KindArray {
		return
	}
	w, i := v.nodeItems(), 0
	for ; w.next(); i++ {
		if v.object.isInterrupted(i) || !yield(i, w.value()) {
			return
		}
	}
	for it := w.rest(); it.next(); i++ {
		if v.object.isInterrupted(i) || !yield(i, it.value()) {
			return
		}
	}
}

// nodeItems iterates over the members or elements of an object or array that have nodes,
// and makes nodes for the others, up to nodesMax. rest iterates over those without a
// node.
type nodeItems struct {
	of    Value
	node  nodeID // the current node, 0 before the first
	limit nodeID // the number of nodes at the start: members that an edit adds later are not yielded
	full  bool   // there are no nodes, or none behind node: continue with rest
}

func (v Value) nodeItems() nodeItems {
	return nodeItems{of: v, limit: nodeID(len(v.object.nodes)), full: v.currentNode() == 0}
}

// next moves to the next node.
func (w *nodeItems) next() bool {
	o, n := w.of.object, w.of.node
	for !w.full {
		next := o.nodes[w.node].next
		if w.node == 0 {
			next = o.nodes[n].firstChild
		}
		if next == 0 && !o.nodes[n].complete && o.nodes[n].at == w.of.at {
			if w.full = o.isFull(); w.full {
				return false
			}
			next = o.scan(n)
		}
		if next == 0 || next >= w.limit && o.nodes[next].original == 0 {
			return false
		}
		if w.node = next; o.nodes[next].at != 0 {
			return true
		}
	}
	return false
}

// value returns the value of the current node.
func (w *nodeItems) value() Value { return w.of.object.valueOf(w.node) }

// rest returns the items behind the last node. It is empty unless next stopped because
// reads make no more nodes.
func (w *nodeItems) rest() textItems {
	if !w.full {
		return textItems{}
	}
	it := w.of.textItems()
	if w.node != 0 {
		it.start = int(w.of.object.nodes[w.node].at - it.base)
	}
	return it
}

// Members iterates over the members of an object, with unescaped names: first in the
// order of the text, then members that edits added. It yields nothing for other kinds.
// Members that are added inside the loop are not yielded; other edits inside the loop
// may be visible in later members.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) { v.members(yield) }
}

func (v Value) members(yield func(string, Value) bool) {
	if v.Kind() != KindObject {
		return
	}
	o, w, n := v.object, v.nodeItems(), 0
	for ; w.next(); n++ {
		if o.isInterrupted(n) || !yield(o.unescape(o.nameOf(w.node)), w.value()) {
			return
		}
	}
	for it := w.rest(); it.next(); n++ {
		if o.isInterrupted(n) || !yield(o.unescape(it.written()), it.value()) {
			return
		}
	}
}

// Len returns the number of elements or members, 0 for other kinds.
func (v Value) Len() int {
	if kind := v.Kind(); kind != KindArray && kind != KindObject {
		return 0
	}
	o, node, n := v.object, v.currentNode(), 0
	w := nodeItems{of: v, full: true}
	if node != 0 {
		if o.isArray(node) && o.nodes[node].complete {
			return o.count(node)
		}
		for m := o.nodes[node].firstChild; m != 0; m = o.nodes[m].next {
			if w.node = m; o.nodes[m].at != 0 {
				n++
			}
		}
		if o.nodes[node].complete {
			return n
		}
	}
	for it := w.rest(); it.next() && !o.isInterrupted(n); {
		n++
	}
	return n
}

// Find returns the first element of an array that is an object whose member name
// is the string s, such as the variable of that name in the env of a container.
// It returns the zero Value when there is none.
func (v Value) Find(name, s string) Value {
	for _, element := range v.Elements() {
		if element.Get(name).EqualString(s) {
			return element
		}
	}
	return Value{object: v.object}
}

// An Iterator visits the elements of an array or the members of an object, in the
// order of Elements and Members, one for each call of Next. Use it where a loop
// cannot be used. It is valid as long as its Value.
type Iterator struct {
	nodes  nodeItems
	rest   textItems
	inRest bool // the current item is in rest, not in nodes
	passed int
}

// Iterator returns an Iterator before the first element or member, of which there
// are none if v is neither an array nor an object.
func (v Value) Iterator() Iterator {
	if kind := v.Kind(); kind != KindArray && kind != KindObject {
		return Iterator{inRest: true}
	}
	return Iterator{nodes: v.nodeItems()}
}

// Next moves to the next element or member and reports whether there is one. Like
// loops, it stops when the context of the review ends.
func (it *Iterator) Next() bool {
	if !it.next() || it.nodes.of.object.isInterrupted(it.passed) {
		return false
	}
	it.passed++
	return true
}

func (it *Iterator) next() bool {
	if !it.inRest {
		if it.nodes.next() {
			return true
		}
		it.inRest, it.rest = true, it.nodes.rest()
	}
	return it.rest.next()
}

// Value returns the current element or member.
func (it *Iterator) Value() Value {
	if it.inRest {
		return it.rest.value()
	}
	return it.nodes.value()
}

// Name returns the unescaped name of the current member, "" in an array.
func (it *Iterator) Name() string {
	o := it.nodes.of.object
	if it.inRest {
		return o.unescape(it.rest.written())
	}
	return o.unescape(o.nameOf(it.nodes.node))
}
