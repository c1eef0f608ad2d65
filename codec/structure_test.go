package codec_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// TestStructureAltered replaces each bracket, comma and colon of small objects by
// every other character, except those of numbers, which are not checked here.
// Reading the whole object, in order or by index, must find an error if
// encoding/json does.
func TestStructureAltered(t *testing.T) {
	for _, object := range smallObjects {
		object = `{"x":` + object + `}`
		for i := range object {
			if i == 0 || strings.IndexByte("{}[],:", object[i]) < 0 {
				continue
			}
			for c := range byte(0x80) {
				if strings.IndexByte("+-.eE0123456789", c) >= 0 {
					continue
				}
				text := []byte(object)
				text[i] = c
				for name, walk := range map[string]func(codec.Value){"in order": walkAll, "by index": walkByIndex} {
					var o codec.Object
					o.Reset(slices.Clone(text))
					walk(o.Root())
					if want := json.Valid(text); (o.Err() == nil) != want {
						t.Errorf("%s, %s: got %v, want valid: %v", text, name, o.Err(), want)
					}
				}
			}
		}
	}
}

func walkAll(v codec.Value) {
	for _, element := range v.Elements() {
		walkAll(element)
	}
	for _, member := range v.Members() {
		walkAll(member)
	}
	_ = v.JSON()
}

func walkByIndex(v codec.Value) {
	for i := 0; v.Get(codec.Index(i)).Exists(); i++ {
		walkByIndex(v.Get(codec.Index(i)))
	}
	for _, member := range v.Members() {
		walkByIndex(member)
	}
	_ = v.JSON()
}
