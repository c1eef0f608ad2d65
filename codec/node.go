package codec

// An offset is a place in the texts of an Object, counted from 1: first through the
// document and then through the arena with the texts of edits. 0 means none.
type offset int32

// A nodeID names a node of an Object, 0 for none. In a Value, -n means that the value
// has no node of its own and is somewhere in node n.
type nodeID int32

// nodeBytes is how much memory a node takes.
const nodeBytes = 48

// textMax is the maximum length of a document in bytes: far more than that of a
// review, and a quarter of what an offset can count. With an arena of MemoryMax it is
// less than half.
const textMax = 512 << 20

// nodesMax is the maximum number of nodes that reads make. A Pod that ten plugins have
// read has two hundred. Members and elements without a node are found by scanning the
// text each time, so a large document takes no more memory. Edits, and elements that
// are looked up by their index, get nodes in any case.
const nodesMax = 1024

// rootNode is the node of the document itself; nodes[0] is unused.
const rootNode = 1

// A node is a member, an element or the document. Reads and edits make it when they
// come across it. It has no pointers, so the garbage collector need not look at it.
type node struct {
	name     offset // of a member, where the name begins, behind the quote; 0 for an element
	nameLen  int32  // the length of the name in the text, with escapes
	index    int32  // of an element
	at       offset // where the value begins; 0 if it was removed
	end      offset // where the value ends; 0 if not known yet
	original offset // where the value began in the text of the parent; 0 if an edit added it

	parent      nodeID
	next        nodeID // the next sibling, in the order of the text; added ones come last
	firstChild  nodeID
	lastChild   nodeID
	recentChild nodeID // the child that was looked up last by its index or offset

	escaped  bool // there are escapes in the name
	complete bool // all members or elements have nodes
	edited   bool // something in the value was set, added or removed
	detached bool // the parent has another value now
}

// root returns the node of the document. The first call makes it: for most requests
// nobody reads the old object or the options.
func (o *Object) root() nodeID {
	if len(o.nodes) == 0 {
		o.nodes = append(o.nodes, node{}, node{at: 1, original: 1})
	}
	return rootNode
}

// textAt returns the text that an offset is in, and the offset where it begins.
func (o *Object) textAt(at offset) (text string, base offset) {
	if int(at) <= len(o.text) {
		return o.text, 1
	}
	return stringOf(o.arena), 1 + offset(len(o.text))
}

// from returns the text that begins at an offset.
func (o *Object) from(at offset) string {
	text, base := o.textAt(at)
	return text[at-base:]
}

// view returns the text between two offsets.
func (o *Object) view(at, end offset) string {
	text, base := o.textAt(at)
	return text[at-base : end-base]
}

// kindAt returns the kind of the value that begins at an offset.
func (o *Object) kindAt(at offset) Kind {
	switch i := int(at) - 1; {
	case i < 0:
		return KindMissing
	case i < len(o.text):
		return kindOf[o.text[i]]
	default:
		return kindOf[o.arena[i-len(o.text)]]
	}
}

