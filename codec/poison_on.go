//go:build poison

package codec

import "bytes"

// poisoned is the byte that released memory is overwritten with. It is easy to see in a
// dump, and text of it is not valid UTF-8, so JSON and protobuf encoders show or refuse
// it.
const poisoned = 0xdb

// poison overwrites released memory, so that a string which is used after its Review was
// released is garbage. It returns nil and not b, because memory that is used again would
// make such a string look valid.
func poison(b []byte) []byte {
	b = b[:cap(b)]
	for i := range b {
		b[i] = poisoned
	}
	return nil
}

// views is the memory that views of an Object point into.
type views struct {
	texts [][]byte
}

// copyOf returns a copy of a document, so that it can be overwritten when the
// document is reset. The original belongs to the caller.
func (l *views) copyOf(raw []byte) []byte {
	own := bytes.Clone(raw)
	l.add(own)
	return own
}

// add records an arena that has views. append may move the arena later, but the views
// still point to the old memory.
func (l *views) add(arena []byte) {
	for _, text := range l.texts {
		if sameStart(stringOf(text), stringOf(arena)) {
			return
		}
	}
	l.texts = append(l.texts, arena)
}

// overwrite poisons all recorded memory.
func (l *views) overwrite() {
	for _, text := range l.texts {
		poison(text)
	}
	l.texts = nil
}
