package codec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestIsJSON compares isJSON with encoding/json for JSON that is cut at each place or
// has one byte replaced.
func TestIsJSON(t *testing.T) {
	f := func(text string) {
		t.Helper()
		want := json.Valid([]byte(text)) && utf8.ValidString(text) && !isSpace(text[0]) && !isSpace(text[len(text)-1])
		if got := isJSON(text); got != want {
			t.Fatalf("%q: got %v, want %v", text, got, want)
		}
	}
	nested := func(depth int) string {
		return strings.Repeat(`{"a":[`, depth/2) + "1" + strings.Repeat("]}", depth/2)
	}
	texts := []string{
		`{}`, `[]`, `""`, `{"a":1}`, `{"a":"b","c":[true,false,null],"d":{"e":-1,"f":0}}`, `[{"a":[]},{},[[1,23]],""]`,
		`"plain text of more than eight bytes"`,
		`"\u00e9\n\"é"`, `-12`, `1.5e+3`, `01`, `-`, `tru`, `{"a" : 1}`, "\"\x01\"", "\"\xff\"", "\"\x7f\"",
		nested(simpleDepthMax - 2), nested(simpleDepthMax), nested(simpleDepthMax + 2),
		`{"a":1 ,"b":2}`, `[1, 2]`, `[1 ]`, `{"a":}`, `[,1]`, `[1,,2]`, `[1,]`, `{"a":1,}`, `{1:2}`, `[1}`, `{"a":1]`,
	}
	for _, text := range texts {
		for end := 1; end <= len(text); end++ {
			f(text[:end])
		}
		for i := range len(text) {
			for _, c := range []byte(`"\{}[]:,-01 tnx` + "\x00\x1f\x80") {
				f(text[:i] + string(c) + text[i+1:])
				f(text[:i] + text[i+1:] + string(c))
			}
		}
	}
}

// TestJSONLen tests the maximum length of each character as JSON. No encoder writes
// more: neither encoding/json, which escapes characters of HTML, nor one that writes
// ASCII.
func TestJSONLen(t *testing.T) {
	f := func(s string, want int) {
		t.Helper()
		if got := JSONLen(s); got != want {
			t.Errorf("%q: got %d bytes, want %d", s, got, want)
		}
		if end, written := escaped(s, want-1); end != 0 || written != 0 {
			t.Errorf("%q: got %d bytes of it written as %d into %d", s, end, written, want-1)
		}
		encoded, err := json.Marshal(s)
		if err != nil || len(encoded)-2 > want {
			t.Errorf("%q: encoding/json makes %s, %v of it", s, encoded, err)
		}
	}
	const short, html = "\"\\\n\t", "<>&"
	for c := range utf8.RuneSelf {
		s := string(rune(c))
		switch {
		case strings.Contains(short, s):
			f(s, 2)
		case c < ' ' || c == 0x7f || strings.Contains(html, s):
			f(s, 6)
		default:
			f(s, 1)
		}
	}
	for _, r := range "éßłЖ中文日\u00a0\u200b\u2028\ufeff\ufffd\U0001f600\U000e0001\u0080\u0085" {
		switch {
		case IsPrintable(r):
			f(string(r), utf8.RuneLen(r))
		case r >= 1<<16:
			f(string(r), 12)
		default:
			f(string(r), 6)
		}
	}
	f("\x80", 6)
	f("\xff", 6)
	if got := JSONLen("a\"é\x80<"); got != 1+2+2+6+6 {
		t.Errorf("got %d", got)
	}
}

// TestFaults tests the errors of an Object beyond its limits.
func TestFaults(t *testing.T) {
	var o Object
	o.Reset([]byte(`{}`))
	o.TooLarge(&SizeError{What: "dogs", Max: 3})
	o.TooLarge(&SizeError{What: "cats", Max: 4})
	if err := o.Err(); err == nil || err.Error() != "got more than 3 dogs, the maximum" {
		t.Errorf("got %v", err)
	}
}