// endOf returns where the value at n ends, 0 at a syntax error. If some members of an
// object have nodes, it makes nodes for the others. The alternative, to skip the whole
// object in native code without nodes, takes 1,500 instructions more for a Pod if a
// plugin reads the security contexts of its containers.
func (o *Object) endOf(n nodeID) offset {
	if end := o.nodes[n].end; end != 0 {
		return end
	}
	if o.nodes[n].firstChild != 0 && !o.isArray(n) {
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
	c.end = base + offset(end)
	return c.end
}

// scan makes a node for the next member or element of the object or array at n that has
// none yet. It returns 0 at the end and at a syntax error.
func (o *Object) scan(n nodeID) nodeID {
	if o.nodes[n].complete {
		return 0
	}
	at, last := o.nodes[n].at, o.nodes[n].lastChild
	text, base := o.textAt(at)
	pos := int(at-base) + 1
	if last != 0 {
		end := o.endOf(last)
		if end == 0 {
			o.nodes[n].complete = true
			return 0
		}
		pos = int(end - base)
	}
	if !o.hasRoom(n) {
		return 0
	}
	inArray := text[at-base] == '['
	if inArray {
		if at := predictedElement(text, pos, last == 0); at != 0 {
			return o.linkElement(n, base+offset(at))
		}
		if o.close(n, text, pos, base) {
			return 0
		}
	}
	c := cursor{object: o, text: text, pos: pos, first: last == 0}
	if inArray && !c.element() || !inArray && !c.member() {
		o.nodes[n].complete = true
		if o.err == nil {
			o.nodes[n].end = base + offset(c.pos)
		}
		return 0
	}
	if inArray {
		return o.linkElement(n, base+offset(c.pos))
	}
	m := o.link(n, base+offset(c.name), int32(c.nameEnd-c.name), base+offset(c.pos))
	o.nodes[m].escaped = c.escaped
	return m
}

// close ends the object or array at n if its closing bracket is at pos.
func (o *Object) close(n nodeID, text string, pos int, base offset) bool {
	c := &o.nodes[n]
	if pos >= len(text) || text[pos] != text[c.at-base]+2 { // the distance of the brackets in ASCII
		return false
	}
	c.complete, c.end = true, base+offset(pos+1)
	return true
}

// scanMembers makes nodes for members of the object at n that have none yet. It stops
// behind the member of that name, or earlier; the caller calls it again. It returns the
// last node that it made, 0 at the end and at a syntax error, and whether the node has
// the name.
func (o *Object) scanMembers(n nodeID, name string) (m nodeID, found bool) {
	if m, found = o.predictedMember(n, name); m != 0 {
		return m, found
	}
	m = o.scan(n)
	return m, m != 0 && o.isNamed(&o.nodes[m], name)
}

// readMembers makes nodes for all members of the object at n, up to nodesMax.
func (o *Object) readMembers(n nodeID) {
	for !o.nodes[n].complete && !o.isFull() {
		o.scanMembers(n, "")
	}
}

// link adds a node at the end of n, for the value that begins at an offset of the
// document, or at 0 for a value that an edit adds. Call hasRoom or isFull first. It is
// small enough to be inlined.
func (o *Object) link(n nodeID, name offset, nameLen int32, at offset) nodeID {
	m := nodeID(len(o.nodes))
	p := &o.nodes[n]
	if p.lastChild == 0 {
		p.firstChild = m
	} else {
		o.nodes[p.lastChild].next = m
	}
	p.lastChild = m
	o.nodes = append(o.nodes, node{})
	c := &o.nodes[m] // setting the fields takes half the time of copying a node
	c.name, c.nameLen, c.at, c.original, c.parent = name, nameLen, at, at, n
	return m
}

// linkElement is link for an element of the array at n.
func (o *Object) linkElement(n nodeID, at offset) nodeID {
	last := o.nodes[n].lastChild
	m := o.link(n, 0, 0, at)
	if last != 0 {
		o.nodes[m].index = o.nodes[last].index + 1
	}
	return m
}

// hasRoom reports whether there is memory for another node. If there is none, it marks n
// as complete, so that nobody scans it for more.
func (o *Object) hasRoom(n nodeID) bool {
	if len(o.nodes) == cap(o.nodes) && !o.growNodes() {
		o.nodes[n].complete = true
		return false
	}
	return true
}

// finish makes nodes for all members or elements of n.
func (o *Object) finish(n nodeID) {
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
func (o *Object) count(n nodeID) int {
	if last := o.nodes[n].lastChild; last != 0 {
		return int(o.nodes[last].index) + 1
	}
	return 0
}

// isFull reports whether reads make no more nodes.
func (o *Object) isFull() bool { return len(o.nodes) >= nodesMax }

// member returns the node of the first member of that name of the object at n, 0 if
// there is none. If the search stopped because reads make no more nodes, full is true.
func (o *Object) member(n nodeID, name string) (m nodeID, full bool) {
	nodes := o.nodes
	if o.index != nil {
		if names := o.index[n]; names != nil {
			return names[name], false
		}
	}
	for m = nodes[n].firstChild; ; m = nodes[m].next {
		for m != 0 && int(nodes[m].nameLen) != len(name) && !nodes[m].escaped { // saves most calls of isNamed
			m = nodes[m].next
		}
		if m == 0 {
			break
		}
		if o.isNamed(&nodes[m], name) {
			return m, false
		}
	}
	for !o.nodes[n].complete {
		if o.isFull() {
			return 0, true
		}
		if m, found := o.scanMembers(n, name); found {
			return m, false
		}
	}
	return 0, false
}

// isNamed reports whether the member at c has that name.
func (o *Object) isNamed(c *node, name string) bool {
	written := o.view(c.name, c.name+offset(c.nameLen))
	if !c.escaped {
		return written == name
	}
	return o.nameIs(written, name)
}

// element returns the node of an element of the array at n, 0 if there is none. It
// starts at the element that was looked up last: reading or editing one after the other
// must not take quadratic time.
func (o *Object) element(n nodeID, index int) nodeID {
	if index < 0 {
		return 0
	}
	e := o.nodes[n].recentChild
	if e == 0 || int(o.nodes[e].index) > index {
		e = o.nodes[n].firstChild
	}
	if e == 0 {
		e = o.scan(n)
	}
	for e != 0 && int(o.nodes[e].index) < index {
		next := o.nodes[e].next
		if next == 0 {
			next = o.scan(n)
		}
		e = next
	}
	o.nodes[n].recentChild = e
	if e == 0 {
		o.nodes[n].recentChild = o.nodes[n].lastChild // the next index beyond the end starts there
	}
	return e
}

// nameOf returns the name of the member at m as in the text, with escapes.
func (o *Object) nameOf(m nodeID) string {
	c := &o.nodes[m]
	return o.view(c.name, c.name+offset(c.nameLen))
}
