package codec

import "strings"

// put makes json the value of n, "" to remove it. If n is 0 it becomes a new
// member of parent. All of parent has nodes then, so that the end of what was
// replaced need not be known, and only one member of that name.
func (o *Object) put(parent, n nodeID, name, json string) nodeID {
	if o.finish(parent); o.err != nil {
		return n
	}
	isArray := o.isArray(parent)
	if !isArray && o.isFull() && !o.indexMembers(parent) {
		return n
	}
	if n == 0 {
		return o.addMember(parent, name, json)
	}
	if !isArray && o.index[parent] == nil {
		o.unlinkOthers(n)
	}
	if o.nodes[n].first != 0 {
		o.detachAll(n)
	}
	e := &o.nodes[n]
	*e = node{name: e.name, nameLen: e.nameLen, index: e.index, escaped: e.escaped, was: e.was, up: e.up, next: e.next}
	o.change(n, json)
	return n
}

// detachAll makes what is in n no part of the document any more, before n gets
// another value. It gives nodes to all of it, for a loop that goes over it.
func (o *Object) detachAll(n nodeID) {
	o.finish(n)
	for c := o.nodes[n].first; c != 0; c = o.nodes[c].next {
		o.nodes[c].detached = true
	}
	o.forgetMembers(n)
}

// addMember adds a member behind all that is in parent.
func (o *Object) addMember(parent nodeID, name, json string) nodeID {
	if json == "" || !o.hasRoom(parent) {
		return 0
	}
	quoted := o.quote(name)
	n := o.link(parent, o.keep(quoted)+1, int32(len(quoted)-2), 0)
	o.nodes[n].escaped = strings.IndexByte(quoted, '\\') >= 0
	o.indexMember(n)
	o.change(n, json)
	return n
}

// addElement adds an element at the end of the array at n.
func (o *Object) addElement(n nodeID, json string) {
	if o.finish(n); o.err != nil || !o.hasRoom(n) {
		return
	}
	index := o.count(n)
	added := o.link(n, 0, 0, 0)
	o.nodes[added].index = int32(index)
	o.change(added, json)
}

// change makes json the text of n.
func (o *Object) change(n nodeID, json string) {
	if json != "" {
		at := o.keep(json)
		o.nodes[n].at, o.nodes[n].end = at, at+offset(len(json))
		o.nodes[n].complete = len(json) == len("{}")
	}
	for up := o.nodes[n].up; up != 0 && !o.nodes[up].edited; up = o.nodes[up].up {
		o.nodes[up].edited = true
	}
	o.changes++
}

// unlinkOthers takes out what has the same name as the member at n, behind it.
func (o *Object) unlinkOthers(n nodeID) {
	name, last := o.unescape(o.nameOf(n)), n
	for next := o.nodes[n].next; next != 0; next = o.nodes[next].next {
		if o.isNamed(&o.nodes[next], name) {
			o.unlink(last, next)
			continue
		}
		last = next
	}
	o.nodes[o.nodes[n].up].last = last
}

// unlink takes out a node, which comes behind another one.
func (o *Object) unlink(behind, n nodeID) {
	o.nodes[behind].next = o.nodes[n].next
	o.nodes[n].detached = true
}

// rewriteArray replaces as many elements as are to go, from an index on, of the
// array at n by json, if that is not empty. Every later index changes, so the
// array gets a new text.
func (o *Object) rewriteArray(n nodeID, from, gone int, json string) {
	v := o.valueOf(n)
	if n == rootNode {
		v.refuse(nil, "cannot insert into or remove from an array that is the document itself")
		return
	}
	if !o.arenaFits(len(v.source()) + len(json) + len("[],")) {
		return
	}
	start, capacity := len(o.arena), cap(o.arena)
	o.arena = append(o.arena, '[')
	put := func() {
		if len(o.arena) > start+1 {
			o.arena = append(o.arena, ',')
		}
	}
	for i, element := range v.Elements() {
		if i == from && json != "" {
			put()
			o.arena = append(o.arena, json...)
		}
		if i < from || i >= from+gone {
			put()
			o.arena = element.AppendJSON(o.arena)
		}
	}
	o.arena = append(o.arena, ']')
	o.grown(capacity)
	o.put(o.nodes[n].up, n, "", o.kept(start))
}
