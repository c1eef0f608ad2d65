package codec

import "strings"

// put sets the value of n to json, or removes n if json is "". If n is 0, it adds a
// member to parent. It first makes nodes for all members of parent, because the next one
// cannot be found in the text behind a value that was replaced. It removes other members
// of the same name.
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
	if o.nodes[n].firstChild != 0 {
		o.detachAll(n)
	}
	e := &o.nodes[n]
	*e = node{name: e.name, nameLen: e.nameLen, index: e.index, escaped: e.escaped, original: e.original, parent: e.parent, next: e.next}
	o.setNode(n, json)
	return n
}

// detachAll marks all nodes in n as detached from the document, before n gets another
// value. It first makes nodes for the rest of n, because a loop may be iterating over
// it.
func (o *Object) detachAll(n nodeID) {
	o.finish(n)
	for c := o.nodes[n].firstChild; c != 0; c = o.nodes[c].next {
		o.nodes[c].detached = true
	}
	o.forgetMembers(n)
}

// addMember adds a member at the end of parent.
func (o *Object) addMember(parent nodeID, name, json string) nodeID {
	if json == "" || !o.hasRoom(parent) {
		return 0
	}
	quoted := o.quote(name)
	n := o.link(parent, o.internText(quoted)+1, int32(len(quoted)-2), 0)
	o.nodes[n].escaped = strings.IndexByte(quoted, '\\') >= 0
	o.indexMember(n)
	o.setNode(n, json)
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
	o.setNode(added, json)
}

// setNode sets the value of n to json, "" for none, and marks the nodes above as edited.
func (o *Object) setNode(n nodeID, json string) {
	if json != "" {
		at := o.internText(json)
		o.nodes[n].at, o.nodes[n].end = at, at+offset(len(json))
		o.nodes[n].complete = len(json) == len("{}")
	}
	for up := o.nodes[n].parent; up != 0 && !o.nodes[up].edited; up = o.nodes[up].parent {
		o.nodes[up].edited = true
	}
	o.changes++
}

// unlinkOthers removes the nodes behind the member at n that have its name.
func (o *Object) unlinkOthers(n nodeID) {
	name, last := o.unescape(o.nameOf(n)), n
	for next := o.nodes[n].next; next != 0; next = o.nodes[next].next {
		if o.isNamed(&o.nodes[next], name) {
			o.unlink(last, next)
			continue
		}
		last = next
	}
	o.nodes[o.nodes[n].parent].lastChild = last
}

// unlink removes node n, which follows another one, from the tree.
func (o *Object) unlink(behind, n nodeID) {
	o.nodes[behind].next = o.nodes[n].next
	o.nodes[n].detached = true
}

// rewriteArray replaces gone elements of the array at n, beginning with index from,
// by json, or removes them if json is "". Every later index changes, so the array
// gets a new text.
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
	o.put(o.nodes[n].parent, n, "", o.closeText(start))
}
