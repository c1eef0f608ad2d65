package diff

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

const filler = "a value that makes replacing the whole longer than replacing a part"

// TestComparedMax changes one part of objects and arrays at the limit.
func TestComparedMax(t *testing.T) {
	object := func(n, changed int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"m%d":"%s"`, i, filler[:40+boolean(i == changed)])
		}
		return "{" + b.String()[1:] + "}"
	}
	array := func(n, changed int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%s"`, filler[:40+boolean(i == changed)])
		}
		return "[" + b.String()[1:] + "]"
	}
	f := func(text func(n, changed int) string, n int, part string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(`{"a":` + text(n, -1) + `}`))
		o.Set(text(n, n-1), "a")
		got := string(AppendPatch(nil, &o))
		want := fmt.Sprintf(`[{"op":"replace","path":"%s","value":"%s"}]`, part, filler[:41])
		if part == "/a" {
			want = fmt.Sprintf(`[{"op":"replace","path":"/a","value":%s}]`, text(n, n-1))
		}
		if got != want {
			t.Errorf("%d: got %.200s, want %.200s", n, got, want)
		}
	}
	f(object, comparedMax-1, "/a/m254")
	f(object, comparedMax, "/a/m255")
	f(object, comparedMax+1, "/a")
	f(array, comparedMax-1, "/a/254")
	f(array, comparedMax, "/a/255")
	f(array, comparedMax+1, "/a")
}

