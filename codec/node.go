package codec

// A place is where a text begins or ends in an Object: counted from 1, first
// through the document and then through the arena of texts that edits made. It
// is 0 for what is nowhere.
type place = int32

// nodeBytes is how much memory a node takes.
const nodeBytes = 44

// textMax is how long a document may be, in bytes: far more than a review can
// have, and a quarter of what a place can count. With an arena of MemoryMax it
// is less than half.
const textMax = 512 << 20

// nodesMax is how many nodes reading makes. A Pod that ten plugins have read
// has two hundred. What is beyond is scanned anew each time: it takes no
// memory, whatever is in the document. Edits, and elements that are looked up
// by their index, get nodes in any case.
const nodesMax = 1024

// rootNode is the node of the document itself; nodes[0] is unused.
const rootNode = 1

// A node is a member, an element or the document, as far as reads and edits
// came by it. It holds no pointers: making it and forgetting it cost little.
type node struct {
	name    place // of a member, where its name begins behind the quote; of an element, its index
	nameLen int32 // the name's length as it is written, negative if there are escapes in it
	at      place // where the value begins; 0 if it was removed
	end     place // behind the value, 0 if that was not looked for yet
	was     place // where the value began that the document came with, 0 if it was added

	up     int32 // the node it is in
	next   int32 // its next sibling, in the order of the text; added ones come last
	first  int32 // the first one in it
	last   int32 // the last one in it
	recent int32 // of an array, the element that was looked up last

	complete bool // all that is in it has nodes
	edited   bool // something in it was set, added or removed
	indexed  bool // all that is in it is in the index
}

// root returns the node of the document.
func (o *Object) root() int32 {
	if len(o.nodes) == 0 {
		o.nodes = append(o.nodes, node{}, node{at: 1, was: 1})
	}
	return rootNode
}

// textAt returns the text that a place is in, and the place where it begins.
func (o *Object) textAt(at place) (text string, base place) {
	if int(at) <= len(o.text) {
		return o.text, 1
	}
	return stringOf(o.arena), 1 + place(len(o.text))
}

// from returns the text that begins at a place.
func (o *Object) from(at place) string {
	text, base := o.textAt(at)
	return text[at-base:]
}

// view returns the text between two places.
func (o *Object) view(at, end place) string {
	text, base := o.textAt(at)
	return text[at-base : end-base]
}

// kindAt returns what begins at a place.
func (o *Object) kindAt(at place) Kind {
	switch i := int(at) - 1; {
	case i < 0:
		return KindMissing
	case i < len(o.text):
		return kindOf[o.text[i]]
	default:
		return kindOf[o.arena[i-len(o.text)]]
	}
}

// endOf returns where the value at n ends, 0 at a syntax error. If it is an object
// that is known in part, it goes over the rest of it: skipping all of it would
// take as long, and the next one who looks into it has that before him.
func (o *Object) endOf(n int32) place {
	if end := o.nodes[n].end; end != 0 {
		return end
	}
	if o.nodes[n].first != 0 && !o.isArray(n) {
		o.readMembers(n)
		if end := o.nodes[n].end; end != 0 {
			return end
		}
	}
	c := &o.nodes[n]
	text, base := o.textAt(c.at)
	end := o.skipValue(text, int(c.at-base))
	if end < 0 {
		return 0
	}
	c.end = base + place(end)
	return c.end
}

// scan finds the next member or element of the object or array at n that has no
// node yet, and gives it one. It returns 0 at the end and at a syntax error.
func (o *Object) scan(n int32) int32 {
	if o.nodes[n].complete {
		return 0
	}
	at, last := o.nodes[n].at, o.nodes[n].last
	text, base := o.textAt(at)
	pos, name := int(at-base)+1, place(0)
	if last != 0 {
		end := o.endOf(last)
		if end == 0 {
			o.nodes[n].complete = true
			return 0
		}
		pos, name = int(end-base), o.nodes[last].name+1
	}
	if !o.hasRoom(n) {
		return 0
	}
	inArray := text[at-base] == '['
	if inArray {
		if at := predictedElement(text, pos, last == 0); at != 0 {
			return o.link(n, name, 0, base+place(at))
		}
		if o.close(n, text, pos, base) {
			return 0
		}
	}
	c := cursor{object: o, text: text, pos: pos, first: last == 0}
	if inArray && !c.element() || !inArray && !c.member() {
		o.nodes[n].complete = true
		if o.err == nil {
			o.nodes[n].end = base + place(c.pos)
		}
		return 0
	}
	nameLen := c.nameEnd - c.name
	switch {
	case inArray:
		return o.link(n, name, 0, base+place(c.pos))
	case c.escaped:
		nameLen = -nameLen
	}
	return o.link(n, base+place(c.name), int32(nameLen), base+place(c.pos))
}

