package codec

// An offset is where a text begins or ends in an Object: counted from 1, first
// through the document and then through the arena of texts that edits made. It
// is 0 for what is nowhere.
type offset int32

// A nodeID names a node of an Object, 0 for none. In a Value, the negative of
// one stands for what is in that node and has none of its own.
type nodeID int32

// nodeBytes is how much memory a node takes.
const nodeBytes = 48

// textMax is how long a document may be, in bytes: far more than a review can
// have, and a quarter of what an offset can count. With an arena of MemoryMax it
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
	name    offset // of a member, where its name begins behind the quote; 0 for an element
	nameLen int32  // the name's length as it is written
	index   int32  // of an element
	at      offset // where the value begins; 0 if it was removed
	end     offset // behind the value, 0 if that was not looked for yet
	was     offset // where the value began that its parent's text came with, 0 if it was added

	up     nodeID // the node it is in
	next   nodeID // its next sibling, in the order of the text; added ones come last
	first  nodeID // the first one in it
	last   nodeID // the last one in it
	recent nodeID // the one in it that was looked up last by its index or offset

	escaped  bool // there are escapes in the name
	complete bool // all that is in it has nodes
	edited   bool // something in it was set, added or removed
	detached bool // what it was in has another value now
}

// root returns the node of the document, which is made when it is first asked for:
// of most requests nobody reads the old object or the options.
func (o *Object) root() nodeID {
	if len(o.nodes) == 0 {
		o.nodes = append(o.nodes, node{}, node{at: 1, was: 1})
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

// kindAt returns what begins at an offset.
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

// endOf returns where the value at n ends, 0 at a syntax error. It gives nodes to the
// rest of an object that is known in part. Skipping all of the object instead, in
// native code and without nodes, takes 1,500 instructions more for a Pod of which a
// plugin reads the containers' security contexts.
func (o *Object) endOf(n nodeID) offset {
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
	c.end = base + offset(end)
	return c.end
}

// scan finds the next member or element of the object or array at n that has no
// node yet, and gives it one. It returns 0 at the end and at a syntax error.
func (o *Object) scan(n nodeID) nodeID {
	if o.nodes[n].complete {
		return 0
	}
	at, last := o.nodes[n].at, o.nodes[n].last
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

// predicted is scan for members as kube-apiserver writes them, without white
// space and without escapes in their names. It goes on to the member of that
// name, which it has found then, and returns the last one it came to, 0 if it came
// to none.
func (o *Object) predicted(n nodeID, name string) (m nodeID, found bool) {
	at, last := o.nodes[n].at, o.nodes[n].last
	text, base := o.textAt(at)
	pos := int(at-base) + 1
	if last != 0 {
		end := o.endOf(last)
		if pos = int(end-base) + 1; end == 0 || pos > len(text) || text[pos-1] != ',' {
			return 0, false
		}
	}
	for pos < len(text) && text[pos] == '"' && !o.isFull() {
		end := quoteAt(text, pos+1)
		if end+2 >= len(text) || text[end] != '"' || text[end+1] != ':' || text[end+2] <= ' ' {
			break
		}
		at := end + 2
		m = o.link(n, base+offset(pos+1), int32(end-pos-1), base+offset(at))
		if found = end-pos-1 == len(name) && text[pos+1:end] == name; found {
			break
		}
		if pos = o.skipValue(text, at); pos < 0 {
			break
		}
		o.nodes[m].end = base + offset(pos)
		if pos >= len(text) || text[pos] != ',' {
			o.close(n, text, pos, base)
			break
		}
		pos++
	}
	return m, found
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

// scanMembers finds members of the object at n that have no node yet, up to the
// one of that name, and gives them one. It returns the last one of them, or 0 at
// the end and at a syntax error, and whether that is the one.
func (o *Object) scanMembers(n nodeID, name string) (m nodeID, found bool) {
	if m, found = o.predicted(n, name); m != 0 {
		return m, found
	}
	m = o.scan(n)
	return m, m != 0 && o.isNamed(&o.nodes[m], name)
}

// readMembers gives nodes to all members of the object at n, as long as reading
// makes some.
func (o *Object) readMembers(n nodeID) {
	for !o.nodes[n].complete && !o.isFull() {
		o.scanMembers(n, "")
	}
}

// link makes a node the last one in n, for the value that the document has at a
// offset, which is 0 for one that an edit adds. Whoever calls it has asked
// hasRoom, or isFull. It is small enough to be inlined.
func (o *Object) link(n nodeID, name offset, nameLen int32, at offset) nodeID {
	m := nodeID(len(o.nodes))
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

// linkElement is link for an element of the array at n.
func (o *Object) linkElement(n nodeID, at offset) nodeID {
	last := o.nodes[n].last
	m := o.link(n, 0, 0, at)
	if last != 0 {
		o.nodes[m].index = o.nodes[last].index + 1
	}
	return m
}

// hasRoom reports whether there is memory for another node. If there is none, n is
// complete: nobody looks for more in it.
func (o *Object) hasRoom(n nodeID) bool {
	if len(o.nodes) == cap(o.nodes) && !o.growNodes() {
		o.nodes[n].complete = true
		return false
	}
	return true
}

// finish gives nodes to all that is in n.
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
	if last := o.nodes[n].last; last != 0 {
		return int(o.nodes[last].index) + 1
	}
	return 0
}

// isFull reports whether reading makes no more nodes.
func (o *Object) isFull() bool { return len(o.nodes) >= nodesMax }

// member returns the node of the first member of that name of the object at n,
// 0 if there is none or, then full is true, if that would take a node more than
// reading makes.
func (o *Object) member(n nodeID, name string) (m nodeID, full bool) {
	nodes := o.nodes
	if o.index != nil {
		if names := o.index[n]; names != nil {
			return names[name], false
		}
	}
	for m = nodes[n].first; ; m = nodes[m].next {
		for m != 0 && int(nodes[m].nameLen) != len(name) && !nodes[m].escaped { // most are passed without a call
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

// element returns the node of an element of the array at n, 0 if there is none.
// It begins at the one looked up last: reading or editing one element after the
// other must not take quadratic time.
func (o *Object) element(n nodeID, index int) nodeID {
	if index < 0 {
		return 0
	}
	e := o.nodes[n].recent
	if e == 0 || int(o.nodes[e].index) > index {
		e = o.nodes[n].first
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
	o.nodes[n].recent = e
	if e == 0 {
		o.nodes[n].recent = o.nodes[n].last // where the next one who looks too far begins
	}
	return e
}

// nameOf returns the name of the member at m as it is written.
func (o *Object) nameOf(m nodeID) string {
	c := &o.nodes[m]
	return o.view(c.name, c.name+offset(c.nameLen))
}
