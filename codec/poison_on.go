//go:build poison

package codec

import "bytes"

// poisoned is what memory is overwritten with when it is given back. It stands
// out in a dump, and no text of it is UTF-8: JSON and protobuf encoders show it
// or refuse it.
const poisoned = 0xdb

// poison overwrites memory that is given back, so that a string which was kept
// after its Review was released is garbage. It returns nil, and not b for the
// next use: what was kept stays garbage for good.
func poison(b []byte) []byte {
	b = b[:cap(b)]
	for i := range b {
		b[i] = poisoned
	}
	return nil
}

// lent is the memory that views of an Object point into.
type lent struct {
	texts [][]byte
}

// copyOf returns a copy of a document, so that it can be overwritten when the
// document is reset. The original belongs to the caller.
func (l *lent) copyOf(raw []byte) []byte {
	own := bytes.Clone(raw)
	l.add(own)
	return own
}

// add notes an arena that views were made of. It may be outgrown later: append
// moves the text, but not the views.
func (l *lent) add(arena []byte) {
	for _, text := range l.texts {
		if sameStart(stringOf(text), stringOf(arena)) {
			return
		}
	}
	l.texts = append(l.texts, arena)
}

// takeBack overwrites all of it.
func (l *lent) takeBack() {
	for _, text := range l.texts {
		poison(text)
	}
	l.texts = nil
}
