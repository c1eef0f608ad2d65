package codec

// indexedMin is the smallest number of members for which an object gets an index. A
// search through fewer is as fast, and takes no memory.
const indexedMin = 32

// indexBytes is the memory that the index takes for a member: 20 bytes for key and
// value, twice that because a map grows by doubling, and some overhead.
const indexBytes = 64

// indexMembers makes an index by name of the members of the object at n, so that
// reading or editing many of them does not take quadratic time. All members must have
// nodes. It is called when the Object has nodesMax nodes; with fewer, going over the
// members is faster. If several members have the same name, the first stays. It returns
// false after an error.
func (o *Object) indexMembers(n nodeID) bool {
	if o.err != nil || o.index[n] != nil || !o.hasMembers(n, indexedMin) {
		return o.err == nil
	}
	names := make(map[string]nodeID)
	last := nodeID(0)
	for m := o.nodes[n].firstChild; m != 0; m = o.nodes[m].next {
		name := o.unescape(o.nameOf(m))
		if _, twice := names[name]; twice {
			o.unlink(last, m)
			continue
		}
		names[name], last = m, m
	}
	o.nodes[n].lastChild = last
	if o.index == nil {
		o.index = make(map[nodeID]map[string]nodeID)
	}
	o.index[n] = names
	o.indexed += len(names)
	return o.Fits(0)
}

// hasMembers reports whether at least that many members of the object at n have nodes.
func (o *Object) hasMembers(n nodeID, many int) bool {
	m := o.nodes[n].firstChild
	for ; m != 0 && many > 0; many-- {
		m = o.nodes[m].next
	}
	return many == 0
}

// indexMember adds the member at m to the index of its object, if there is one.
func (o *Object) indexMember(m nodeID) {
	if names := o.index[o.nodes[m].parent]; names != nil {
		names[o.unescape(o.nameOf(m))] = m
		o.indexed++
	}
}

// forgetMembers drops the index of the object at n.
func (o *Object) forgetMembers(n nodeID) {
	o.indexed -= len(o.index[n])
	delete(o.index, n)
}

// forgetIndex drops all indexes, before the nodes are replaced.
func (o *Object) forgetIndex() { o.index, o.indexed = nil, 0 }