// TestRollbackForgetsContexts uses a context that ends while each part of a review is
// read.
func TestRollbackForgetsContexts(t *testing.T) {
	var r Review
	if err := r.Decode([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",` +
		`"object":{},"oldObject":{},"options":{}}}`)); err != nil {
		t.Fatal(err)
	}
	for i, o := range []*Object{&r.Object, &r.OldObject, &r.Options, &r.envelope} {
		r.Checkpoint()
		o.err = &ContextError{context.Canceled}
		if r.Err() == nil {
			t.Fatalf("%d: got no error", i)
		}
		if r.Rollback(); r.Err() != nil {
			t.Errorf("%d: got %v", i, r.Err())
		}
		fault := errors.New("a fault")
		o.err = fault
		if r.Rollback(); !errors.Is(r.Err(), fault) {
			t.Errorf("%d: got %v, want the fault", i, r.Err())
		}
		o.err = nil
	}
}

// TestWrongLists reads invalid lists and objects. Reading to the end finds the error,
// and all loops end.
func TestWrongLists(t *testing.T) {
	for _, text := range []string{
		`[,1]`, `[1,,2]`, `[1,]`, `[1 2]`, `[1`, `[1,`, `[1,2`, `[tru]`, `[1,x]`, `["a]`, `[ ,1]`, `[ 1 , , 2 ]`, `[1:2]`, `[`, `[ `,
		`{,"a":1}`, `{"a":1,}`, `{"a":1,,"b":2}`, `{"a"}`, `{"a":}`, `{"a":1 "b":2}`, `{1:2}`, `{"a":1`, `{"a":1,`, `{"a":`,
		`{"a"`, `{"a`, `{"`, `{`, `{a":1}`,
		`{"a" 1}`, `{"a":x}`, `{"b":1,a:2}`, `{ , "a" : 1 }`, `{ "a" : 1 , }`, `{"a":1,"b":2,}`,
	} {
		for what, read := range map[string]func(v Value) int{
			"loop": func(v Value) (n int) {
				for range v.Elements() {
					n++
				}
				for range v.Members() {
					n++
				}
				return n
			},
			"length":       func(v Value) int { return v.Len() },
			"last element": func(v Value) int { v.Get("10000"); return 0 },
			"other member": func(v Value) int { v.Get("z"); return 0 },
		} {
			if what == "last element" && text[0] == '{' || what == "other member" && text[0] == '[' {
				continue // the document has no such path
			}
			before := map[byte]string{'[': "0,", '{': `"k":0,`}[text[0]]
			for _, n := range []int{0, 2 * nodesMax} { // with and without a node for the invalid value
				var o Object
				o.Reset([]byte(text[:1] + strings.Repeat(before, n) + text[1:]))
				if read(o.Root()); o.Err() == nil && (n == 0 || what != "other member") { // sonic searches there, and is lenient
					t.Errorf("%s, %s behind %d others: got no error", text, what, n)
				}
			}
		}
	}
}

// TestMissingIsNoChange removes values that do not exist. This must not lead to a
// reinvocation.
func TestMissingIsNoChange(t *testing.T) {
	var o Object
	o.Reset([]byte(`{"a":{"b":1},"l":[1]}`))
	for _, path := range [][]string{{"c"}, {"a", "c"}, {"c", "d"}} {
		o.Remove(path...)
	}
	if o.Err() != nil || o.Changes() != 0 || o.Root().JSON() != `{"a":{"b":1},"l":[1]}` {
		t.Errorf("got %d changes, %v, %s", o.Changes(), o.Err(), o.Root().JSON())
	}
	if o.Remove("a", "b"); o.Changes() != 1 {
		t.Errorf("got %d changes, want 1", o.Changes())
	}
	if o.Remove("a", "b"); o.Changes() != 1 {
		t.Errorf("got %d changes, want 1 still", o.Changes())
	}
}

// many is a document with more elements and members than nodesMax.
func many(n, first int) string {
	var b strings.Builder
	b.WriteString(`{"list":[`)
	for i := range n {
		fmt.Fprintf(&b, `{"n":%d,"in":{"x":[%d]}},`, first+i, i)
	}
	b.WriteString(`{}],"map":{`)
	for i := range n {
		fmt.Fprintf(&b, `"k%d":{"n":%d},`, i, first+i)
	}
	return b.String() + `"end":{}}}`
}

