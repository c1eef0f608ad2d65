package codec

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// TestMemoryRetained makes an Object grow, and checks how much memory it retains.
func TestMemoryRetained(t *testing.T) {
	var r Review
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":{"a":[` +
		strings.Repeat(`"\u0061",`, 2*nodesMax) + `"\u0061"]}}}`
	long := strings.Repeat("x", arenaBytesMax)
	for range 2 {
		if err := r.Decode([]byte(body)); err != nil {
			t.Fatal(err)
		}
		for i, element := range r.Object.Get("a").Elements() {
			if element.String() != "a" {
				t.Fatalf("element %d is %q", i, element.String())
			}
			r.Object.Set("0", "a", Index(i))
		}
		r.Object.SetString("\n"+long, "b")
		if got := r.Object.Get("b").String(); len(got) != len(long)+1 {
			t.Fatalf("got %d bytes", len(got))
		}
		r.Object.Set("1", long)
		for range r.Object.Edits() {
			continue
		}
		r.Response.Patch = append(r.Response.Patch, long...)
		r.Response.Patch = append(r.Response.Patch, '1')
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
	}
	r.reset()
	o := &r.Object
	for name, kept := range map[string]int{
		"arena": cap(o.arena), "plain": cap(o.plain), "pointer": cap(o.pointer), "patch": cap(r.Response.Patch),
	} {
		if kept > arenaBytesMax {
			t.Errorf("%s keeps %d bytes, want at most %d", name, kept, arenaBytesMax)
		}
	}
	if cap(o.nodes) > 2*nodesMax {
		t.Errorf("keeps %d nodes", cap(o.nodes))
	}
}

// TestLookupsKeepNothing looks up members whose names have escapes: repeated lookups must
// not take more and more memory.
func TestLookupsKeepNothing(t *testing.T) {
	var o Object
	o.Reset([]byte(`{"l\u0061bel":{"n\u0061me":"v\u0061lue"}}`))
	for range 1000 {
		if !o.Get("label", "name").EqualString("value") {
			t.Fatal("not there")
		}
	}
	if len(o.plain) != 0 {
		t.Errorf("keeps %d bytes", len(o.plain))
	}
}

func TestNodeBytes(t *testing.T) {
	if size := int(reflect.TypeFor[node]().Size()); size != nodeBytes {
		t.Errorf("got %d, want %d", nodeBytes, size)
	}
}

// TestFits asks for all memory that is left, for one byte less and for one byte
// more.
func TestFits(t *testing.T) {
	for _, more := range []int{-1, 0, 1} {
		var o Object
		o.Reset([]byte(`{"a":1}`))
		o.SetString("text", "a")
		left := MemoryMax - o.memory()
		if got := o.Fits(left + more); got != (more <= 0) || got != (o.Err() == nil) {
			t.Errorf("%+d bytes: got %v, %v", more, got, o.Err())
		}
		if o.Reset([]byte(`{}`)); o.Err() != nil {
			t.Errorf("after Reset: got %v", o.Err())
		}
	}
}

// TestStringMax reads strings and names of members of the maximum length, one byte
// shorter and one byte longer: plain, not ASCII, and with an escape.
func TestStringMax(t *testing.T) {
	for _, more := range []int{-1, 0, 1} {
		text := strings.Repeat("a", StringMax+more-2)
		for escaped, want := range map[string]string{text + "bc": text + "bc", text + "é": text + "é", text + `\u0062c`: text + "bc"} {
			read := func(what, document string, read func(*Object) string) {
				var o Object
				o.Reset([]byte(document))
				got := read(&o)
				size, isLong := errors.AsType[*SizeError](o.Err())
				if more <= 0 && (got != want || o.Err() != nil) || more > 0 && (got != "" || !isLong || size.Max != StringMax) {
					t.Errorf("%s, %+d bytes, %.3q...: got %d bytes, %v", what, more, escaped[len(text):], len(got), o.Err())
				}
			}
			read("string", `["`+escaped+`"]`, func(o *Object) string { return o.Get("0").String() })
			read("name", `{"`+escaped+`":1}`, func(o *Object) (name string) {
				for name = range o.Root().Members() {
				}
				return name
			})
		}
	}
}

// A granter has memory as long as it is open, and counts who asks.
type granter struct {
	context.Context
	asked  int
	values int // of the last GrantValues
	open   bool
}

func (g *granter) GrantMemory() bool { g.asked++; return g.open }

func (g *granter) GrantValues(bytes int) bool { g.values = bytes; return g.open }

func (g *granter) Value(key any) any {
	if _, ok := key.(MemoryKey); ok {
		return g
	}
	return g.Context.Value(key)
}

