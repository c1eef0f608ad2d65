package cel

import (
	"github.com/fastadmit/fastadmit/codec"
)

// CEL's cost of looking up a member or an element, and of a size, is 1, because the
// maps and lists of kube-apiserver take constant time for it. codec finds them by
// reading the text. A large document therefore gets an index of each object and array
// that an expression looks into again and again.
const (
	// largeMin is how many bytes a document has at least for that. Reading fewer takes
	// some microseconds, about what the interpreter takes for a call, and up to 1,024
	// nodes of a document are found without reading: a Pod of 7 KiB has fewer.
	largeMin = 16 << 10
	// lookupsMax is how often something is looked up in an object or array by reading
	// it. Then its index is made, which takes about as long as so many lookups.
	lookupsMax = 8
	// placeBytes is what a place takes, and memberBytes what a member or element does
	// in the index of one: 16 bytes each for name and value, in a map that grows by
	// doubling.
	placeBytes  = 192
	memberBytes = 96
)

// places are the objects and arrays of the documents of an Input that something was
// looked up in, if these documents are large. Nil stands for documents that are not.
type places struct {
	fits  func(bytes int) bool // whether there is memory
	known map[codec.Value]*place
	bytes int // that are taken
	reads int // how often something was looked up by reading, for tests
}

// A place is what is known of one object or array.
type place struct {
	lookups  int
	size     int                    // -1 for one that was not counted yet
	members  map[string]codec.Value // nil before there is an index
	elements []codec.Value
}

// at returns what is known of v, nil if there is no memory for more.
func (p *places) at(v codec.Value) *place {
	if k := p.known[v]; k != nil {
		return k
	}
	if !p.take(placeBytes) {
		return nil
	}
	if p.known == nil {
		p.known = make(map[codec.Value]*place)
	}
	k := &place{size: -1}
	p.known[v] = k
	return k
}

func (p *places) take(bytes int) bool {
	p.bytes += bytes
	return p.fits(p.bytes)
}

// indexed counts a lookup in v and returns what is known of it if there is an index,
// or is to be one now.
func (p *places) indexed(v codec.Value) *place {
	if p == nil {
		return nil
	}
	k := p.at(v)
	if k == nil {
		return nil
	}
	if k.lookups++; k.lookups > lookupsMax {
		return k
	}
	p.reads++
	return nil
}

// member returns the first member of that name of an object.
func (p *places) member(v codec.Value, name string) codec.Value {
	k := p.indexed(v)
	if k == nil {
		return v.Get(name)
	}
	if n := p.len(v); k.members == nil && p.take(n*memberBytes) {
		k.members = make(map[string]codec.Value, n)
		for it := v.Iterator(); it.Next(); {
			if name := it.Name(); !k.members[name].Exists() {
				k.members[name] = it.Value()
			}
		}
	}
	if k.members == nil { // there is no memory for it
		return v.Get(name)
	}
	return k.members[name]
}

// element returns an element of an array.
func (p *places) element(v codec.Value, i int) codec.Value {
	k := p.indexed(v)
	if k == nil {
		return v.Get(codec.Index(i))
	}
	if n := p.len(v); k.elements == nil && p.take(n*memberBytes) {
		k.elements = make([]codec.Value, 0, n)
		for it := v.Iterator(); it.Next(); {
			k.elements = append(k.elements, it.Value())
		}
	}
	switch {
	case k.elements == nil: // there is no memory for it
		return v.Get(codec.Index(i))
	case i >= len(k.elements):
		return codec.Value{}
	}
	return k.elements[i]
}

// len returns how many members or elements v has.
func (p *places) len(v codec.Value) int {
	if p == nil {
		return v.Len()
	}
	k := p.at(v)
	if k == nil {
		return v.Len()
	}
	if k.size < 0 {
		p.reads++
		k.size = v.Len()
	}
	return k.size
}
