package codec

import "iter"

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
	w, i := v.walk(), 0
	for ; w.next(); i++ {
		if v.object.isOver(i) || !yield(i, w.value()) {
			return
		}
	}
	for it := w.rest(); it.next(); i++ {
		if v.object.isOver(i) || !yield(i, it.value()) {
			return
		}
	}
}

// A walk goes over the members or elements of an object or array that have
// nodes, or get them by it.
type walk struct {
	of    Value
	node  nodeID // the current one, 0 before the first
	limit nodeID // how many nodes there were at the beginning: what was added since is for the next walk
	full  bool   // there are no nodes, or none behind node: rest goes on there
}

func (v Value) walk() walk {
	return walk{of: v, limit: nodeID(len(v.object.nodes)), full: v.live() == 0}
}

// next moves to the next one.
func (w *walk) next() bool {
	o, n := w.of.object, w.of.node
	for !w.full {
		next := o.nodes[w.node].next
		if w.node == 0 {
			next = o.nodes[n].first
		}
		if next == 0 && !o.nodes[n].complete && o.nodes[n].at == w.of.at {
			if w.full = o.isFull(); w.full {
				return false
			}
			next = o.scan(n)
		}
		if next == 0 || next >= w.limit && o.nodes[next].was == 0 {
			return false
		}
		if w.node = next; o.nodes[next].at != 0 {
			return true
		}
	}
	return false
}

// value returns the value of the current one.
func (w *walk) value() Value { return w.of.object.valueOf(w.node) }

// rest returns what comes behind the nodes, if next stopped for want of them.
func (w *walk) rest() items {
	if !w.full {
		return items{}
	}
	it := w.of.items()
	if w.node != 0 {
		it.start = int(w.of.object.nodes[w.node].at - it.base)
	}
	return it
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
	o, w, n := v.object, v.walk(), 0
	for ; w.next(); n++ {
		if o.isOver(n) || !yield(o.unescape(o.nameOf(w.node)), w.value()) {
			return
		}
	}
	for it := w.rest(); it.next(); n++ {
		if o.isOver(n) || !yield(o.unescape(it.written()), it.value()) {
			return
		}
	}
}

// Len returns the number of elements or members, 0 for other kinds.
func (v Value) Len() int {
	if kind := v.Kind(); kind != KindArray && kind != KindObject {
		return 0
	}
	o, node, n := v.object, v.live(), 0
	w := walk{of: v, full: true}
	if node != 0 {
		if o.isArray(node) && o.nodes[node].complete {
			return o.count(node)
		}
		for m := o.nodes[node].first; m != 0; m = o.nodes[m].next {
			if w.node = m; o.nodes[m].at != 0 {
				n++
			}
		}
		if o.nodes[node].complete {
			return n
		}
	}
	for it := w.rest(); it.next() && !o.isOver(n); {
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
	walk   walk
	rest   items
	inRest bool // there are no nodes any more
	passed int
}

// Iterator returns an Iterator before the first element or member, of which there
// are none if v is neither an array nor an object.
func (v Value) Iterator() Iterator {
	if kind := v.Kind(); kind != KindArray && kind != KindObject {
		return Iterator{inRest: true}
	}
	return Iterator{walk: v.walk()}
}

// Next moves to the next element or member and reports whether there is one. Like
// loops, it stops when the context of the review ends.
func (it *Iterator) Next() bool {
	if !it.next() || it.walk.of.object.isOver(it.passed) {
		return false
	}
	it.passed++
	return true
}

func (it *Iterator) next() bool {
	if !it.inRest {
		if it.walk.next() {
			return true
		}
		it.inRest, it.rest = true, it.walk.rest()
	}
	return it.rest.next()
}

// Value returns the current element or member.
func (it *Iterator) Value() Value {
	if it.inRest {
		return it.rest.value()
	}
	return it.walk.value()
}

// Name returns the unescaped name of the current member, "" in an array.
func (it *Iterator) Name() string {
	o := it.walk.of.object
	if it.inRest {
		return o.unescape(it.rest.written())
	}
	return o.unescape(o.nameOf(it.walk.node))
}