// TestMemoryGranter takes the memory that needs no grant, one byte less and one byte
// more. Only the last one asks the MemoryGranter.
func TestMemoryGranter(t *testing.T) {
	for _, more := range []int{-1, 0, 1} {
		for _, open := range []bool{true, false} {
			var r Review
			if err := r.Decode([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",` +
				`"object":{"a":1}}}`)); err != nil {
				t.Fatal(err)
			}
			g := &granter{Context: t.Context(), open: open}
			derived, cancel := context.WithCancel(g) // as that of a plugin with a timeout
			defer cancel()
			r.SetContext(derived)
			got := r.Object.Fits(memoryUsual - r.Object.memory() + more)
			if want := more <= 0 || open; got != want || errors.Is(r.Err(), ErrNoMemory) == want || g.asked != max(more, 0) {
				t.Errorf("%+d bytes, %v: got %v, %v, asked %d times", more, open, got, r.Err(), g.asked)
			}
		}
	}
	var o Object
	o.Reset([]byte(`[` + strings.Repeat("{},", memoryUsual) + `{}]`))
	g := &granter{Context: t.Context()}
	o.ctx = g
	for i := range 2 * nodesMax {
		o.SetString("x", Index(i), "name")
	}
	if !errors.Is(o.Err(), ErrNoMemory) || g.asked != 1 {
		t.Errorf("edits of many elements: got %v, asked %d times", o.Err(), g.asked)
	}
	o.Reset([]byte(`[` + strings.Repeat("{},", 1000) + `{}]`))
	if o.ctx = g; o.Root().FitsDecoded() || !errors.Is(o.Err(), ErrNoMemory) || g.asked != 2 {
		t.Errorf("decoding a list: got %v, asked %d times", o.Err(), g.asked)
	}
}

// TestMemoryMax takes memory with every operation of an Object until the Object
// reports that it is too much. The Object must not exceed the limit by much: it counts
// composed values and text with edits only after they are made.
func TestMemoryMax(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and says nothing new with poisoned memory")
	}
	const many = 3_000_000 // elements, which as nodes are more than may be
	numbers := "[" + strings.Repeat("0,", many) + "0]"
	escapes := `["` + strings.Repeat(`\u0061`, 1<<18) + `"]`
	element := func(i int) string { return Index(i % many) }
	f := func(name, text string, do func(o *Object, i int)) {
		t.Run(name, func(t *testing.T) {
			var o Object
			o.Reset([]byte(text))
			for i := 0; o.Err() == nil; i++ {
				if do(&o, i); i > 2*many || o.memory() > MemoryMax+5<<20 {
					t.Fatalf("takes %d bytes after %d times", o.memory(), i)
				}
			}
			size, ok := errors.AsType[*SizeError](o.Err())
			if !ok || size.Max != MemoryMax || o.memory() < MemoryMax/2 {
				t.Errorf("takes %d bytes, got %v", o.memory(), o.Err())
			}
			before := o.memory()
			for i := range 100 {
				do(&o, i+many/2)
			}
			if o.memory() > max(before, MemoryMax)+5<<20 {
				t.Errorf("takes %d bytes afterwards, before %d", o.memory(), before)
			}
			if o.Reset([]byte(text)); o.Err() != nil || o.memory() > 4*arenaBytesMax+4*nodesMax*nodeBytes {
				t.Errorf("keeps %d bytes, %v", o.memory(), o.Err())
			}
		})
	}
	f("elements by index", numbers, func(o *Object, i int) { o.Get(element(i)) })
	f("elements of many arrays", "["+strings.Repeat("[0,0],", many/2)+"0]", func(o *Object, i int) { o.Get(element(i), "1") })
	f("one look at the last", numbers, func(o *Object, _ int) { o.Get(element(many - 1)) })
	f("edits", "["+strings.Repeat("{},", many/4)+"0]", func(o *Object, i int) { o.Set("1", Index(i%(many/4)), "a") })
	f("an edit among many members", "{"+strings.Repeat(`"a":0,`, many)+`"b":0}`, func(o *Object, _ int) { o.Set("1", "c") })
	f("texts", `{}`, func(o *Object, i int) { o.SetString(strings.Repeat("x", 1<<20)+Index(i), "a") })
	f("names", `{}`, func(o *Object, i int) { o.Set("1", strings.Repeat("x", 1<<20)+Index(i)) })
	f("appended", `{"a":[]}`, func(o *Object, _ int) { o.Append("1", "a") })
	f("removed", `{"a":`+numbers[:20_001]+`0]}`, func(o *Object, _ int) { o.Remove("a", "1") })
	f("removed after a long one", `{"a":["`+strings.Repeat("x", 20<<20)+`",0,0,0,0,0]}`, func(o *Object, _ int) { o.Remove("a", "1") })
	f("inserted", `{"a":`+numbers[:20_001]+`0]}`, func(o *Object, _ int) { o.Add("1", "a", "1") })
	f("composed", `{}`, func(o *Object, _ int) {
		o.Set(o.Compose(func(dst []byte) []byte { return append(dst, numbers[:1<<20]+"]"...) }), "a")
	})
	f("text with edits", `{"a":{"b":1},"c":`+numbers[:1<<20]+`]}`, func(o *Object, _ int) {
		o.Set("2", "a", "b")
		o.Root().JSON()
	})
	f("escapes", escapes, func(o *Object, _ int) { _ = o.Get("0").String() })
	f("one checkpoint", numbers, func(o *Object, _ int) {
		o.Get(element(800_000))
		o.checkpoint()
	})
	f("checkpoints", numbers, func(o *Object, i int) {
		if o.Get(element(i)); i%10_000 == 0 {
			o.checkpoint()
		}
	})
}

