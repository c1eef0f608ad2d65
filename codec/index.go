package codec

// A memberName is a member of the object at a node.
type memberName struct {
	in   int32
	name string
}

// indexBytes is what the map takes for a member: 28 bytes for key and value, twice
// that because it grows by doubling, and some for its own use.
const indexBytes = 64

// indexMembers makes the members of the object at n, all of which have nodes,
// known by their names, so that reading or editing many of them does not take
// quadratic time. It is called for objects that have more nodes than reading
// makes; for others, going over the members is faster. Of several members of a
// name, the first stays.
func (o *Object) indexMembers(n int32) {
	if o.nodes[n].indexed || o.err != nil {
		return
	}
	if o.index == nil {
		o.index = make(map[memberName]int32)
	}
	last := int32(0)
	for m := o.nodes[n].first; m != 0; m = o.nodes[m].next {
		key := memberName{n, o.unescape(o.nameOf(m))}
		if _, twice := o.index[key]; twice {
			o.nodes[last].next = o.nodes[m].next
			continue
		}
		o.index[key], last = m, m
	}
	o.nodes[n].last, o.nodes[n].indexed = last, true
	o.Fits(0)
}

// forgetMembers takes the members of the object at n out of the index, before n
// gets another value.
func (o *Object) forgetMembers(n int32) {
	for m := o.nodes[n].first; m != 0; m = o.nodes[m].next {
		delete(o.index, memberName{n, o.unescape(o.nameOf(m))})
	}
}

// forgetIndex drops the index, because nodes are going to be others.
func (o *Object) forgetIndex() {
	if o.index == nil {
		return
	}
	o.index = nil
	for n := range o.nodes {
		o.nodes[n].indexed = false
	}
}
