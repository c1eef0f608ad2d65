package codec_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

// fuzzedBytesMax is the maximum length of an input. A long one takes the time of many.
const fuzzedBytesMax = 32 << 10

// FuzzDecode compares Decode with the decoder of Kubernetes: encoding/json, but with
// case-sensitive names.
func FuzzDecode(f *testing.F) {
	for _, name := range corpus.Names() {
		f.Add(corpus.MustRead(name))
	}
	f.Add(request(codec.APIVersionV1, "\u2028\"é"))
	f.Add([]byte(v1Head + `{"uid":"1","kind":{"kind":"A"},"requestKind":{"kind":"A"},"object":{"a":[{}]},"uid":"2"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) <= fuzzedBytesMax {
			compareDecode(t, body)
		}
	})
}

// compareDecode decodes body with Decode and with Kubernetes' decoder, and compares
// the results if they must agree. It reports whether they must.
func compareDecode(t *testing.T, body []byte) bool {
	t.Helper()
	r := codec.Acquire()
	defer r.Release()
	err := r.Decode(body)
	apiVersion, want, wantErr := oracle(body, kjson.UnmarshalCaseSensitivePreserveInts)
	answerable := wantErr == nil && isAnswerable(t, body, want)
	if answerable {
		if err != nil {
			t.Fatalf("%s: %v, encoding/json decodes it", body, err)
		}
		checkAgainst(t, r, apiVersion, want)
	}
	if err == nil {
		readAll(r)
		if response := r.AppendResponse(nil); !json.Valid(response) {
			t.Errorf("not JSON: %q", response)
		}
	}
	return answerable
}

// isAnswerable reports whether Decode must accept body and agree with Kubernetes. The
// package comment lists the exceptions.
func isAnswerable(t *testing.T, body []byte, request *admissionv1.AdmissionRequest) bool {
	if request == nil || request.UID == "" || !utf8.Valid(body) {
		return false
	}
	doc := parse(t, body)
	if doc.hasDuplicates() {
		return false
	}
	if kind := doc.member("kind"); kind == nil || kind.scalar != "AdmissionReview" {
		return false
	}
	version := doc.member("apiVersion")
	if version == nil || version.scalar != codec.APIVersionV1 && version.scalar != codec.APIVersionV1beta1 {
		return false
	}
	names := doc.member("request").names
	object := slices.Index(names, "object")
	for _, name := range []string{"name", "namespace", "subResource", "requestSubResource"} {
		if object > 0 && names[object-1] == "userInfo" && slices.Index(names, name) > object {
			return false
		}
	}
	for _, name := range []string{"object", "oldObject", "options"} {
		if part := doc.member("request").member(name); part != nil && part.open != '{' && (part.open != 0 || part.scalar != nil) {
			return false
		}
	}
	return true
}

// FuzzObject reads and edits any text. If encoding/json accepts the text, the results
// must be equal.
func FuzzObject(f *testing.F) {
	objects(f, func(_ string, object []byte) { f.Add(object, `"Always"`, uint64(len(object))) })
	f.Add([]byte(` {"a" : [1, {"b~/\u0061": null} ], "\ud83d\ude00": "\\\"" } `), `[1,{"x":[]}]`, uint64(1))
	f.Add([]byte(`[[],{},[{}],"",0,-1.5e+3,true]`), `{"a":"\u00e9"}`, uint64(2))
	f.Add([]byte(`{"a":{x]},"b":[1 2]`), `tru`, uint64(3))
	for i, value := range []string{`-0`, `00`, `-`, `1.5`, `[1,-2,{"a":[],"b":{}}]`, `{"a"}`, `{"a":1,}`, `[nulll]`, `{"a":"b"`, `["\"]`} {
		f.Add([]byte(`{"a":1}`), value, uint64(i))
	}
	f.Fuzz(func(t *testing.T, text []byte, value string, seed uint64) {
		if len(text) > fuzzedBytesMax {
			return
		}
		fuzzValue(t, value)
		rng := rand.New(rand.NewPCG(seed, 0))
		var o codec.Object
		o.Reset(text)
		if !json.Valid(text) || !utf8.Valid(text) || parse(t, text).hasDuplicates() {
			readAndEdit(&o, rng, value)
			return
		}
		r := reader{t, &o}
		r.all(parse(t, text), nil)
		if o.Err() != nil {
			t.Fatal(o.Err())
		}
		m := newModel(t, text)
		if len(m.paths()) == 0 {
			return // a scalar has nothing to edit
		}
		s := &session{TB: t, rng: rng, object: &o, model: m}
		for range 8 {
			s.edit()
			s.read()
		}
		s.end(newModel(t, text))
	})
}

// fuzzValue checks that Set takes a value exactly if it is JSON in UTF-8.
func fuzzValue(t *testing.T, value string) {
	var o codec.Object
	o.Reset([]byte(`{"a":{}}`))
	o.Set(value, "a", "b")
	valid := json.Valid([]byte(value)) && utf8.ValidString(value) && strings.Trim(value, " \t\r\n") == value
	if (o.Err() == nil) != valid {
		t.Fatalf("Set(%q): got %v, want valid=%v", value, o.Err(), valid)
	}
	if !valid {
		return
	}
	readBelow(o.Root())
	if got := o.Root().JSON(); got != `{"a":{"b":`+value+`}}` || o.Err() != nil {
		t.Fatalf("Set(%q): got %s, %v", value, got, o.Err())
	}
}

// readAndEdit reads and edits a text that may not be JSON.
func readAndEdit(o *codec.Object, rng *rand.Rand, value string) {
	if bytes.Count([]byte(o.Root().JSON()), []byte{'['}) < 100 { // up to this depth
		readBelow(o.Root())
	}
	for range 8 {
		var path []string
		v := o.Root()
		for rng.IntN(4) > 0 && v.Len() > 0 {
			at := rng.IntN(v.Len())
			for i, element := range v.Elements() {
				if i == at {
					path, v = append(path, codec.Index(i)), element
				}
			}
			for name, member := range v.Members() {
				if at--; at < 0 {
					path, v = append(path, name), member
					break
				}
			}
		}
		switch rng.IntN(5) {
		case 0:
			o.Set(value, path...)
		case 1:
			o.Append("1", path...)
		case 2:
			o.Add("[]", path...)
		case 3:
			o.Remove(path...)
		case 4:
			o.SetString("x", append(path, "x", "y")...)
		}
	}
	_ = o.Root().JSON()
	for edit := range o.Edits() {
		_ = edit.Before.JSON() + edit.After.JSON()
	}
}
