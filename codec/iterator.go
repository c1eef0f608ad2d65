package codec

// An Iterator goes over the elements of an array or the members of an object, in
// the order of Elements and Members, one Next at a time. It is for callers that
// cannot be written as the body of a loop. It is valid as long as its Value.
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

// Next moves to the next one and reports whether there is one. Like the loops, it
// ends with the context of the review.
func (it *Iterator) Next() bool {
	if o := it.walk.of.object; o != nil && o.isOver(it.passed) {
		return false
	}
	it.passed++
	if !it.inRest {
		if it.walk.next() {
			return true
		}
		it.inRest, it.rest = true, it.walk.rest()
	}
	return it.rest.next()
}

// Value returns the current one.
func (it *Iterator) Value() Value {
	if it.inRest {
		return it.rest.value()
	}
	return it.walk.value()
}

// Name returns the name of the current member in plain text. There is none in an
// array.
func (it *Iterator) Name() string {
	o := it.walk.of.object
	if it.inRest {
		return o.unescape(it.rest.written())
	}
	return o.unescape(o.nameOf(it.walk.node))
}
