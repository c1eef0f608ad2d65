package codec

import "iter"

// Edit is a place in the document that was edited.
type Edit struct {
	Pointer string // escaped JSON Pointer; valid until the next step of the iteration
	Before  Value  // the original value; missing if it was added
	After   Value  // the current value; missing if it was removed
}

// Edits iterates over the topmost places that were edited, in the order of the
// text; added members and elements come last. Compare Before and After: they may be
// equal.
func (o *Object) Edits() iter.Seq[Edit] {
	return func(yield func(Edit) bool) {
		if o.changes > 0 {
			o.pointer = o.pointer[:0]
			o.walkEdits(rootNode, yield)
		}
	}
}

// walkEdits yields the edits below parent, whose pointer is in o.pointer.
func (o *Object) walkEdits(parent nodeID, yield func(Edit) bool) bool {
	at := len(o.pointer)
	for n := o.nodes[parent].firstChild; n != 0; n = o.nodes[n].next {
		isSet := o.nodes[n].at != o.nodes[n].original
		if !isSet && !o.nodes[n].edited {
			continue
		}
		o.pointer = o.appendToken(append(o.pointer[:at], '/'), n)
		if !isSet {
			if !o.walkEdits(n, yield) {
				return false
			}
			continue
		}
		if !yield(Edit{Pointer: stringOf(o.pointer), Before: Value{object: o, at: o.nodes[n].original}, After: o.valueOf(n)}) {
			return false
		}
	}
	return true
}