// TestIndexFits edits an object with an index that takes all the memory there is, one
// byte less and one byte more.
func TestIndexFits(t *testing.T) {
	var text strings.Builder
	for i := range 2 * nodesMax {
		fmt.Fprintf(&text, `,"%d":0`, i)
	}
	edited := func(arena int) *Object {
		var o Object
		o.Reset([]byte("{" + text.String()[1:] + "}"))
		o.arena = make([]byte, 0, arena)
		o.Set("1", "0")
		return &o
	}
	left := MemoryMax - edited(1<<10).memory() + 1<<10
	for _, more := range []int{-1, 0, 1} {
		o := edited(left + more)
		if size, isLarge := errors.AsType[*SizeError](o.Err()); o.memory() != MemoryMax+more || isLarge != (more > 0) ||
			isLarge && size.Max != MemoryMax {
			t.Errorf("%+d bytes: takes %d bytes, got %v", more, o.memory(), o.Err())
		}
	}
}

// TestMemoryMaxIsEnough tests the case in the comment of MemoryMax: two plugins
// change each container of the largest Pod that can be stored, and one of them
// has a checkpoint.
func TestMemoryMaxIsEnough(t *testing.T) {
	const most = 34_000
	container := `{"name":"abcd","image":"b","resources":{},"terminationMessagePath":"/dev/termination-log",` +
		`"terminationMessagePolicy":"File",` +
		`"imagePullPolicy":"IfNotPresent"}`
	var o Object
	o.Reset([]byte(`{"spec":{"containers":[` + strings.Repeat(container+",", most-1) + container + `]}}`))
	for i := range most {
		o.Set(`"Always"`, "spec", "containers", Index(i), "imagePullPolicy")
	}
	o.checkpoint()
	for i := range most {
		for _, name := range [...]string{"cpu", "memory"} {
			o.SetString("100m", "spec", "containers", Index(i), "resources", "limits", name)
		}
	}
	if o.Err() != nil || o.memory() > MemoryMax*3/4 {
		t.Errorf("takes %d bytes, got %v", o.memory(), o.Err())
	}
	t.Logf("takes %d bytes", o.memory())
}

// TestFitsDecoded asks for the largest value that can be decoded, for one element
// less and for one element more.
func TestFitsDecoded(t *testing.T) {
	const before = `{"a":[`
	each := decodedByte*len("{},") + decodedObject + decodedElement
	most := (MemoryMax - 4096) / each
	var o Object
	for _, n := range []int{1, MemoryMax / decodedMost / len("{},"), most - 10, most + 10} {
		o.Reset([]byte(before + strings.Repeat("{},", n-1) + "{}]}"))
		if got := o.Get("a").FitsDecoded(); got != (n <= most) || got != (o.Err() == nil) {
			t.Errorf("%d objects: got %v, %v", n, got, o.Err())
		}
	}
	for _, more := range []int{-1, 0, 1} { // all that is left, less the text
		o.Reset([]byte(before + strings.Repeat("0,", 2*(MemoryMax/decodedMost)) + "0]}"))
		list := o.Get("a")
		list.source()
		o.arena = make([]byte, 0, MemoryMax-o.memory()-decodedByte*len(list.source())-decodedElement*2*(MemoryMax/decodedMost)+more)
		if got := list.FitsDecoded(); got != (more <= 0) {
			t.Errorf("%+d bytes: got %v", more, got)
		}
	}
	if o.Reset([]byte(`{}`)); !o.Get("a").FitsDecoded() {
		t.Error("a missing value does not fit")
	}
}

// TestMemoryMaxOfManyMembers adds members until there is no memory for another
// node, which depends on what the text of edits took before.
func TestMemoryMaxOfManyMembers(t *testing.T) {
	step := 6 << 20
	if testing.Short() {
		step *= 4
	}
	for spare := 1 << 20; spare < MemoryMax; spare += step {
		var o Object
		o.Reset([]byte(`{"a":{"x":1}}`))
		o.SetString(strings.Repeat("x", spare), "b")
		for i := 0; o.Err() == nil; i++ {
			o.Set("1", "a", strconv.Itoa(i))
		}
		if _, ok := errors.AsType[*SizeError](o.Err()); !ok {
			t.Errorf("behind %d bytes: got %v", spare, o.Err())
		}
	}
}
