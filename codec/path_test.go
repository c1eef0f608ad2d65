package codec_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// A reader compares an Object with the values that encoding/json read.
type reader struct {
	testing.TB
	object *codec.Object
}

// all checks the value at path and everything below it.
func (r *reader) all(want *document, path []string) {
	r.Helper()
	r.one(want, r.object.Get(path...), path)
	for i, item := range want.items {
		token := strconv.Itoa(i)
		if want.open == '{' {
			token = want.names[i]
		}
		r.all(item, append(path[:len(path):len(path)], token))
	}
}

// one checks all results that the methods of one value return.
func (r *reader) one(want *document, got codec.Value, path []string) {
	r.Helper()
	fail := func(what string, got, want any) {
		r.Helper()
		r.Errorf("%s of %q: got %v, want %v", what, path, got, want)
	}
	if kind := kindOf(want); got.Kind() != kind {
		fail("Kind", got.Kind(), kind)
	}
	if !got.Exists() || got.IsNull() != (want.open == 0 && want.scalar == nil) {
		fail("Exists and IsNull", []bool{got.Exists(), got.IsNull()}, want.scalar)
	}
	if got.Len() != len(want.items) {
		fail("Len", got.Len(), len(want.items))
	}
	if got.Get("no such member").Exists() || got.Get(strconv.Itoa(len(want.items))).Exists() && want.open == '[' {
		fail("Get of what is not there", "something", "nothing")
	}
	text, isString := want.scalar.(string)
	if got.String() != text || got.EqualString(text) != isString || got.EqualString(text+"x") {
		fail("String", got.String(), text)
	}
	if isTrue := want.scalar == true; got.Bool() != isTrue {
		fail("Bool", got.Bool(), isTrue)
	}
	number, _ := want.scalar.(json.Number)
	integer, err := strconv.ParseInt(string(number), 10, 64)
	if n, ok := got.Int64(); ok != (err == nil) || ok && n != integer {
		fail("Int64", n, number)
	}
	if scalar := scalarOf(want); got.Scalar() != scalar {
		fail("Scalar", got.Scalar(), scalar)
	}
	if plain := new(style).append(nil, want); !same(r, []byte(got.JSON()), plain) ||
		string(got.AppendJSON(nil)) != got.JSON() {
		fail("JSON", got.JSON(), string(plain))
	}
	var names []string
	for name, member := range got.Members() {
		names = append(names, name)
		if member.Kind() != kindOf(want.items[len(names)-1]) {
			fail("Members", member.Kind(), name)
		}
	}
	if want.open == '{' && !slices.Equal(names, want.names) || want.open != '{' && names != nil {
		fail("Members", names, want.names)
	}
	n := 0
	for i, element := range got.Elements() {
		if i != n || want.open != '[' || element.Kind() != kindOf(want.items[i]) {
			fail("Elements", i, n)
		}
		n++
	}
}

func kindOf(d *document) codec.Kind {
	switch d.scalar.(type) {
	case string:
		return codec.KindString
	case bool:
		return codec.KindBool
	case json.Number:
		return codec.KindNumber
	}
	switch d.open {
	case '{':
		return codec.KindObject
	case '[':
		return codec.KindArray
	}
	return codec.KindNull
}

func scalarOf(d *document) string {
	switch scalar := d.scalar.(type) {
	case string:
		return scalar
	case bool:
		return strconv.FormatBool(scalar)
	case json.Number:
		return string(scalar)
	}
	if d.open == 0 {
		return "null"
	}
	return ""
}

func TestGetEveryPath(t *testing.T) {
	rng := seed.Rand(t)
	s := style{rng: rng, shuffled: true, spaced: true, escaped: true}
	var object codec.Object
	f := func(name string, text []byte) {
		t.Helper()
		object.Reset(text)
		r := reader{t, &object}
		r.all(parse(t, text), nil)
		if err := object.Err(); err != nil || t.Failed() {
			t.Fatalf("%s: %v", name, err)
		}
	}
	objects(t, func(name string, text []byte) {
		f(name, text)
		if testing.Short() {
			return
		}
		f(name+" in another spelling", s.append(nil, parse(t, text)))
	})
}

