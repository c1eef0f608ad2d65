package codec

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bytedance/sonic/ast"
	"github.com/bytedance/sonic/unquote"
)

// arenaBytesMax is the largest arena that an Object retains for its next use. A
// plugin's edits to a Pod take a few hundred bytes; the memory for one request that
// rewrites a large array must not be held as long as the process lives.
const arenaBytesMax = 64 << 10

// Object is a JSON document with edits. It reads the document lazily from its bytes,
// and never writes or copies them: edits are stored apart, and reads see them. The zero
// Object is an empty document; Reset sets its bytes.
//
// An Object may be reset and used again, and then allocates nothing. It must not be
// used by two goroutines at once, even for reading.
type Object struct {
	text       string          // the document, without white space around it
	arena      []byte          // the texts of edits, each followed by a space
	isReadOnly bool            // edits are errors
	nodes      []node          // the tree of members and elements; see node.go
	err        error           // the first error
	plain      []byte          // arena of strings whose escapes are undone
	views      views           // for the build tag poison
	ctx        context.Context // ends loops over members and elements; nil for none

	index    map[nodeID]map[string]nodeID // the members of large objects by name, nil if there are none; see node_index.go
	indexed  int                          // how many members are in the index
	found    ast.Node                     // sonic's result; as a local variable it would be on the heap
	elements elementScan
	changes  int
	pointer  []byte // of the current place in Edits

	saved        []node // the nodes at the checkpoint
	savedChanges int
}

// SyntaxError says where text that was read is not JSON.
type SyntaxError struct {
	Offset int    // bytes from the start of the document
	Want   string // what is expected there
	Got    string // the first bytes of the text there
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid JSON at byte %d: got %s, want %s", e.Offset, e.Got, e.Want)
}

// Reset makes raw the document of o, without edits and errors. o uses raw until the
// next Reset; the caller must not change it until then.
func (o *Object) Reset(raw []byte) {
	o.reset("")
	o.reset(stringOf(o.views.copyOf(raw)))
}

func (o *Object) reset(text string) {
	if o.text != "" || o.err != nil {
		o.clear()
	}
	start := skipSpace(text, 0)
	end := len(text)
	for end > start && isSpace(text[end-1]) {
		end--
	}
	o.text = text[start:end]
	if len(o.text) > textMax {
		o.fail(o.text, textMax, "the end of the text, after 512 MiB at most")
		o.text = ""
	}
}

// open makes the object at the start of rest the document of o, and finds its end by
// going over its members. The nodes that this makes save later reads the work. If not
// all members get nodes, ok is false.
func (o *Object) open(rest string) (text string, ok bool) {
	o.reset("")
	if !strings.HasPrefix(rest, "{") {
		return "", false
	}
	o.text = rest
	n := o.root()
	o.readMembers(n)
	end := o.nodes[n].end
	if end == 0 {
		o.reset("")
		return "", false
	}
	o.text = rest[:end-1]
	return o.text, true
}

// setText makes text the document of o, unless open did so already.
func (o *Object) setText(text string) {
	if len(o.text) != len(text) || !sameStart(o.text, text) {
		o.reset("")
		o.text = text
	}
}

// clear resets everything but the text.
func (o *Object) clear() {
	o.err = nil
	o.views.overwrite()
	o.changes, o.savedChanges = 0, 0
	o.found = ast.Node{}
	o.elements = elementScan{}
	o.forgetIndex()
	o.nodes = resetNodes(o.nodes)
	o.saved = resetNodes(o.saved)
	o.pointer = resetArena(o.pointer)
	o.plain = resetArena(o.plain)
	o.arena = resetArena(o.arena)
}

func resetNodes(nodes []node) []node {
	if cap(nodes) > 2*nodesMax { // append may have doubled the capacity
		return nil
	}
	return nodes[:0]
}

func resetArena(b []byte) []byte {
	if b = poison(b); cap(b) > arenaBytesMax {
		return nil
	}
	return b[:0]
}

// Root returns the whole document.
func (o *Object) Root() Value {
	if o.text == "" {
		return Value{object: o}
	}
	return o.valueOf(o.root())
}

// valueOf returns the value at a node, a missing value for 0.
func (o *Object) valueOf(n nodeID) Value {
	return Value{object: o, at: o.nodes[n].at, node: n}
}

// Get returns the value at a path, as Value.Get does.
func (o *Object) Get(path ...string) Value { return o.Root().Get(path...) }

// TextLen returns the number of bytes of the document and of the text of its edits.
func (o *Object) TextLen() int { return len(o.text) + len(o.arena) }

// Err returns the first error: a *SyntaxError if text that was read is not JSON, an
// *EditError if an edit could not be made, a *SizeError if a limit was exceeded, a
// *ContextError if the context ended, ErrNoMemory, or an error that a plugin passed to
// Value.Refuse. After an error, reads return missing values and edits do nothing.
func (o *Object) Err() error { return o.err }

// fail records a syntax error at text[pos], unless there is an error already, and
// returns -1.
func (o *Object) fail(text string, pos int, want string) int {
	if o.err != nil {
		return -1
	}
	got := "the end of the text"
	if pos < len(text) {
		got = fmt.Sprintf("%q", text[pos:min(pos+16, len(text))])
	}
	offset := offsetIn(o.text, text)
	if offset >= 0 {
		offset += pos
	}
	o.err = &SyntaxError{Offset: offset, Want: want, Got: got}
	return -1
}

// unescape returns the plain text of a string. raw is the text between its quotes. The
// result is a view of raw if there are no escapes in it.
func (o *Object) unescape(raw string) string {
	if isPlain(raw) {
		return o.bounded(raw)
	}
	escaped, ascii := false, true
	for i := range len(raw) {
		switch c := raw[i]; {
		case c == '\\':
			escaped = true
		case c >= utf8.RuneSelf:
			ascii = false
		case c < ' ':
			o.fail(raw, i, "no control character in a string")
			return ""
		}
	}
	if !ascii && !utf8.ValidString(raw) {
		o.fail(raw, 0, "a string in UTF-8")
		return ""
	}
	if !escaped {
		return o.bounded(raw)
	}
	start := len(o.plain)
	if len(raw) > cap(o.plain)-start && !o.mayGrow(cap(o.plain), len(raw)) {
		return ""
	}
	o.plain = append(o.plain, raw...) // the result is not longer than raw
	o.views.add(o.plain)
	plain := o.plain[start:start:len(o.plain)]
	if code := unquote.IntoBytes(raw, &plain); code != 0 {
		o.fail(raw, strings.IndexByte(raw, '\\'), "valid escapes in a string")
		return ""
	}
	o.plain = o.plain[:start+len(plain)]
	return o.bounded(stringOf(plain))
}
