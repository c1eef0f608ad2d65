package codec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestEditsStop breaks the loop over edits after each of them, at any depth.
func TestEditsStop(t *testing.T) {
	var o Object
	o.Reset([]byte(`{"a":{"x":{"y":1,"z":2},"w":3},"b":[{"c":4},{"c":5}]}`))
	for _, path := range [][]string{{"a", "x", "y"}, {"a", "x", "z"}, {"a", "w"}, {"b", "0", "c"}, {"b", "1", "c"}} {
		o.SetInt(9, path...)
	}
	for stop := 1; stop <= 6; stop++ {
		n := 0
		for range o.Edits() {
			if n++; n == stop {
				break
			}
		}
		if n != min(stop, 5) {
			t.Errorf("got %d edits before stopping at %d, want %d", n, stop, min(stop, 5))
		}
	}
}

// TestIndexedTwice edits all members of an object that has one name twice. With and
// without an index, the first of the two counts and the other one is removed. An object
// gets an index beyond nodesMax nodes.
func TestIndexedTwice(t *testing.T) {
	for n := indexedMin - 4; n <= indexedMin+4; n++ {
		for _, twice := range []int{0, 1, n - 1} {
			for _, behind := range []int{0, n / 2, n - 1} {
				var b strings.Builder
				for i := range n {
					fmt.Fprintf(&b, `,"m%d":%d`, i, i)
					if i == behind {
						fmt.Fprintf(&b, `,"m%d":"again"`, twice)
					}
				}
				var o Object
				o.Reset([]byte(`{"list":[` + strings.Repeat("0,", nodesMax) + `0],"a":{` + b.String()[1:] + `}}`))
				_ = o.Get("list", fmt.Sprint(nodesMax)).Exists() // one more than nodesMax
				o.SetInt(0, "a", "added")
				for i := range n {
					o.SetInt(int64(1000+i), "a", fmt.Sprint("m", i))
				}
				got := make(map[string]any)
				if err := json.Unmarshal(o.Get("a").AppendJSON(nil), &got); err != nil || o.Err() != nil {
					t.Fatal(err, o.Err())
				}
				for i := range n {
					if name := fmt.Sprint("m", i); got[name] != float64(1000+i) {
						t.Fatalf("%d members, m%d again behind m%d: got %v for %s, want %d", n, twice, behind, got[name], name, 1000+i)
					}
				}
			}
		}
	}
}