// TestGetInAnyOrder reads more containers than the index has room for, in
// random order and with loops that are left early.
func TestGetInAnyOrder(t *testing.T) {
	rng := seed.Rand(t)
	var object codec.Object
	times := seed.Cases(t, 20, 60)
	if testing.Short() {
		times = 6
	}
	for range times {
		doc := randomDocument(rng, 5)
		for !isWide(doc) {
			doc = &document{open: '{', names: []string{"0", "1", "2"}, items: []*document{doc, randomDocument(rng, 5), {open: '{'}}}
		}
		text := (&style{rng: rng, spaced: rng.IntN(2) == 0}).append(nil, doc)
		object.Reset(text)
		r := reader{t, &object}
		for range 300 {
			want, got, path := doc, object.Root(), []string(nil)
			for len(want.items) > 0 && rng.IntN(8) > 0 {
				want, got, path = r.down(rng, want, got, path)
			}
			r.one(want, got, path)
			if object.Err() != nil || t.Failed() {
				t.Fatalf("%v in %s", object.Err(), text)
			}
		}
	}
}

// down goes one step down, by Get from here, from the root, or by a loop that
// reads another part of the document meanwhile.
func (r *reader) down(rng *rand.Rand, d *document, v codec.Value, path []string) (*document, codec.Value, []string) {
	at := rng.IntN(len(d.items))
	token := strconv.Itoa(at)
	if d.open == '{' {
		token = d.names[at]
	}
	path = append(path[:len(path):len(path)], token)
	switch rng.IntN(3) {
	case 0:
		return d.items[at], v.Get(token), path
	case 1:
		return d.items[at], r.object.Get(path...), path
	}
	var found codec.Value
	meanwhile := func(value codec.Value) {
		r.object.Get(strconv.Itoa(rng.IntN(3)), strconv.Itoa(rng.IntN(3)), strconv.Itoa(rng.IntN(3))).Len()
		if rng.IntN(4) == 0 {
			value.Len()
		}
	}
	i := 0
	for _, element := range v.Elements() {
		meanwhile(element)
		if i == at {
			found = element
		}
		i++
	}
	for _, member := range v.Members() {
		meanwhile(member)
		if i == at {
			found = member
		}
		i++
	}
	return d.items[at], found, path
}

// isWide reports whether there are more containers than the index has shapes.
func isWide(d *document) bool {
	containers := 0
	var count func(d *document)
	count = func(d *document) {
		if d.open != 0 {
			containers++
		}
		for _, item := range d.items {
			count(item)
		}
	}
	count(d)
	return containers > 200
}

// randomDocument returns a value of any kind with distinct names.
func randomDocument(rng *rand.Rand, depth int) *document {
	kind := rng.IntN(10)
	if depth == 0 {
		kind = rng.IntN(5)
	}
	switch kind {
	case 0:
		return &document{}
	case 1:
		return &document{scalar: rng.IntN(2) == 0}
	case 2:
		return &document{scalar: json.Number(strconv.Itoa(rng.IntN(2000) - 1000))}
	case 3, 4:
		return &document{scalar: randomString(rng)}
	case 5, 6:
		d := &document{open: '['}
		for range rng.IntN(6) {
			d.items = append(d.items, randomDocument(rng, depth-1))
		}
		return d
	}
	d := &document{open: '{'}
	for i := range rng.IntN(6) {
		d.names = append(d.names, strconv.Itoa(i)+randomString(rng))
		d.items = append(d.items, randomDocument(rng, depth-1))
	}
	return d
}

func randomString(rng *rand.Rand) string {
	const runes = `abcdefgh"\/~{}[]:,` + "\n\x00\x7fé世😀"
	all := []rune(runes)
	var s []rune
	for range rng.IntN(8) {
		s = append(s, all[rng.IntN(len(all))])
	}
	return string(s)
}

func TestCorpusIsThere(t *testing.T) {
	if n := len(corpus.Names()); n < 240 {
		t.Errorf("got %d recordings, want all", n)
	}
}
