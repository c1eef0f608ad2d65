package codec_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/fastadmit/fastadmit/codec"
)

// decisions is a source of random numbers that the fuzzer chooses, one for each byte:
// changing a byte changes a single edit. When the bytes are used up, it continues
// with behind.
type decisions struct {
	left   []byte
	behind rand.Source
}

// Uint64 implements rand.Source.
func (d *decisions) Uint64() uint64 {
	if len(d.left) == 0 {
		return d.behind.Uint64()
	}
	next := d.left[0]
	d.left = d.left[1:]
	return uint64(next) * 0x0101010101010101 // the caller may use any of the bits
}

// FuzzEdits makes edits to a document. They start at Values that were read before,
// between or after other edits, and some of them are undone. It makes the same edits
// to the result of encoding/json, and compares the document, each Edit, and the
// result of the patch.
func FuzzEdits(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	objects(f, func(_ string, object []byte) {
		chosen := make([]byte, 64)
		for i := range chosen {
			chosen[i] = byte(rng.Uint32())
		}
		f.Add(object, chosen)
	})
	f.Add([]byte(`{"a":{"b":[1,{"c":null},"x"],"d":{"e":{}}},"\u0061b":"é","":[[]]}`), []byte("\x80\x10\xf0\x40\x20"))
	f.Fuzz(func(t *testing.T, text, chosen []byte) {
		if len(text) > fuzzedBytesMax || !json.Valid(text) || !utf8.Valid(text) || parse(t, text).hasDuplicates() {
			return
		}
		var o codec.Object
		o.Reset(text)
		if o.Root().Kind() != codec.KindObject {
			return
		}
		source := &decisions{chosen, rand.NewPCG(3, 4)}
		s := &session{TB: t, rng: rand.New(source), object: &o, model: newModel(t, text)}
		for n := 0; n < 30 && len(source.left) > 0; n++ {
			switch s.rng.IntN(8) {
			case 0, 1:
				s.hold()
			case 2:
				s.read()
			case 3:
				s.detour()
			default:
				s.edit()
			}
		}
		s.end(newModel(t, text))
	})
}
