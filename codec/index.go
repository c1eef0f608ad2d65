package codec

// indexedMin is how many members an object has at least for an index of them to
// be made. Going over fewer is as fast, and takes no memory.
const indexedMin = 32

// indexBytes is what the index takes for a member: 20 bytes for key and value,
// twice that because a map grows by doubling, and some for its own use.
const indexBytes = 64

// indexMembers makes the members of the object at n, all of which have nodes,
// known by their names, so that reading or editing many of them does not take
// quadratic time. It is called when there are more nodes than reading makes;
// otherwise going over the members is faster. Of several members of a name, the
// first stays. It returns false after a fault.
func (o *Object) indexMembers(n nodeID) bool {
	if o.err != nil || o.index[n] != nil || !o.hasMembers(n, indexedMin) {
		return o.err == nil
	}
	names := make(map[string]nodeID)
	last := nodeID(0)
	for m := o.nodes[n].first; m != 0; m = o.nodes[m].next {
		name := o.unescape(o.nameOf(m))
		if _, twice := names[name]; twice {
			o.unlink(last, m)
			continue
		}
		names[name], last = m, m
	}
	o.nodes[n].last = last
	if o.index == nil {
		o.index = make(map[nodeID]map[string]nodeID)
	}
	o.index[n] = names
	o.indexed += len(names)
	return o.Fits(0)
}

// hasMembers reports whether the object at n has as many members with nodes.
func (o *Object) hasMembers(n nodeID, many int) bool {
	m := o.nodes[n].first
	for ; m != 0 && many > 0; many-- {
		m = o.nodes[m].next
	}
	return many == 0
}

// indexMember adds the member at m to the index, if it is in an object that has
// one.
func (o *Object) indexMember(m nodeID) {
	if names := o.index[o.nodes[m].up]; names != nil {
		names[o.unescape(o.nameOf(m))] = m
		o.indexed++
	}
}

// forgetMembers takes the members of the object at n out of the index.
func (o *Object) forgetMembers(n nodeID) {
	o.indexed -= len(o.index[n])
	delete(o.index, n)
}

// forgetIndex drops the index, because nodes are going to be others.
func (o *Object) forgetIndex() { o.index, o.indexed = nil, 0 }
