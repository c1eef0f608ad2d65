package diff_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/fastadmit/fastadmit/codec"
)

// FuzzPatch replaces a member by another value, makes random edits, and applies
// the patch.
func FuzzPatch(f *testing.F) {
	objects(f, func(_ string, object []byte) {
		f.Add(object, string(object), uint64(len(object)))
	})
	f.Add([]byte(`{"a":{"b":[1,{"c":null},"x"],"d":{"e":{}}}}`), `{"d":{"e":[]},"b":["x",{"c":1},1,2]}`, uint64(1))
	f.Add([]byte(`{"a":[[1,2],[3],{"a~/":0}]}`), `[[2,1],{"a~/":[0]}]`, uint64(2))
	f.Add([]byte(` {"a" : "\u00e9" , "" : 1e0 } `), `"é"`, uint64(3))
	f.Fuzz(func(t *testing.T, text []byte, value string, seed uint64) {
		if len(text)+len(value) > 64<<10 || !json.Valid(text) || !utf8.Valid(text) || hasDuplicates(t, text) {
			return
		}
		var o codec.Object
		o.Reset(text)
		if o.Root().Kind() != codec.KindObject {
			return // the API server never sends this
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		if json.Valid([]byte(value)) && !hasDuplicates(t, []byte(value)) {
			o.Set(value, "a")
			if o.Err() != nil {
				o.Reset(text) // white space around it, or invalid UTF-8
			}
		}
		e := editor{rng, &o}
		for range rng.IntN(5) {
			e.edit()
		}
		checkPatch(t, text, &o)
	})
}

// hasDuplicates reports whether encoding/json drops members of text: which of
// two members with the same name a patch changes is not defined.
func hasDuplicates(t *testing.T, text []byte) bool {
	var o codec.Object
	o.Reset(text)
	var count func(v codec.Value) int
	count = func(v codec.Value) int {
		n := 1
		for _, element := range v.Elements() {
			n += count(element)
		}
		for _, member := range v.Members() {
			n += count(member)
		}
		return n
	}
	var countPlain func(v any) int
	countPlain = func(v any) int {
		n := 1
		switch v := v.(type) {
		case []any:
			for _, element := range v {
				n += countPlain(element)
			}
		case map[string]any:
			for _, member := range v {
				n += countPlain(member)
			}
		}
		return n
	}
	return count(o.Root()) != countPlain(decoded(t, text))
}
