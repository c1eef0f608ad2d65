package view

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fastadmit/fastadmit/codec"
)

// read returns the values of a review of two objects.
func read(t *testing.T, object, oldObject string) *Review {
	t.Helper()
	review := new(codec.Review)
	if err := review.Decode(fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",`+
		`"request":{"uid":"u","operation":"UPDATE","object":%s,"oldObject":%s}}`, object, oldObject)); err != nil {
		t.Fatal(err)
	}
	r := new(Review)
	r.Read(review)
	return r
}

// manyOf returns an object that has n labels, a list of n objects with lookupsMax members, and
// n texts.
func manyOf(n int) string {
	var labels, list, texts strings.Builder
	for i := range n {
		fmt.Fprintf(&labels, `,"label-%d":"v"`, i)
		fmt.Fprintf(&list, `,{"name":"n%d","b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1}`, i)
		fmt.Fprintf(&texts, `,"t%d"`, i)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"X","metadata":{"name":"x","labels":{%s}},"list":[%s],"texts":[%s]}`,
		labels.String()[1:], list.String()[1:], texts.String()[1:])
}

// TestIndex expects lookups to read the text lookupsMax times, and then to use an index, if
// there is memory for it.
func TestIndex(t *testing.T) {
	const n = 1500
	for _, test := range []struct {
		memory                int // that there is
		reads, bytes, entries int
		indexed               bool
	}{
		{memory: 0, bytes: entryBytes},
		{memory: entryBytes - 1, bytes: entryBytes},
		{memory: entryBytes, reads: lookupsMax + 1, bytes: entryBytes + n*memberBytes, entries: 1}, // and to count the members
		{memory: entryBytes + n*memberBytes - 1, reads: lookupsMax + 1, bytes: entryBytes + n*memberBytes, entries: 1},
		{memory: entryBytes + n*memberBytes, reads: lookupsMax + 1, bytes: entryBytes + n*memberBytes, entries: 1, indexed: true},
	} {
		for _, name := range []string{"labels", "texts"} {
			r := read(t, manyOf(n), "null")
			x := r.Index
			x.fits = func(bytes int) bool { return bytes <= test.memory }
			v := r.Object.v.Get("metadata", "labels")
			if name == "texts" {
				v = r.Object.v.Get("texts")
			}
			if x.bytes != 0 || x.entries != nil {
				t.Fatalf("got %+v, want an empty index", x)
			}
			find := func() bool {
				if name == "labels" {
					return x.Member(v, "label-7").EqualString("v") && !x.Member(v, "nope").Exists() &&
						x.Member(v, "label-1499").Exists()
				}
				return x.Element(v, 7).EqualString("t7") && !x.Element(v, n).Exists() && x.Element(v, n-1).EqualString("t1499")
			}
			for range 3 { // 9 lookups, of which the last one makes the index
				if !find() {
					t.Errorf("%s with memory for %d: cannot find what is there", name, test.memory)
				}
			}
			e := x.entries[v]
			indexed := e != nil && (len(e.members) == n || len(e.elements) == n)
			if test.entries == 0 { // looked up each time
				test.bytes = 3 * 3 * entryBytes
			}
			if x.reads != test.reads || x.bytes != test.bytes || len(x.entries) != test.entries || indexed != test.indexed {
				t.Errorf("%s with memory for %d: got %d reads, %d bytes, %d entries, an index: %v, want %+v",
					name, test.memory, x.reads, x.bytes, len(x.entries), indexed, test)
			}
			before := *x
			if find(); test.indexed && (x.reads != before.reads || x.bytes != before.bytes) {
				t.Errorf("%s: got %d reads and %d bytes, want %d and %d as before", name, x.reads, x.bytes, before.reads, before.bytes)
			}
			if x.Len(v) != n {
				t.Errorf("%s: got %d, want %d", name, x.Len(v), n)
			}
		}
	}
}

// TestIndexLarge expects an index for documents of largeMin bytes and more, where the larger
// of both objects counts.
func TestIndexLarge(t *testing.T) {
	pad := func(n int) string { return "{" + strings.Repeat(" ", n-2) + "}" }
	for _, test := range []struct {
		object, oldObject int
		want              bool
	}{{largeMin - 1, largeMin - 1, false}, {largeMin, 2, true}, {2, largeMin, true}, {largeMin + 1, 2, true}} {
		r := read(t, pad(test.object), pad(test.oldObject))
		if got := r.Index != nil; got != test.want || r.Object.in != r.Index || r.OldObject.in != r.Index {
			t.Errorf("%+v: got an index: %v", test, got)
		}
	}
	r := read(t, `{"none":{},"list":[1],"twice":{"a":1,"b":2,"a":3},"pad":"`+strings.Repeat(" ", largeMin)+`"}`, "null")
	for range 2 { // empty objects and arrays are counted once as well
		if n := r.Index.Len(r.Object.v.Get("none")); n != 0 || r.Index.reads != 1 {
			t.Errorf("got %d members of an empty object, and %d reads, want 0 and 1", n, r.Index.reads)
		}
	}
	list, twice := r.Object.Get(types.String("list")).(traits.Lister), r.Object.v.Get("twice")
	for range 2 * lookupsMax {
		if got := list.Get(types.Int(-1)); !types.IsError(got) {
			t.Errorf("an element of a negative index: got %v, want an error", got)
		}
		if n, _ := r.Index.Member(twice, "a").Int64(); n != 1 || r.Index.Member(twice, "c").Exists() {
			t.Errorf("got %d for a name that two members have, want the first", n)
		}
	}
}

// TestLookups tests objects with many members and elements, and with four times as many.
// Lookups for each member or element use an index that is made once.
func TestLookups(t *testing.T) {
	const n = 1500 // more than codec finds without reading
	labels := func(o *Object) *Object {
		return o.Get(types.String("metadata")).(*Object).Get(types.String("labels")).(*Object)
	}
	texts := func(o *Object) *List { return o.Get(types.String("texts")).(*List) }
	each := func(v traits.Iterable, does func(i types.Int, v ref.Val) bool) bool {
		i := types.Int(0)
		for it := v.Iterator(); it.HasNext() == types.True; i++ {
			if !does(i, it.Next()) {
				return false
			}
		}
		return true
	}
	for name, holds := range map[string]func(object, oldObject *Object) bool{
		"equal objects": func(object, oldObject *Object) bool { return object.Equal(oldObject) == types.True },
		"equal labels":  func(object, oldObject *Object) bool { return labels(object).Equal(labels(oldObject)) == types.True },
		"names": func(object, oldObject *Object) bool {
			return each(labels(object), func(_ types.Int, k ref.Val) bool { return labels(oldObject).Contains(k) == types.True })
		},
		"members": func(object, _ *Object) bool {
			return each(labels(object), func(_ types.Int, k ref.Val) bool { return labels(object).Get(k) == types.String("v") })
		},
		"sizes": func(object, _ *Object) bool {
			return each(texts(object), func(types.Int, ref.Val) bool { return labels(object).Size().(types.Int) > 0 })
		},
		"elements": func(object, oldObject *Object) bool {
			return each(texts(object), func(i types.Int, v ref.Val) bool { return texts(oldObject).Get(i) == v })
		},
		"elements backwards": func(object, _ *Object) bool {
			return each(texts(object), func(i types.Int, _ ref.Val) bool {
				last := texts(object).Size().(types.Int) - 1
				return texts(object).Get(last-i) == types.String(fmt.Sprint("t", int(last-i)))
			})
		},
	} {
		var reads [2]int
		for i, many := range [...]int{n, 4 * n} {
			r := read(t, manyOf(many), manyOf(many))
			if !holds(&r.Object, &r.OldObject) {
				t.Errorf("%s of %d: got false, want true", name, many)
			}
			reads[i] = r.Index.reads
			if e := r.Index.entries[labels(&r.OldObject).v]; strings.HasPrefix(name, "equal") && (e == nil || e.members == nil) {
				t.Errorf("%s: got no index of the labels, want one", name)
			}
		}
		if reads[1] > reads[0] || reads[0] == 0 || reads[0] > 8*lookupsMax {
			t.Errorf("%s: got %d reads of whole objects and arrays, with four times as many %d, want as many, and few",
				name, reads[0], reads[1])
		}
	}
}

// TestRefresh reads the objects again after an edit. Without an edit, the index stays.
func TestRefresh(t *testing.T) {
	r := read(t, manyOf(1500), "null")
	kind := func() ref.Val { return r.Object.Get(types.String("kind")) }
	for _, want := range []types.String{"X", "Y"} {
		review := r.Request.review
		review.Object.SetString(string(want), "kind")
		r.Refresh()
		lookups := 0
		for range 2 {
			if got := kind(); got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			r.Refresh()
			lookups++
			if got := r.Index.entries[r.Object.v].lookups; got != lookups {
				t.Errorf("got an index that counted %d lookups, want %d", got, lookups)
			}
		}
	}
}

// TestNoMemoryToDecode tests values of a document for whose decoding there is no memory: they
// are empty, and have their type.
func TestNoMemoryToDecode(t *testing.T) {
	object := read(t, `{"kind":"X","list":[1]}`, "null").Object.v
	list := object.Get("list")
	object.Refuse(codec.ErrNoMemory)
	for v, want := range map[codec.Value]any{object: map[string]any{}, list: []any{}} {
		val := ValueOf(v)
		got, err := val.ConvertToNative(reflect.TypeOf(want))
		if !reflect.DeepEqual(got, want) || err != nil || !reflect.DeepEqual(val.Value(), want) {
			t.Errorf("got %#v, %v, and %#v, want %#v", got, err, val.Value(), want)
		}
		if got := Decoded(v); got != nil {
			t.Errorf("got %v, want no value to compare", got)
		}
	}
}
