package patching

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/fastadmit/fastadmit/codec"
)

// typesText has the Go types of built-in kinds, those of k8s.io/api, as far as their JSON is
// concerned. Linking them would double the size of the binary. TestTypes writes the file.
//
// A line is a struct, or a kind with the number of its struct: "kind apps/v1/Deployment 17". A struct
// is "struct" and its fields, name:option:type. The option is "e" for omitempty, "z" for omitzero. A
// type is the letter of a form, followed by the type of its elements or by the number of a struct.
//
//go:embed types.txt.gz
var typesText []byte

// A form is what the JSON of a Go type looks like.
type form byte

const (
	isPointer     form = '*'
	isList        form = '['
	isMap         form = '{'
	isStruct      form = '#'
	isBool        form = 'b'
	isNumber      form = 'n' // an integer
	isString      form = 's'
	isBytes       form = 'y'
	isTime        form = 't'
	isQuantity    form = 'q'
	isIntOrString form = 'i'
	isDuration    form = 'd'
	isRaw         form = 'r' // any JSON; null if there is none
)

type goType struct {
	form   form
	of     *goType            // of a pointer, a list or a map
	fields map[string]goField // of a struct
	always []string           // those that are encoded whatever their value is, creationTimestamp included
}

// isGoStruct reports whether values are structs in Go, which the option omitempty does not omit.
func (t *goType) isGoStruct() bool {
	switch t.form {
	case isStruct, isTime, isQuantity, isIntOrString, isDuration:
		return true
	}
	return false
}

type goField struct {
	omit string
	of   *goType
}

// types are the parsed typesText. Parsing takes some milliseconds, so it is done when an object is
// first changed.
var types = sync.OnceValue(func() map[string]*goType {
	r, err := gzip.NewReader(bytes.NewReader(typesText))
	var text []byte
	if err == nil {
		text, err = io.ReadAll(r)
	}
	if err != nil {
		panic(fmt.Sprintf("types.txt.gz: %v", err)) // TestTypes parses the same file
	}
	return parseTypes(string(text))
})

// typeOf returns the Go type of a built-in kind, nil for other kinds.
func typeOf(kind codec.GroupVersionKind) *goType {
	return types()[kind.Group+"/"+kind.Version+"/"+kind.Kind]
}

func parseTypes(text string) map[string]*goType {
	known, kinds := make(map[string]*goType), make(map[string]*goType)
	var find func(name string) *goType
	find = func(name string) *goType {
		t := known[name]
		if t == nil {
			t = &goType{form: form(name[0])}
			known[name] = t
			if strings.IndexByte("*[{", name[0]) >= 0 {
				t.of = find(name[1:])
			}
		}
		return t
	}
	structs := 0
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if words[0] == "kind" {
			kinds[words[1]] = find(string(isStruct) + words[2])
			continue
		}
		t := find(string(isStruct) + strconv.Itoa(structs))
		structs++
		t.fields = make(map[string]goField, len(words))
		for _, word := range words[1:] {
			parts := strings.SplitN(word, ":", 3)
			field := goField{omit: parts[1], of: find(parts[2])}
			if t.fields[parts[0]] = field; field.omit != "e" || field.of.isGoStruct() {
				t.always = append(t.always, parts[0])
			}
		}
	}
	return kinds
}
