package codec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/fastadmit/fastadmit/corpus"
)

// A document is a JSON document with its members in their order, read by
// encoding/json.
type document struct {
	scalar any // nil, bool, json.Number or string, unless it is a container
	open   json.Delim
	names  []string
	items  []*document
}

func parse(t testing.TB, text []byte) *document {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	doc, err := parseNext(d)
	if err != nil {
		t.Fatalf("encoding/json: %v in %.200q", err, text)
	}
	return doc
}

func parseNext(d *json.Decoder) (*document, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return &document{scalar: token}, nil
	}
	doc := &document{open: open}
	for d.More() {
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			doc.names = append(doc.names, name.(string))
		}
		item, err := parseNext(d)
		if err != nil {
			return nil, err
		}
		doc.items = append(doc.items, item)
	}
	_, err = d.Token() // the closing bracket
	return doc, err
}

// member returns the first member of that name, nil if there is none.
func (d *document) member(name string) *document {
	if i := slices.Index(d.names, name); i >= 0 {
		return d.items[i]
	}
	return nil
}

// hasDuplicates reports whether two members anywhere in d have the same name.
func (d *document) hasDuplicates() bool {
	seen := make(map[string]bool)
	for _, name := range d.names {
		if seen[name] {
			return true
		}
		seen[name] = true
	}
	return slices.ContainsFunc(d.items, (*document).hasDuplicates)
}

// A style is a way to write a document without changing its meaning.
type style struct {
	rng      *rand.Rand
	shuffled bool // members in another order
	spaced   bool // white space wherever it is allowed
	escaped  bool // some characters of names and strings as \uXXXX
}

// append writes d in the style.
func (s *style) append(dst []byte, d *document) []byte {
	dst = s.space(dst)
	switch d.open {
	case '{':
		dst = append(dst, '{')
		for i, at := range s.order(len(d.items)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = s.space(s.string(s.space(dst), d.names[at]))
			dst = s.append(append(dst, ':'), d.items[at])
		}
		return s.space(append(s.space(dst), '}'))
	case '[':
		dst = append(dst, '[')
		for i, item := range d.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = s.append(dst, item)
		}
		return s.space(append(s.space(dst), ']'))
	}
	if text, ok := d.scalar.(string); ok {
		return s.space(s.string(dst, text))
	}
	return s.space(fmt.Append(dst, literal(d.scalar)))
}

func literal(scalar any) any {
	if scalar == nil {
		return "null"
	}
	return scalar
}

func (s *style) order(n int) []int {
	if s.shuffled {
		return s.rng.Perm(n)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

func (s *style) space(dst []byte) []byte {
	if !s.spaced {
		return dst
	}
	for range s.rng.IntN(4) {
		dst = append(dst, " \t\r\n"[s.rng.IntN(4)])
	}
	return dst
}

func (s *style) string(dst []byte, text string) []byte {
	if !s.escaped {
		encoded, _ := json.Marshal(text) // no string fails
		return append(dst, encoded...)
	}
	dst = append(dst, '"')
	every := s.rng.IntN(2) == 0
	for _, r := range text {
		if !every && r >= ' ' && r != '"' && r != '\\' && s.rng.IntN(4) > 0 {
			dst = append(dst, string(r)...)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			escape := fmt.Sprintf("%04x", unit)
			if s.rng.IntN(2) == 0 {
				escape = strings.ToUpper(escape)
			}
			dst = append(append(dst, `\u`...), escape...)
		}
	}
	return append(dst, '"')
}

// same reports whether two JSON texts mean the same, numbers compared as they
// are written.
func same(t testing.TB, a, b []byte) bool {
	t.Helper()
	plain := func(text []byte) string {
		var v any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("encoding/json: %v in %.200q", err, text)
		}
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	return bytes.Equal(a, b) || plain(a) == plain(b)
}

// objects yields the object and the old object of every recording.
func objects(t testing.TB, yield func(name string, object []byte)) {
	t.Helper()
	for _, name := range corpus.Names() {
		var review struct {
			Request struct{ Object, OldObject json.RawMessage }
		}
		if err := json.Unmarshal(corpus.MustRead(name), &review); err != nil {
			t.Fatal(err)
		}
		for _, object := range []json.RawMessage{review.Request.Object, review.Request.OldObject} {
			if len(object) > 0 && object[0] == '{' {
				yield(name, object)
			}
		}
	}
}
