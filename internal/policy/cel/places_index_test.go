package cel

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestPlaces has lookups read the text lookupsMax times, and then use an index, as far as
// there is memory for it.
func TestPlaces(t *testing.T) {
	const n = 1500
	for _, test := range []struct {
		memory               int // that there is
		reads, bytes, places int
		indexed              bool
	}{
		{memory: 0, bytes: placeBytes},
		{memory: placeBytes - 1, bytes: placeBytes},
		{memory: placeBytes, reads: lookupsMax + 1, bytes: placeBytes + n*memberBytes, places: 1}, // and to count the members
		{memory: placeBytes + n*memberBytes - 1, reads: lookupsMax + 1, bytes: placeBytes + n*memberBytes, places: 1},
		{memory: placeBytes + n*memberBytes, reads: lookupsMax + 1, bytes: placeBytes + n*memberBytes, places: 1, indexed: true},
	} {
		for _, name := range []string{"labels", "texts"} {
			in := NewInput(t.Context(), reviewOf(t, manyOf(n)))
			p := &in.places
			p.fits = func(bytes int) bool { return bytes <= test.memory }
			v := in.object.v.Get("metadata", "labels")
			if name == "texts" {
				v = in.object.v.Get("texts")
			}
			if p.bytes != 0 || p.known != nil {
				t.Fatalf("got %+v, want places that know nothing", p)
			}
			find := func() bool {
				if name == "labels" {
					return p.member(v, "label-7").EqualString("v") && !p.member(v, "nope").Exists() && p.member(v, "label-1499").Exists()
				}
				return p.element(v, 7).EqualString("t7") && !p.element(v, n).Exists() && p.element(v, n-1).EqualString("t1499")
			}
			for range 3 { // 9 lookups, of which the last one makes the index
				if !find() {
					t.Errorf("%s with memory for %d: cannot find what is there", name, test.memory)
				}
			}
			k := p.known[v]
			indexed := k != nil && (len(k.members) == n || len(k.elements) == n)
			if test.places == 0 { // asked for in each lookup
				test.bytes = 3 * 3 * placeBytes
			}
			if p.reads != test.reads || p.bytes != test.bytes || len(p.known) != test.places || indexed != test.indexed {
				t.Errorf("%s with memory for %d: got %d reads, %d bytes, %d places, an index: %v, want %+v", name, test.memory, p.reads, p.bytes, len(p.known), indexed, test)
			}
			before := *p
			if find(); test.indexed && (p.reads != before.reads || p.bytes != before.bytes) {
				t.Errorf("%s: got %d reads and %d bytes, want %d and %d as before", name, p.reads, p.bytes, before.reads, before.bytes)
			}
			if p.len(v) != n {
				t.Errorf("%s: got %d, want %d", name, p.len(v), n)
			}
		}
	}
}

// TestPlacesLarge has places for documents of largeMin bytes and more, of which either may
// be the larger one, and the first of two members of one name in an index too.
func TestPlacesLarge(t *testing.T) {
	for _, test := range []struct {
		object, oldObject int
		want              bool
	}{{largeMin - 1, largeMin - 1, false}, {largeMin, 2, true}, {2, largeMin, true}, {largeMin + 1, 2, true}} {
		pad := func(n int) string { return "{" + strings.Repeat(" ", n-2) + "}" }
		in := NewInput(t.Context(), reviewOfBody(t, []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","object":`+pad(test.object)+`,"oldObject":`+pad(test.oldObject)+`}}`)))
		if got := in.object.in != nil; got != test.want || in.oldObject.in != in.object.in {
			t.Errorf("%+v: got places: %v", test, got)
		}
	}
	x := new(Compiler).Compile("object.list.all(l, object.twice.a == 1 && object.twice.b == 2 && !has(object.twice.c))", Declarations{}, Bool)
	text := []byte(`{"kind":"X","none":{},"twice":{"a":1,"b":2,"a":3},"list":` + numbered(2*lookupsMax) + `,"pad":"` + strings.Repeat(" ", largeMin) + `"}`)
	if value, err, fatal := new(Compiler).Begin(NewInput(t.Context(), reviewOf(t, text)), celconfig.RuntimeCELCostBudget).Evaluate(x); value != types.True {
		t.Errorf("got %v, %v, %v, want true", value, err, fatal)
	}
	x = new(Compiler).Compile("object.list.all(l, !object.list[?-1].hasValue())", Declarations{}, Bool)
	if value, err, fatal := new(Compiler).Begin(NewInput(t.Context(), reviewOf(t, text)), celconfig.RuntimeCELCostBudget).Evaluate(x); value != types.True || x.closure == nil {
		t.Errorf("an element of a negative index: got %v, %v, %v, want none, by a closure", value, err, fatal)
	}
	in := NewInput(t.Context(), reviewOf(t, text))
	for range 2 { // what is empty is counted once as well
		if n := in.places.len(in.object.v.Get("none")); n != 0 || in.places.reads != 1 {
			t.Errorf("got %d members of an empty object, and %d reads, want 0 and 1", n, in.places.reads)
		}
	}
	list := valueOf(in.object.v.Get("list"), in.object.in).(traits.Lister)
	for range 2 * lookupsMax {
		if got := list.Get(types.Int(-1)); !types.IsError(got) {
			t.Errorf("an element of a negative index: got %v, want an error", got)
		}
	}
}
