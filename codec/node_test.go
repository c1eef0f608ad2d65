package codec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestResetForgets reads one document after the other with the same Object.
func TestResetForgets(t *testing.T) {
	f := func(first, second, want string) {
		t.Helper()
		var o Object
		o.Reset([]byte(first))
		_ = o.Root().Len() + o.Get("a").Len() + o.Get("0").Len()
		o.Set("1", "b")
		o.Reset([]byte(second))
		if got := o.Get("a").JSON(); got != want || o.Err() != nil {
			t.Errorf("%s after %s: got %q, %v, want %q", second, first, got, o.Err(), want)
		}
		if got := o.Root().JSON(); got != second || o.Changes() != 0 {
			t.Errorf("%s after %s: got %s with %d changes", second, first, got, o.Changes())
		}
		for edit := range o.Edits() {
			t.Errorf("%s after %s: %s is edited", second, first, edit.Pointer)
		}
	}
	f(`{}`, `{"a":1}`, "1") // an empty object leaves no items in the index
	f(`[]`, `{"a":1}`, "1")
	f(`{"a":{}}`, `{"a":{"b":1}}`, `{"b":1}`)
	f(`{"a":1}`, `{}`, "")
	f(`{"a":1}`, `{"a":2}`, "2")
	f(`{"b":1}`, `{"a":2}`, "2")
	f(`{"a":[1,2]}`, `{"a":[]}`, "[]")
	f(`{"a":`, `{"a":2}`, "2")
}

// TestIndexOverflow reads objects and arrays at the limits of the index, once
// as it fills and once when it is full.
func TestIndexOverflow(t *testing.T) {
	f := func(n int) {
		t.Helper()
		var text []byte
		text = append(text, `{"first":{"a":1},"array":[`...)
		for i := range n {
			text = fmt.Appendf(text, "%d,", i)
		}
		text = append(text[:len(text)-1], `],"object":{`...)
		for i := range n {
			text = fmt.Appendf(text, `"m%d":{"x":%d},`, i, i)
		}
		text = append(text[:len(text)-1], `},"last":{"a":2}}`...)
		var o Object
		o.Reset(text)
		for range 2 {
			checkOverflow(t, &o, n)
		}
		if o.Err() != nil {
			t.Errorf("%d: %v", n, o.Err())
		}
		if got := len(o.nodes); got > nodesMax+n { // looking elements up by their index makes nodes in any case
			t.Errorf("%d: there are %d nodes, want at most %d", n, got, nodesMax+n)
		}
	}
	f(1)
	for _, limit := range []int{nodesMax / 2, nodesMax} {
		for n := limit - 5; n <= limit+2; n++ {
			f(n)
		}
	}
	f(3 * nodesMax)
}

func checkOverflow(t *testing.T, o *Object, n int) {
	t.Helper()
	array, object := o.Get("array"), o.Get("object")
	if array.Len() != n || object.Len() != n || o.Root().Len() != 4 {
		t.Errorf("%d: got lengths %d, %d, %d", n, array.Len(), object.Len(), o.Root().Len())
	}
	for _, i := range []int{0, n / 2, n - 1, n} {
		want := ""
		if i < n {
			want = strconv.Itoa(i)
		}
		if got := array.Get(Index(i)).Scalar(); got != want {
			t.Errorf("%d: element %d: got %q", n, i, got)
		}
		if got := object.Get("m"+Index(i), "x").Scalar(); got != want {
			t.Errorf("%d: member %d: got %q", n, i, got)
		}
	}
	next := 0
	for name, member := range object.Members() {
		if got := member.Get("x").Scalar(); name != "m"+got || got != strconv.Itoa(next) {
			t.Errorf("%d: member %d: got %q in %q", n, next, got, name)
			return
		}
		next++
	}
	if first, last := o.Get("first", "a").Scalar(), o.Get("last", "a").Scalar(); first != "1" || last != "2" {
		t.Errorf("%d: got %q and %q", n, first, last)
	}
}

// TestKnownInPart reads a part of an object, and then a later part: the rest of
// the object gets nodes, up to nodesMax.
func TestKnownInPart(t *testing.T) {
	f := func(n int) {
		t.Helper()
		text := []byte(`{"list":[{"a":{"b":1,"c":[{"d":2,"e":3},4]}`)
		for i := range n {
			text = fmt.Appendf(text, `,"m%d":{"x":%d}`, i, i)
		}
		text = append(text, `},{"a":5}],"last":6}`...)
		var o Object
		o.Reset(text)
		var got []string
		for _, path := range [...]string{"list 0 a c 0 d", "list 1 a", "last", "list 0 a b", "list 0 a c 1", "list 0 a c 0 e"} {
			got = append(got, o.Get(strings.Fields(path)...).Scalar())
		}
		if want := []string{"2", "5", "6", "1", "4", "3"}; !slices.Equal(got, want) || o.Err() != nil {
			t.Errorf("%d: got %q and %v, want %q", n, got, o.Err(), want)
		}
		if n > 0 && o.Get("list", "0", "m"+Index(n-1), "x").Scalar() != Index(n-1) {
			t.Errorf("%d: the last member is lost", n)
		}
		if len(o.nodes) > nodesMax+2 { // elements that are looked up by their index get nodes in any case
			t.Errorf("%d: there are %d nodes, want at most %d", n, len(o.nodes), nodesMax+2)
		}
	}
	for _, n := range []int{0, 1, 2, nodesMax - 20, nodesMax - 10, nodesMax - 1, nodesMax, 3 * nodesMax} {
		f(n)
	}

	var o Object
	o.Reset([]byte(`{"list":[{"a":1,"b"},{"a":2}]}`))
	if o.Get("list", "0", "a").Scalar() != "1" || o.Err() != nil {
		t.Error("what is in front of a fault cannot be read:", o.Err())
	}
	if o.Get("list", "1", "a"); o.Err() == nil {
		t.Error("got no error for a member without a value")
	}
}

