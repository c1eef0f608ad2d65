package codec

import (
	"iter"
	"strconv"
)

// Edit is one place where the document was edited.
type Edit struct {
	Pointer string // escaped JSON Pointer; valid until the iteration goes on
	Before  Value  // as it came; missing if it was added
	After   Value  // as it is now; missing if it was removed
}

// Edits iterates over the topmost places that were edited, parents before
// children and array elements by index. An edit may have changed nothing:
// Before and After tell.
func (o *Object) Edits() iter.Seq[Edit] {
	return func(yield func(Edit) bool) {
		if len(o.edits) > 0 {
			o.pointer = o.pointer[:0]
			o.walkEdits(rootEdit, yield)
		}
	}
}

// walkEdits yields the edits below parent, whose pointer is in o.pointer.
func (o *Object) walkEdits(parent int32, yield func(Edit) bool) bool {
	at := len(o.pointer)
	inArray := o.valueOf(parent).Kind() == KindArray
	for n := o.edits[parent].child; n != 0; n = o.edits[n].next {
		e := &o.edits[n]
		o.pointer = append(o.pointer[:at], '/')
		if inArray {
			o.pointer = strconv.AppendInt(o.pointer, int64(e.index), 10)
		} else {
			o.pointer = AppendPointerToken(o.pointer, e.name)
		}
		if !e.set {
			if !o.walkEdits(n, yield) {
				return false
			}
			continue
		}
		before := Value{object: o, text: e.was, element: e.inArray}
		if !yield(Edit{Pointer: stringOf(o.pointer), Before: before, After: o.valueOf(n)}) {
			return false
		}
	}
	return true
}
