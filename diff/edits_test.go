package diff_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// An editor makes random edits that are not refused.
type editor struct {
	rng    *rand.Rand
	object *codec.Object
}

// somewhere returns a path, the value there, and the value above it.
func (e *editor) somewhere() (path []string, v, parent codec.Value) {
	v = e.object.Root()
	for {
		n := v.Len()
		if n == 0 || len(path) > 0 && e.rng.IntN(4) == 0 {
			return path, v, parent
		}
		at, token := e.rng.IntN(n), ""
		parent = v
		if v.Kind() == codec.KindArray {
			token = strconv.Itoa(at)
		} else {
			for name := range parent.Members() {
				if at == 0 {
					token = name
				}
				at--
			}
		}
		path, v = append(path, token), parent.Get(token)
	}
}

// value returns JSON text, which often has much in common with v.
func (e *editor) value(v codec.Value) string {
	switch e.rng.IntN(10) {
	case 0:
		return "null"
	case 1:
		return strconv.Itoa(e.rng.IntN(3))
	case 2:
		return `{"a/b~":[1,{"x":"\u00e9"}],"c":{}}`
	case 3:
		return `[]`
	case 4, 5, 6:
		return e.changed(v)
	case 7:
		_, other, _ := e.somewhere()
		return other.JSON()
	}
	return `"` + string(rune('a'+e.rng.IntN(26))) + `"`
}

// changed returns v with a few edits inside.
func (e *editor) changed(v codec.Value) string {
	if !v.Exists() {
		return "0"
	}
	text := v.AppendJSON(nil)
	if v.Len() == 0 || v.Kind() != codec.KindObject {
		return string(text)
	}
	var o codec.Object
	o.Reset(text)
	inner := editor{e.rng, &o}
	for range 1 + e.rng.IntN(3) {
		inner.edit()
	}
	return string(o.Root().AppendJSON(nil))
}

// from returns a Value on path at which an edit can start, and the rest of the
// path.
func (e *editor) from(path []string) (codec.Value, []string) {
	n := e.rng.IntN(len(path) + 1)
	if v := e.object.Get(path[:n]...); v.Exists() {
		return v, slices.Clone(path[n:])
	}
	return e.object.Root(), slices.Clone(path)
}

func (e *editor) edit() {
	path, v, parent := e.somewhere()
	if len(path) == 0 {
		path, v, parent = []string{"new"}, codec.Value{}, e.object.Root()
	}
	name := strconv.Itoa(e.rng.IntN(3)) + "/~é"
	from, rest := e.from(path)
	switch e.rng.IntN(9) {
	case 0, 1:
		from.Set(e.value(v), rest...)
	case 2:
		from.SetString(name, rest...)
	case 3:
		if v.Kind() == codec.KindArray {
			from.Append(e.value(v), rest...)
		}
	case 4:
		if v.Kind() == codec.KindArray {
			at := strconv.Itoa(e.rng.IntN(v.Len() + 1))
			from.Add(e.value(v), append(rest, at)...)
		}
	case 5:
		if v.Kind() == codec.KindObject {
			from.Set(e.value(v), append(rest, name)...)
		}
	case 6:
		if parent.Exists() {
			from.Remove(rest...)
		}
	case 7:
		made := append(slices.Clone(path), "made/~", name)
		if v.Kind() == codec.KindObject && goesThrough(v, made[len(path):]) {
			e.object.SetInt(1, append(made, "x")...)
		}
	case 8: // set and set back
		was := string(v.AppendJSON(nil))
		if was != "" {
			e.object.Set(`"other"`, path...)
			e.object.Set(was, path...)
		}
	}
}

// goesThrough reports whether all values on path from v are objects, as far as
// they exist: an edit may create the rest.
func goesThrough(v codec.Value, path []string) bool {
	for _, token := range path {
		v = v.Get(token)
		if !v.Exists() {
			return true
		}
		if v.Kind() != codec.KindObject {
			return false
		}
	}
	return true
}