// TestReadBeyondNodes looks up elements without nodes, in any order, also in the next
// document.
func TestReadBeyondNodes(t *testing.T) {
	const n = 3 * nodesMax
	var o Object
	for _, first := range []int{0, 10_000} {
		o.Reset([]byte(many(n, first)))
		for range o.Get("list").Elements() { // so that there are enough nodes
			continue
		}
		list := o.Get("list")
		for _, i := range []int{2000, 2000, 2001, 1999, 3000, 0, n - 1, 2500} {
			if got := list.Get(Index(i), "n").JSON(); got != strconv.Itoa(first+i) {
				t.Errorf("element %d: got %s", i, got)
			}
			if got := o.Get("map", "k"+strconv.Itoa(i), "n").JSON(); got != strconv.Itoa(first+i) {
				t.Errorf("member %d: got %s", i, got)
			}
		}
		for _, i := range []int{n + 1, n + 1, 1 << 20, -1} {
			if list.Get(Index(i)).Exists() {
				t.Errorf("element %d: got one", i)
			}
		}
		if got := list.Get(Index(n)).JSON(); got != "{}" || o.Err() != nil {
			t.Errorf("got %s, %v", got, o.Err())
		}
		if first == 0 { // the next document begins at the offset of the last lookup
			list.Get(Index(2000))
		}
	}
}

// TestEditBeyondNodes edits Values without nodes, found in all ways, and compares the
// result with encoding/json.
func TestEditBeyondNodes(t *testing.T) {
	const n = 2 * nodesMax
	var want map[string]any
	if err := json.Unmarshal([]byte(many(n, 0)), &want); err != nil {
		t.Fatal(err)
	}
	var o Object
	o.Reset([]byte(many(n, 0)))
	for range o.Get("list").Elements() {
		continue
	}
	list, members := want["list"].([]any), want["map"].(map[string]any)
	for i, element := range o.Get("list").Elements() {
		switch i % 400 {
		case 0:
			element.SetString("edited", "s")
			list[i].(map[string]any)["s"] = "edited"
		case 1:
			element.Get("in", "x", "0").Set("true")
			list[i].(map[string]any)["in"].(map[string]any)["x"].([]any)[0] = true
		case 2:
			element.Get("in", "x").Append("null")
			in := list[i].(map[string]any)["in"].(map[string]any)
			in["x"] = append(in["x"].([]any), nil)
		case 3:
			element.Get("n").Remove()
			delete(list[i].(map[string]any), "n")
		}
	}
	for name, member := range o.Get("map").Members() {
		if i, err := strconv.Atoi(strings.TrimPrefix(name, "k")); err == nil && i%400 == 7 {
			member.Set(`"y"`, "added", "deep")
			members[name].(map[string]any)["added"] = map[string]any{"deep": "y"}
		}
	}
	held := o.Get("list", Index(n-1)) // read before an element in front of it is edited
	o.Set(`[]`, "list", Index(n-2), "n")
	list[n-2].(map[string]any)["n"] = []any{}
	held.Set("5", "n")
	list[n-1].(map[string]any)["n"] = 5.0
	var got map[string]any
	if err := json.Unmarshal([]byte(o.Root().JSON()), &got); err != nil || o.Err() != nil {
		t.Fatal(err, o.Err())
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("got another document than encoding/json, edited in the same places")
	}
}

// TestScanIsForgotten looks up elements of an array without a node, in a document and
// in the next one, whose array begins at the same offset.
func TestScanIsForgotten(t *testing.T) {
	var o Object
	for _, first := range []string{`"a"`, `"a long one"`, `0`} {
		o.Reset([]byte(`{"list":[` + strings.Repeat("0,", 2*nodesMax) + `0],"deep":{"in":[` + first + `,1,2,3,4,5]}}`))
		for range o.Get("list").Elements() { // so that there are enough nodes
			continue
		}
		in := o.Get("deep", "in")
		if in.node > 0 {
			t.Fatal("the array has a node")
		}
		for _, i := range []int{3, 4, 2, 5} {
			if got := in.Get(Index(i)).JSON(); got != strconv.Itoa(i) {
				t.Errorf("behind %s: element %d: got %s", first, i, got)
			}
		}
		in.Get("3")
	}
}

// TestAddedMembersEnd iterates over members that edits added, after the context has
// ended.
func TestAddedMembersEnd(t *testing.T) {
	var r Review
	if err := r.Decode([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",` +
		`"object":{"a":{}}}}`)); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * nodesMax {
		r.Object.Set("1", "a", strconv.Itoa(i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.SetContext(ctx)
	seen := 0
	for range r.Object.Get("a").Members() {
		seen++
	}
	if _, ended := errors.AsType[*ContextError](r.Err()); !ended || seen >= nodesMax {
		t.Errorf("got %d members, %v, want the loop to end", seen, r.Err())
	}
}