// TestWalksInTurn steps through objects in turns, also beyond nodesMax.
func TestWalksInTurn(t *testing.T) {
	const object = `{"a":1,"b":2,"c":3,"d":4,"e":5}`
	f := func(n int) {
		t.Helper()
		text := []byte{'{'}
		for i := range n {
			text = fmt.Appendf(text, `"%d":%s,`, i, object)
		}
		text[len(text)-1] = '}'
		var o Object
		o.Reset(text)
		var all []nodeItems
		rest := make([]textItems, n)
		var seen []string
		for _, member := range o.Root().Members() {
			all, seen = append(all, member.nodeItems()), append(seen, "")
		}
		for range 6 { // one step in each object in turn
			for i := range all {
				if all[i].next() {
					seen[i] += o.nameOf(all[i].node)
				} else if rest[i].object == nil {
					rest[i] = all[i].rest()
				}
				if rest[i].next() {
					seen[i] += rest[i].written()
				}
			}
		}
		for i := range n {
			member := o.Get(Index(i))
			if seen[i] != "abcde" || member.JSON() != object || member.Len() != 5 || member.Get("d").JSON() != "4" {
				t.Errorf("%d: got %q, %s with %d members", n, seen[i], member.JSON(), member.Len())
			}
		}
		if o.Err() != nil {
			t.Error(o.Err())
		}
		if len(o.nodes) > nodesMax {
			t.Errorf("%d: there are %d nodes, want at most %d", n, len(o.nodes), nodesMax)
		}
	}
	for _, n := range []int{1, 2, nodesMax / 6, nodesMax/6 + 1, nodesMax / 3, nodesMax - 2, nodesMax - 1, nodesMax} {
		f(n)
	}
}

// TestTextMax tests how long texts may be. The bytes between the brackets are
// never touched, and take no memory.
func TestTextMax(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and says nothing new with poisoned memory")
	}
	memory := make([]byte, textMax+1)
	text := func(length int) []byte {
		memory[0], memory[length-1] = '[', ']'
		return memory[:length]
	}
	var o Object
	for _, length := range []int{textMax - 1, textMax} {
		if o.Reset(text(length)); o.Err() != nil || o.Root().Kind() != KindArray {
			t.Errorf("%d bytes: got %v", length, o.Err())
		}
	}
	const long = `at byte 536870912: got "]", want the end of the text, after 512 MiB at most`
	if o.Reset(text(textMax + 1)); o.Err() == nil || !strings.Contains(o.Err().Error(), long) || o.Root().Exists() {
		t.Errorf("%d bytes: got %v", textMax+1, o.Err())
	}
	if err := new(Review).Decode(text(textMax + 1)); err == nil || !strings.Contains(err.Error(), long) {
		t.Errorf("Decode: got %v", err)
	}
}

// TestElementsInTurn looks elements up one after the other. Each search starts at
// the element before, or the loop would take quadratic time.
func TestElementsInTurn(t *testing.T) {
	var o Object
	o.Reset([]byte(`{"list":[0,1,2,3,4,5]}`))
	list := o.Get("list").currentNode()
	for i := range 8 {
		_ = o.Get("list", Index(i)).Exists()
		if got, want := int(o.nodes[o.nodes[list].recentChild].index), min(i, 5); got != want {
			t.Errorf("behind element %d: the next look-up begins at %d, want %d", i, got, want)
		}
	}
}

// TestNeighbour puts the text of an edit right behind the document in memory:
// it must not be taken for a part of the document.
func TestNeighbour(t *testing.T) {
	memory := []byte(`{"a":0,"b":[3]}{"x":{"y":1}}`)
	document, edit := memory[:15], memory[15:]
	var o Object
	o.Reset(document)
	o.Set(stringOf(edit), "a")
	if got := o.Get("a", "x", "y").JSON(); got != "1" || o.Err() != nil {
		t.Errorf("got %q, %v, want 1", got, o.Err())
	}
	if got, want := o.Root().JSON(), `{"a":{"x":{"y":1}},"b":[3]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
