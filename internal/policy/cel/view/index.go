package view

import (
	"github.com/google/cel-go/common/types/ref"

	"github.com/fastadmit/fastadmit/codec"
)

// In kube-apiserver, finding a member or an element and counting them take constant time,
// so CEL's cost for each is 1. codec finds them by reading the text. A large document
// therefore gets an index of each object and array in which expressions look up something
// again and again.
const (
	// largeMin is the size in bytes of a large document. Reading a smaller one takes some
	// microseconds, about as long as a call in the interpreter. codec finds up to 1,024
	// nodes of a document without reading; a Pod of 7 KiB has fewer.
	largeMin = 16 << 10
	// lookupsMax is the number of lookups in an object or array that read its text. The
	// next one creates its index, which takes about as long as all of them.
	lookupsMax = 8
	// entryBytes is the memory of an entry, and memberBytes that of a member or element in
	// it: 16 bytes each for name and value, in a map that grows by doubling.
	entryBytes  = 192
	memberBytes = 96
)

// An Index remembers where the members and elements of large documents are. The nil Index
// is that of small documents: it finds everything by reading.
type Index struct {
	fits    func(bytes int) bool // whether there is memory
	entries map[codec.Value]*entry
	bytes   int // of memory that the entries take
	reads   int // how often a lookup read the text, for tests
}

// Indexed returns what the function ValueOf returns, with an index if the text of v is large. fits reports whether
// there is memory for that many bytes of the index.
func Indexed(v codec.Value, fits func(bytes int) bool) ref.Val {
	if len(v.JSON()) < largeMin {
		return ValueOf(v)
	}
	return (&Index{fits: fits}).ValueOf(v)
}

// An entry has the cached facts about one object or array.
type entry struct {
	lookups  int
	size     int                    // -1 until it is counted
	members  map[string]codec.Value // nil until they are indexed
	elements []codec.Value          // the same
}

// entry returns the entry of v, nil if there is no memory for it.
func (x *Index) entry(v codec.Value) *entry {
	if e := x.entries[v]; e != nil {
		return e
	}
	if !x.take(entryBytes) {
		return nil
	}
	if x.entries == nil {
		x.entries = make(map[codec.Value]*entry)
	}
	e := &entry{size: -1}
	x.entries[v] = e
	return e
}

func (x *Index) take(bytes int) bool {
	x.bytes += bytes
	return x.fits(x.bytes)
}

// lookup counts a lookup in v. It returns the entry of v if the members or elements of v
// are indexed, or must be indexed now.
func (x *Index) lookup(v codec.Value) *entry {
	if x == nil {
		return nil
	}
	e := x.entry(v)
	if e == nil {
		return nil
	}
	if e.lookups++; e.lookups > lookupsMax {
		return e
	}
	x.reads++
	return nil
}

// Member returns the first member of an object with that name.
func (x *Index) Member(v codec.Value, name string) codec.Value {
	e := x.lookup(v)
	if e == nil {
		return v.Get(name)
	}
	if n := x.Len(v); e.members == nil && x.take(n*memberBytes) {
		e.members = make(map[string]codec.Value, n)
		for it := v.Iterator(); it.Next(); {
			if name := it.Name(); !e.members[name].Exists() {
				e.members[name] = it.Value()
			}
		}
	}
	if e.members == nil { // there is no memory for them
		return v.Get(name)
	}
	return e.members[name]
}

// Element returns an element of an array.
func (x *Index) Element(v codec.Value, i int) codec.Value {
	e := x.lookup(v)
	if e == nil {
		return v.Get(codec.Index(i))
	}
	if n := x.Len(v); e.elements == nil && x.take(n*memberBytes) {
		e.elements = make([]codec.Value, 0, n)
		for it := v.Iterator(); it.Next(); {
			e.elements = append(e.elements, it.Value())
		}
	}
	switch {
	case e.elements == nil: // there is no memory for them
		return v.Get(codec.Index(i))
	case i >= len(e.elements):
		return codec.Value{}
	}
	return e.elements[i]
}

// Len returns how many members or elements v has.
func (x *Index) Len(v codec.Value) int {
	if x == nil {
		return v.Len()
	}
	e := x.entry(v)
	if e == nil {
		return v.Len()
	}
	if e.size < 0 {
		x.reads++
		e.size = v.Len()
	}
	return e.size
}
