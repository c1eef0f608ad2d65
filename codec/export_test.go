package codec

import (
	"fmt"
	"strings"
)

// Checkpoint and Rollback call those of the Review for its Object.
func (o *Object) Checkpoint() { o.checkpoint() }
func (o *Object) Rollback()   { o.rollback() }

// Tree describes the nodes of o, one a line: the name or index, the value if it is no
// object or array, and the effect of edits.
func (o *Object) Tree() string {
	var b strings.Builder
	o.writeTree(&b, rootNode, "document", "")
	return b.String()
}

func (o *Object) writeTree(b *strings.Builder, n nodeID, name, indent string) {
	c := o.nodes[n]
	fmt.Fprintf(b, "%s%s", indent, name)
	if !o.isContainer(n) && c.at != 0 {
		fmt.Fprintf(b, " = %s", o.valueOf(n).JSON())
	}
	switch {
	case c.at == 0:
		b.WriteString(" (removed)")
	case c.original == 0:
		b.WriteString(" (added)")
	case c.original != c.at:
		fmt.Fprintf(b, " (was %s)", Value{object: o, at: c.original}.JSON())
	case c.edited:
		b.WriteString(" (edited)")
	}
	if o.isContainer(n) && c.firstChild == 0 {
		b.WriteString(" (no nodes)")
	} else if o.isContainer(n) && !c.complete {
		b.WriteString(" (some nodes)")
	}
	b.WriteByte('\n')
	for m := c.firstChild; m != 0; m = o.nodes[m].next {
		name := fmt.Sprintf("[%d]", o.nodes[m].index)
		if o.nodes[m].name != 0 {
			name = o.nameOf(m)
		}
		o.writeTree(b, m, name, indent+"  ")
	}
}
