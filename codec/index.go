package codec

// index remembers where the members and elements of the document are, as far
// as reads went, so that ten plugins that each ask for a few members of spec
// scan it once. It grows only by what a read passes over anyway.
type index struct {
	shapes [shapesMax]shape
	used   int    // how many shapes were begun since the reset, also those that took the place of others
	items  []item // items[0] is unused
}

const (
	// shapesMax is how many objects and arrays are remembered at a time. What
	// plugins look into in a Pod, without the elements of arrays, is half of it.
	shapesMax = 32

	// itemsMax is how many members and elements are remembered. Looking
	// through those of one object is linear: beyond this, scanning again is no
	// worse, and takes no memory.
	itemsMax = 1024
)

// A shape is an object or array of the document, as far as it was scanned.
type shape struct {
	at    int32 // where its bracket opens
	first int32 // its items, a list
	last  int32
	ends  int32 // behind its closing bracket, 0 if scanning did not get there
}

// An item is a member or element that scanning passed.
type item struct {
	name  string // as it is written; empty for elements
	start int32  // where its value begins
	end   int32  // where its value ends, 0 if not looked for yet
	next  int32
}

func (x *index) reset() {
	clear(x.items)
	x.items = x.items[:0]
	x.used = 0
}

// find returns the shape of what opens at pos, nil if there is none. The first
// ones, which are those of the document and its spec, are asked for most.
func (x *index) find(pos int) *shape {
	for i := range min(x.used, shapesMax) {
		if x.shapes[i].at == int32(pos) {
			return &x.shapes[i]
		}
	}
	return nil
}

// shapeAt returns the shape of what opens at pos. If there is none it begins
// one, in the place of the oldest when all are in use.
func (x *index) shapeAt(pos int) *shape {
	if s := x.find(pos); s != nil {
		return s
	}
	if len(x.items) == 0 {
		x.items = append(x.items, item{})
	}
	s := &x.shapes[x.used%shapesMax]
	x.used++
	*s = shape{at: int32(pos)}
	return s
}

// add appends an item to s and returns its place, 0 if the index is full.
func (x *index) add(s *shape, i item) int32 {
	if len(x.items) > itemsMax {
		return 0
	}
	n := int32(len(x.items))
	x.items = append(x.items, i)
	if s.last == 0 {
		s.first = n
	} else {
		x.items[s.last].next = n
	}
	s.last = n
	return n
}

// items steps over the members of an object or the elements of an array: those
// in the index first, then those that scanning finds.
type items struct {
	cursor
	opens   int   // where the bracket opens
	start   int   // where the current item's value begins, 0 before the first
	known   int32 // the current item's place in the index, 0 if it is not in there
	shaped  bool  // the items are remembered in the index
	inArray bool  // the items are elements or in one
}

// items returns the items of the object or array that v is.
func (v Value) items() items {
	text, opens := v.text, 0
	at := offsetIn(v.object.text, v.text)
	if at >= 0 {
		text, opens = v.object.text, at
	}
	return items{
		cursor: v.object.enter(text, opens), opens: opens,
		shaped: at >= 0 && !v.element, inArray: v.element || text[opens] == '[',
	}
}

// value returns the current item's value.
func (it *items) value() Value {
	return Value{object: it.object, text: it.text[it.start:], element: it.inArray}
}

// next moves to the next item and returns its name as it is written, "" for
// elements. At the end, or at a syntax error, ok is false.
func (it *items) next() (name string, ok bool) {
	x := &it.object.index
	var s *shape
	if it.shaped {
		s = x.shapeAt(it.opens)
		n := s.first
		if it.start != 0 {
			n = x.next(it.known)
		}
		if n != 0 {
			it.known, it.start = n, int(x.items[n].start)
			return x.items[n].name, true
		}
		if it.known != s.last {
			s = nil // the shape was taken and begun anew: scan without it
		} else if s.ends != 0 {
			return "", false
		}
	}
	name, ok = it.scan()
	switch {
	case s == nil:
		it.known, it.shaped = 0, false
	case ok:
		it.known = x.add(s, item{name: name, start: int32(it.start)})
		it.shaped = it.known != 0
	default:
		if it.object.err == nil {
			s.ends = int32(it.pos)
		}
	}
	return name, ok
}

// next returns the item behind n, 0 if there is none in the index.
func (x *index) next(n int32) int32 {
	if n == 0 {
		return 0
	}
	return x.items[n].next
}

// scan finds the next item in the text.
func (it *items) scan() (name string, ok bool) {
	if it.start != 0 {
		if it.pos, it.first = it.end(), false; it.pos < 0 {
			return "", false
		}
	}
	if it.text[it.opens] == '[' {
		ok = it.element()
	} else {
		name, ok = it.member()
	}
	if ok && it.pos >= len(it.text) {
		ok = it.fail("a value")
	}
	it.start = it.pos
	return name, ok
}

// end returns where the current item's value ends, or -1 at a syntax error.
func (it *items) end() int {
	x := &it.object.index
	if it.known == 0 {
		return it.object.skipValue(it.text, it.start)
	}
	if end := x.items[it.known].end; end != 0 {
		return int(end)
	}
	end := x.endAt(it.start)
	if end == 0 {
		if end = it.object.skipValue(it.text, it.start); end < 0 {
			return -1
		}
	}
	x.items[it.known].end = int32(end)
	return end
}

// endAt returns where what opens at pos ends if it was scanned to its end, 0
// otherwise.
func (x *index) endAt(pos int) int {
	if s := x.find(pos); s != nil {
		return int(s.ends)
	}
	return 0
}

// A finger is at the element of an array that was looked up last.
type finger struct {
	items
	array string // the array's text
	at    int    // the element's index
}

// fingersMax is how many arrays have a finger: enough for arrays in arrays.
const (
	fingersMax  = 1 << fingersBits
	fingersBits = 2
)

// finger returns the finger for the array with that text, which may be at
// another array yet.
func (o *Object) finger(array string) *finger {
	// Fibonacci hashing, for like arrays begin at even distances.
	return &o.fingers[uint32(offsetIn(o.text, array))*2654435769>>(32-fingersBits)]
}