// TestPatchOfRandomEdits makes more than ten thousand sequences of edits to the
// objects of the corpus, and applies their patches.
func TestPatchOfRandomEdits(t *testing.T) {
	rng := seed.Rand(t)
	rounds := 31
	if testing.Short() {
		rounds = 3
	}
	var object codec.Object
	sequences, operated := 0, 0
	for range rounds {
		objects(t, func(name string, text []byte) {
			object.Reset(text)
			e := editor{rng, &object}
			for range 1 + rng.IntN(6) {
				e.edit()
			}
			operated += len(operations(t, checkPatch(t, text, &object)))
			sequences++
		})
	}
	t.Logf("%d sequences, %d operations", sequences, operated)
	if !testing.Short() && sequences < 10_000 {
		t.Errorf("got %d sequences, want at least 10000", sequences)
	}
}

// TestNoPatch makes edits that change nothing.
func TestNoPatch(t *testing.T) {
	var object codec.Object
	f := func(name string, text []byte, edit func(o *codec.Object)) {
		t.Helper()
		object.Reset(text)
		edit(&object)
		if patch := checkPatch(t, text, &object); len(patch) > 0 {
			t.Errorf("%s: got %s, want none", name, patch)
		}
	}
	objects(t, func(name string, text []byte) {
		f(name, text, func(*codec.Object) {})
		f(name, text, func(o *codec.Object) { // every value to itself
			for member, value := range o.Root().Members() {
				o.Set(string(value.AppendJSON(nil)), member)
				for inner, value := range value.Members() {
					o.Set(string(value.AppendJSON(nil)), member, inner)
				}
			}
		})
		f(name, text, func(o *codec.Object) { // every value to another one and back
			for member, value := range o.Root().Members() {
				o.Remove(member)
				o.Set(string(value.AppendJSON(nil)), member)
			}
		})
		f(name, text, func(o *codec.Object) { // values that are added and removed
			o.SetInt(1, "a", "b", "d")
			o.Append("1", "a", "c")
			o.Remove("a")
			o.SetString("x", "kind/")
			o.Remove("kind/")
		})
	})
	f("other spelling", []byte(`{"a":{"b":"x\u00e9","c":[1,{"d":null}],"\u0065":{}}}`), func(o *codec.Object) {
		o.Set(`{ "e" : { } , "c" : [ 1 , { "\u0064" : null } ] , "b" : "\u0078é" }`, "a")
	})
	f("appended and removed", []byte(`{"a":[1,2]}`), func(o *codec.Object) {
		o.Append("3", "a")
		o.Remove("a", "2")
	})
}

// TestAppendIsAdd appends to every array of the corpus.
func TestAppendIsAdd(t *testing.T) {
	var object codec.Object
	objects(t, func(name string, text []byte) {
		for i, path := range arrays(text) {
			if testing.Short() && i%10 > 0 {
				continue
			}
			object.Reset(text)
			pointer := ""
			for _, token := range path {
				pointer += "/" + string(codec.AppendPointerToken(nil, token))
			}
			var want []string
			for range 3 {
				want = append(want, fmt.Sprintf("add %s/%d", pointer, object.Get(path...).Len()))
				object.Append(`{"a":[]}`, path...)
			}
			if got := operations(t, checkPatch(t, text, &object)); !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
	})
}

// arrays returns the paths of all arrays.
func arrays(text []byte) (paths [][]string) {
	var o codec.Object
	o.Reset(text)
	var walk func(v codec.Value, path []string)
	walk = func(v codec.Value, path []string) {
		path = slices.Clip(path)
		if v.Kind() == codec.KindArray {
			paths = append(paths, path)
		}
		for i, element := range v.Elements() {
			walk(element, append(path, strconv.Itoa(i)))
		}
		for name, member := range v.Members() {
			walk(member, append(path, name))
		}
	}
	walk(o.Root(), nil)
	return paths
}