// TestComparedMaxOfEither compares two objects or arrays, only one of which
// exceeds the limit.
func TestComparedMaxOfEither(t *testing.T) {
	array := func(n int) string { return "[" + strings.Repeat(`"`+filler+`",`, n-1) + `"` + filler + `"]` }
	object := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"m%d":"%s"`, i, filler)
		}
		return "{" + b.String()[1:] + "}"
	}
	for _, text := range []func(n int) string{array, object} {
		for _, n := range []struct {
			before, after int
			compared      bool
		}{
			{comparedMax - 1, comparedMax, true}, {comparedMax, comparedMax - 1, true},
			{comparedMax, comparedMax + 1, false}, {comparedMax + 1, comparedMax, false},
		} {
			var o codec.Object
			o.Reset([]byte(`{"a":` + text(n.before) + `}`))
			o.Set(text(n.after), "a")
			got := string(AppendPatch(nil, &o))
			if compared := !strings.Contains(got, `"path":"/a",`); compared != n.compared || strings.Count(got, `{"op":`) != 1 {
				t.Errorf("%d to %d: got %.100s", n.before, n.after, got)
			}
		}
	}
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestDepthMax changes a value at increasing depth in an object that was set.
func TestDepthMax(t *testing.T) {
	nested := func(depth int, leaf string) string {
		return strings.Repeat(`{"filler":"`+filler+`","n":`, depth) + leaf + strings.Repeat("}", depth)
	}
	f := func(depth, compared int) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(`{"a":` + nested(depth, "1") + `}`))
		o.Set(nested(depth, "2"), "a")
		got := string(AppendPatch(nil, &o))
		want := fmt.Sprintf(`[{"op":"replace","path":"/a%s","value":%s}]`, strings.Repeat("/n", compared), nested(depth-compared, "2"))
		if got != want {
			t.Errorf("%d: got %s, want %s", depth, got, want)
		}
	}
	f(1, 1)
	f(63, 63)
	f(64, 64)
	f(65, 64)
	f(66, 64)
}

// TestDepthMaxOfArrays does the same with arrays, whose index is part of the
// pointer.
func TestDepthMaxOfArrays(t *testing.T) {
	nested := func(depth int, leaf string) string {
		return strings.Repeat(`["`+filler+`",`, depth) + leaf + strings.Repeat("]", depth)
	}
	for _, depth := range []int{1, depthMax - 1, depthMax, depthMax + 1} {
		var o codec.Object
		o.Reset([]byte(`{"a":` + nested(depth, "1") + `}`))
		o.Set(nested(depth, "2"), "a")
		compared := min(depth, depthMax)
		want := fmt.Sprintf(`[{"op":"replace","path":"/a%s","value":%s}]`, strings.Repeat("/1", compared), nested(depth-compared, "2"))
		if got := string(AppendPatch(nil, &o)); got != want {
			t.Errorf("%d: got %s, want %s", depth, got, want)
		}
	}
}

// TestManyContainers edits documents with as many elements as the largest request may have. If the
// work were quadratic, each case would take minutes.
func TestManyContainers(t *testing.T) {
	n := OperationsMax
	if testing.Short() {
		n = 20_000
	}
	containers := "[" + strings.Repeat(`{"name":"c"},`, n-1) + `{"name":"c"}]`
	f := func(name string, operations int, edit func(o *codec.Object)) {
		t.Run(name, func(t *testing.T) {
			var o codec.Object
			o.Reset([]byte(`{"spec":{"containers":` + containers + `}}`))
			edit(&o)
			patch := AppendPatch(nil, &o)
			if got := strings.Count(string(patch), `{"op":`); got != operations || o.Err() != nil {
				t.Errorf("got %d operations, %v, want %d", got, o.Err(), operations)
			}
		})
	}
	f("set in each", n, func(o *codec.Object) {
		for i := range o.Get("spec", "containers").Elements() {
			o.Set(`"Always"`, "spec", "containers", codec.Index(i), "imagePullPolicy")
		}
	})
	f("set in each, read it back", n, func(o *codec.Object) {
		for i := range o.Get("spec", "containers").Elements() {
			o.Set(`"Always"`, "spec", "containers", codec.Index(i), "imagePullPolicy")
		}
		for i, container := range o.Get("spec", "containers").Elements() {
			if !container.Get("imagePullPolicy").EqualString("Always") {
				t.Fatalf("element %d is not set", i)
			}
		}
	})
	f("get each by index", 0, func(o *codec.Object) {
		for i := range n {
			if !o.Get("spec", "containers", codec.Index(i), "name").EqualString("c") {
				t.Fatalf("element %d is not there", i)
			}
		}
	})
	f("append as many", n, func(o *codec.Object) {
		for range n {
			o.Append(`{}`, "spec", "containers")
		}
	})
	f("replace all", 1, func(o *codec.Object) {
		o.Set(strings.ReplaceAll(containers, `"c"`, `"d"`), "spec", "containers")
	})
	f("replace each", n, func(o *codec.Object) {
		for i := range n {
			o.Set(`{}`, "spec", "containers", codec.Index(i))
		}
	})
}

// TestPatchMax makes patches with the maximum number of operations and bytes, one
// less and one more, behind other text in the buffer.
func TestPatchMax(t *testing.T) {
	dst := []byte("something else")
	f := func(o *codec.Object, length int, what string) {
		t.Helper()
		patch := AppendPatch(dst, o)
		if what == "" && (o.Err() != nil || len(patch)-len(dst) != length) {
			t.Errorf("got %d bytes, %v, want %d", len(patch)-len(dst), o.Err(), length)
		}
		size, ok := errors.AsType[*codec.SizeError](o.Err())
		bound := map[string]int{"bytes of the JSON Patch with its changes": PatchBytesMax,
			"operations of the JSON Patch with its changes": OperationsMax}[what]
		if what != "" && (!ok || size.What != what || size.Max != bound || len(patch) != len(dst)) {
			t.Errorf("got %d bytes, %v, want none of too many %s", len(patch)-len(dst), o.Err(), what)
		}
	}
	// One value, and two values of which the first is too long.
	for length, what := range map[int]string{
		PatchBytesMax - 1: "", PatchBytesMax: "", PatchBytesMax + 1: "bytes of the JSON Patch with its changes",
	} {
		const begin, end = `[{"op":"add","path":"/a","value":"`, `"}]`
		var o codec.Object
		o.Reset([]byte(`{}`))
		o.SetString(strings.Repeat("x", length-len(begin)-len(end)), "a")
		f(&o, length, what)
		o.Reset([]byte(`{}`))
		o.SetString(strings.Repeat("x", PatchBytesMax), "a")
		o.SetString("x", "b")
		f(&o, 0, "bytes of the JSON Patch with its changes")
		o.Reset([]byte(`{}`)) // the first fits to the byte
		o.SetString(strings.Repeat("x", PatchBytesMax-len(begin)-len(end)), "a")
		o.SetString("x", "b")
		f(&o, 0, "bytes of the JSON Patch with its changes")
	}
	// Parts that are discarded are not counted.
	for n, what := range map[int]string{
		OperationsMax - 1: "", OperationsMax: "", OperationsMax + 1: "operations of the JSON Patch with its changes",
	} {
		const list, each = `[[1,2],[3,4]]`, `{"op":"replace","path":"/100000/a","value":[]},`
		var o codec.Object
		o.Reset([]byte("[" + strings.Repeat(`{"a":`+list+`},`, 100_000+n) + "{}]"))
		for i := range n {
			o.Set("[]", codec.Index(100_000+i), "a")
		}
		f(&o, n*len(each)+1, what)
	}
}

// TestMemoryRetained compares arrays of many sizes: the memory that a differ retains
// for the next patch is bounded, and references no document.
func TestMemoryRetained(t *testing.T) {
	d := &differ{bytesMax: PatchBytesMax}
	for _, n := range []int{1, comparedMax, comparedMax + 1, 100 * comparedMax} {
		var o codec.Object
		o.Reset([]byte(`{"a":[` + strings.Repeat("[1,2],", n-1) + `[1,2]]}`))
		o.Set(`[`+strings.Repeat("[2,1],", n-1)+`[2,1]]`, "a")
		for edit := range o.Edits() {
			d.compare(edit.Before, edit.After, 0)
		}
	}
	if len(d.values) != 0 || cap(d.values) > 8*comparedMax {
		t.Errorf("keeps %d of %d values, want none of at most %d", len(d.values), cap(d.values), 8*comparedMax)
	}
	for i, value := range d.values[:cap(d.values)] {
		if value != (codec.Value{}) {
			t.Fatalf("value %d is still there", i)
		}
	}
}