// predicted is scan for members as kube-apiserver writes them, without white
// space and without escapes in their names. It goes on to the member of that
// name, and returns the last one it found, 0 if it found none.
func (o *Object) predicted(n int32, name string) (m int32) {
	p := &o.nodes[n]
	text, base := o.textAt(p.at)
	pos := int(p.at-base) + 1
	if p.last != 0 {
		end := o.endOf(p.last)
		if pos = int(end-base) + 1; end == 0 || pos > len(text) || text[pos-1] != ',' {
			return 0
		}
	}
	for pos < len(text) && text[pos] == '"' && !o.isFull() {
		end := quoteAt(text, pos+1)
		if end+2 >= len(text) || text[end] != '"' || text[end+1] != ':' || text[end+2] <= ' ' {
			break
		}
		at := end + 2
		m = o.link(n, base+place(pos+1), place(end-pos-1), base+place(at))
		if text[pos+1:end] == name {
			break
		}
		if pos = o.skipValue(text, at); pos < 0 {
			break
		}
		o.nodes[m].end = base + place(pos)
		if pos >= len(text) || text[pos] != ',' {
			o.close(n, text, pos, base)
			break
		}
		pos++
	}
	return m
}

// close ends the object or array at n if its closing bracket is at pos.
func (o *Object) close(n int32, text string, pos int, base place) bool {
	c := &o.nodes[n]
	if pos >= len(text) || text[pos] != text[c.at-base]+2 { // the distance of the brackets in ASCII
		return false
	}
	c.complete, c.end = true, base+place(pos+1)
	return true
}

// scanMembers finds members of the object at n that have no node yet, up to the
// one of that name, and gives them one. It returns the last one of them, or 0 at
// the end and at a syntax error.
func (o *Object) scanMembers(n int32, name string) int32 {
	if m := o.predicted(n, name); m != 0 {
		return m
	}
	return o.scan(n)
}

// readMembers gives nodes to all members of the object at n, as long as reading
// makes some.
func (o *Object) readMembers(n int32) {
	for !o.nodes[n].complete && !o.isFull() {
		o.scanMembers(n, "")
	}
}

// link makes a node the last one in n, for the value that the document has at a
// place, which is 0 for one that an edit adds. Whoever calls it has asked
// hasRoom, or isFull. It is small enough to be inlined.
func (o *Object) link(n int32, name place, nameLen int32, at place) int32 {
	m := int32(len(o.nodes))
	p := &o.nodes[n]
	if p.last == 0 {
		p.first = m
	} else {
		o.nodes[p.last].next = m
	}
	p.last = m
	o.nodes = append(o.nodes, node{})
	c := &o.nodes[m] // field by field: a node made elsewhere and copied takes twice as long
	c.name, c.nameLen, c.at, c.was, c.up = name, nameLen, at, at, n
	return m
}

// hasRoom reports whether there is memory for another node. If there is none, n is
// complete: nobody looks for more in it.
func (o *Object) hasRoom(n int32) bool {
	if len(o.nodes) == cap(o.nodes) && !o.growNodes() {
		o.nodes[n].complete = true
		return false
	}
	return true
}

// finish gives nodes to all that is in n.
func (o *Object) finish(n int32) {
	inArray := o.isArray(n)
	for !o.nodes[n].complete {
		if inArray {
			o.scan(n)
		} else {
			o.scanMembers(n, "")
		}
	}
}

// count returns how many elements the array at n has, all of which have nodes.
func (o *Object) count(n int32) int {
	if last := o.nodes[n].last; last != 0 {
		return int(o.nodes[last].name) + 1
	}
	return 0
}

// isFull reports whether reading makes no more nodes.
func (o *Object) isFull() bool { return len(o.nodes) >= nodesMax }

// member returns the node of the first member of that name of the object at n,
// 0 if there is none or, then full is true, if that would take a node more than
// reading makes.
func (o *Object) member(n int32, name string) (m int32, full bool) {
	nodes := o.nodes
	if o.index != nil && nodes[n].indexed {
		return o.index[memberName{n, name}], false
	}
	for m = nodes[n].first; m != 0; m = nodes[m].next {
		if c := &nodes[m]; (int(c.nameLen) == len(name) || c.nameLen < 0) && o.isNamed(c, name) { // most are passed without a call
			return m, false
		}
	}
	for !o.nodes[n].complete {
		if o.isFull() {
			return 0, true
		}
		if m = o.scanMembers(n, name); m != 0 && o.isNamed(&o.nodes[m], name) {
			return m, false
		}
	}
	return 0, false
}

// isNamed reports whether c is a member of that name.
func (o *Object) isNamed(c *node, name string) bool {
	if c.nameLen >= 0 {
		return int(c.nameLen) == len(name) && o.view(c.name, c.name+c.nameLen) == name
	}
	return o.nameIs(o.view(c.name, c.name-c.nameLen), name)
}

// element returns the node of an element of the array at n, 0 if there is none.
// It begins at the one looked up last: reading or editing one element after the
// other must not take quadratic time.
func (o *Object) element(n int32, index int) int32 {
	if index < 0 {
		return 0
	}
	e := o.nodes[n].recent
	if e == 0 || int(o.nodes[e].name) > index {
		e = o.nodes[n].first
	}
	if e == 0 {
		e = o.scan(n)
	}
	for e != 0 && int(o.nodes[e].name) < index {
		next := o.nodes[e].next
		if next == 0 {
			next = o.scan(n)
		}
		e = next
	}
	o.nodes[n].recent = e
	if e == 0 {
		o.nodes[n].recent = o.nodes[n].last // where the next one who looks too far begins
	}
	return e
}

// nameOf returns the name of the member at m as it is written.
func (o *Object) nameOf(m int32) string {
	c := &o.nodes[m]
	return o.view(c.name, c.name+max(c.nameLen, -c.nameLen))
}