// TestStringIsView expects a copy of a string only if it has escapes.
func TestStringIsView(t *testing.T) {
	for _, text := range []string{`""`, `"a"`, `"abcdefghi"`, `"é"`, `"abcdefgé"`, `"\u2028"`, `"a'<>&"`} {
		var o Object
		o.Reset([]byte(`{"a":` + text + `}`))
		if got := o.Get("a").String(); (len(o.plain) > 0) != strings.Contains(text, `\`) {
			t.Errorf("%s: got %q with %d bytes copied", text, got, len(o.plain))
		}
	}
}

// TestFaultsBeyondNodes reads members of objects beyond nodesMax, one of which is no
// object.
func TestFaultsBeyondNodes(t *testing.T) {
	for _, bad := range []string{`{"a" 1}`, `{"a":1,,"b":2}`, `{a:1}`, `{"a":1 "b":2}`, `{1:2}`, `{"a"}`} {
		var o Object
		o.Reset([]byte(`{"list":[` + strings.Repeat(`{"a":{"b":1}},`, nodesMax) + bad + `]}`))
		for _, v := range o.Get("list").Elements() {
			if got := v.Get("missing"); got.Exists() {
				t.Fatalf("%s: got %s for what is missing", bad, got.JSON())
			}
		}
		if o.Err() == nil {
			t.Errorf("%s: got no fault, want one", bad)
		}
	}
	var o Object
	o.Reset([]byte(`{"list":[` + strings.Repeat(`{"a":{"b":1}},`, nodesMax) + `{"a":1}]}`))
	for _, v := range o.Get("list").Elements() {
		_ = v.Get("missing").Exists()
	}
	if o.Err() != nil {
		t.Errorf("got %v, want no fault", o.Err())
	}
}

// TestRefusedChangesNothing expects refused edits to change nothing.
func TestRefusedChangesNothing(t *testing.T) {
	for _, bad := range []string{``, `{`, `{bad}`, `"a`, `tru`, `1 2`, "\"\x01\"", `"\x"`, `[1,]`} {
		for name, edit := range map[string]func(o *Object){
			"set":    func(o *Object) { o.Set(bad, "a") },
			"new":    func(o *Object) { o.Set(bad, "new") },
			"append": func(o *Object) { o.Append(bad, "list") },
			"add":    func(o *Object) { o.Add(bad, "list", "0") },
		} {
			var o Object
			o.Reset([]byte(`{"a":1,"list":[1,2]}`))
			edit(&o)
			if got := string(o.Root().AppendJSON(nil)); o.Err() == nil || got != `{"a":1,"list":[1,2]}` || o.Changes() != 0 {
				t.Errorf("%s %q: got %s, %d changes, error %v, want it unchanged and an error", name, bad, got, o.Changes(), o.Err())
			}
		}
	}
}

// TestMissingFits calls the methods of a missing Value.
func TestMissingFits(t *testing.T) {
	if !(Value{}).FitsDecoded() {
		t.Error("got false for a Value of nothing, want true")
	}
}

// TestAnnotationsBound fills annotations up to their limit. Further ones are truncated
// to the minimum length.
func TestAnnotationsBound(t *testing.T) {
	for _, left := range []int{TruncatedMin - 1, TruncatedMin, TruncatedMin + 1, 10 * TruncatedMin} {
		var r Response
		if err := r.Annotate("first", strings.Repeat("a", annotationBytesMax-left)); err != nil {
			t.Fatal(err)
		}
		left = annotationBytesMax - r.annotationBytes
		if err := r.Annotate("second", strings.Repeat("b", annotationBytesMax)); err != nil {
			t.Fatal(err)
		}
		if got, want := r.annotations[1].value, TruncateString(strings.Repeat("b", annotationBytesMax),
			max(left, TruncatedMin)); got != want {
			t.Errorf("%d bytes left: got %d bytes, want %d", left, len(got), len(want))
		}
	}
}

// TestLoopsStop breaks loops over members and elements after each item, before and after
// those that have nodes.
func TestLoopsStop(t *testing.T) {
	var names, elements strings.Builder
	const most = nodesMax + 8
	for i := range most {
		fmt.Fprintf(&names, `,"m%d":%d`, i, i)
		fmt.Fprintf(&elements, `,%d`, i)
	}
	text := []byte(`{"members":{` + names.String()[1:] + `},"elements":[` + elements.String()[1:] + `]}`)
	for _, stop := range []int{1, 2, nodesMax - 8, nodesMax - 1, nodesMax, nodesMax + 1, most, most + 1} {
		for _, again := range []bool{false, true} {
			var o Object
			o.Reset(text)
			if again { // the nodes exist already
				_ = o.Get("members", "m20").Exists()
				_ = o.Get("elements", "20").Exists()
			}
			n := 0
			for name, v := range o.Get("members").Members() {
				if got, ok := v.Int64(); !ok || got != int64(n) || name != fmt.Sprint("m", n) {
					t.Fatalf("member %d: got %s, %d", n, name, got)
				}
				if n++; n == stop {
					break
				}
			}
			m := 0
			for i, v := range o.Get("elements").Elements() {
				if got, ok := v.Int64(); !ok || i != m || got != int64(m) {
					t.Fatalf("element %d: got %d, %d", m, i, got)
				}
				if m++; m == stop {
					break
				}
			}
			if want := min(stop, most); n != want || m != want || o.Err() != nil {
				t.Errorf("got %d members and %d elements, want %d of both; %v", n, m, want, o.Err())
			}
		}
	}
}

// TestFirstFaultStays expects an Object to keep the first of several errors.
func TestFirstFaultStays(t *testing.T) {
	first := &SizeError{What: "things", Max: 1}
	for name, second := range map[string]func(o *Object){
		"Refuse":   func(o *Object) { o.Root().Refuse(ErrNoMemory) },
		"TooLarge": func(o *Object) { o.TooLarge(&SizeError{What: "others"}) },
		"Fits":     func(o *Object) { o.Fits(MemoryMax + 1) },
		"Set":      func(o *Object) { o.Set("{", "a") },
		"context": func(o *Object) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			o.ctx = ctx
			for range o.Get("list").Elements() {
				continue
			}
		},
	} {
		var o Object
		o.Reset([]byte(`{"a":1,"list":[` + strings.Repeat("0,", 2*checkEach) + `0]}`))
		o.Root().Refuse(first)
		if second(&o); o.Err() != first { //nolint:errorlint // the same one
			t.Errorf("%s: got %v, want %v", name, o.Err(), first)
		}
	}
	var o Object
	o.Reset([]byte(`{"a":1}`))
	if o.Fits(MemoryMax+1) || o.Err().Error() != fmt.Sprintf("got more than %d bytes of memory for what is read and changed "+
		"of the object, the maximum", MemoryMax) {
		t.Errorf("got %v", o.Err())
	}
}

// TestStaleEdits edits through stale Values: each edit is refused.
func TestStaleEdits(t *testing.T) {
	f := func(about string, o *Object, v Value, change func()) {
		t.Helper()
		change()
		v.SetInt(1)
		if fault, ok := errors.AsType[*EditError](o.Err()); !ok || fault.Reason != isStale {
			t.Errorf("%s: got %v, want %s", about, o.Err(), isStale)
		}
	}
	var o Object
	o.Reset([]byte(`{"a":1}`))
	f("the next document has fewer nodes", &o, o.Get("a"), func() {
		o.Reset([]byte(`{}`))
		_ = o.Get("a").Exists()
	})
	var p, last = Object{}, Value{}
	p.Reset([]byte(`{"list":[` + strings.Repeat("null,", nodesMax) + `null]}`))
	for _, v := range p.Get("list").Elements() {
		last = v
	}
	f("a null without a node, of a list that was replaced", &p, last, func() { p.Set("[]", "list") })
}

// TestNamesThatBeginWithEscapes looks up names that resemble the escaped text of others.
func TestNamesThatBeginWithEscapes(t *testing.T) {
	for _, text := range []string{`{"\n":1}`, `{"\\":1}`, `{"\u0061":1}`, `{"\"":1}`} {
		var plain map[string]int
		if err := json.Unmarshal([]byte(text), &plain); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"\n", `\n`, `\`, `\\`, "a", `\u0061`, `"`, `\"`} {
			var o Object
			o.Reset([]byte(text))
			_, want := plain[name]
			if got := o.Get(name).Exists(); got != want || o.Err() != nil {
				t.Errorf("%q in %s: got %v, %v, want %v", name, text, got, o.Err(), want)
			}
		}
	}
}
