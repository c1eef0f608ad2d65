package codec_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// smallReviews have all fields, each with a different text: as kube-apiserver writes
// them, and in other forms.
var smallReviews = []string{
	v1Head + `{"uid":"u1","kind":{"group":"g1","version":"v1","kind":"K1"},"resource":{"group":"g2","version":"v2",` +
		`"resource":"r2"},"subResource":"s1",` +
		`"requestKind":{"group":"g3","version":"v3","kind":"K3"},"requestResource":{"group":"g4","version":"v4",` +
		`"resource":"r4"},"requestSubResource":"s2",` +
		`"name":"n1","namespace":"n2","operation":"UPDATE","userInfo":{"username":"who","groups":["a","b"],"extra":{"e":["x"]}},` +
		`"object":{"a":[{"b":1},2]},"oldObject":{"c":{}},"dryRun":true,"options":{"o":"p"}}}`,
	` { "request" : {"options":{"o":[]} , "dryRun":false,"oldObject": null,"object":{ },"userInfo":{"extra":{},"groups":[],` +
		`"username":"\u0061"},` +
		`"operat\u0069on":"CREATE","namespace":"","name":"n","requestSubResource":"s2","requestResource":{"resource":"r4",` +
		`"version":"v4","group":"g4"},` +
		`"requestKind":{"kind":"K3","group":"","version":"v3","x":{}},"subResource":"s1","resource":{"version":"v2",` +
		`"resource":"r2"},"kind":{"group":"g1","version":"v1","x":"K1"},` +
		`"uid":"u\n1"}, "apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview" } `,
	v1Head + `{"uid":"1","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1",` +
		`"resource":"pods"},"requestKind":{"group":"","version":"v1","kind":"Pod"},` +
		`"requestResource":{"group":"","version":"v1","resource":"pods"},"object":null,"oldObject":null,"options":null}}`,
	v1Head + `{"uid":"1","kind":{"kind":"K"},"resource":{"resource":"r"},"requestKind":{"kind":"K"},` +
		`"requestResource":{"resource":"r"},"operation":"CREATE","userInfo":{},` +
		`"object":{"a":{"b":[{}]}},"oldObject":null,"dryRun":false,"options":{"o":"p"}}}`,
}

// TestSmallCut cuts small reviews at every byte: each is an error, and nothing behind
// the end is read. Then it removes the beginnings of the reviews.
func TestSmallCut(t *testing.T) {
	for _, review := range smallReviews {
		if !compareDecode(t, []byte(review)) {
			t.Fatalf("%s is no review", review)
		}
		body := bytes.TrimSpace([]byte(review))
		for n := range body {
			r := codec.Acquire()
			if err := r.Decode(body[:n:n]); err == nil {
				t.Errorf("%s: no error", body[:n])
			}
			r.Release()
			compareDecode(t, body[n:])
		}
	}
}

// bytesThatMatter are the bytes that JSON's syntax uses, and some others.
const bytesThatMatter = "\"\\{}[]:,0-.e ntu/x\x00\x7f\x80"

// TestSmallAltered replaces each byte of small reviews by others, leaves each out, and
// writes each twice.
func TestSmallAltered(t *testing.T) {
	const answerableMin = 500
	answerable := 0
	check := func(body ...[]byte) {
		if compareDecode(t, bytes.Join(body, nil)) {
			answerable++
		}
	}
	others := bytesThatMatter
	if testing.Short() {
		others = `"\}:, x`
	}
	for _, review := range smallReviews {
		body := []byte(review)
		for i := range body {
			for _, c := range []byte(others) {
				check(body[:i], []byte{c}, body[i+1:])
			}
			check(body[:i], body[i+1:])
			check(body[:i+1], body[i:])
		}
	}
	if answerable < answerableMin {
		t.Errorf("%d were reviews, want %d at least", answerable, answerableMin)
	}
}

// smallObjects have everything that an object may have.
var smallObjects = []string{
	`{"a":[{"b":1},[],{}],"c":{"d":"e\u0066","":null},"g":-1.5e+3,"hi":true}`,
	` { "a" : [ 1 , "b" , { "c" : false } ] , "longer than eight bytes" : "é\\\"\ud83d\ude00 and so on" } `,
	`[[1,2],[3,"4"],{"name":"a"},{"name":"b","x":[]}]`,
}

// TestSmallObjectsAltered does what TestSmallAltered does for objects, which it reads
// and edits. It cuts them too.
func TestSmallObjectsAltered(t *testing.T) {
	rng := seed.Rand(t)
	check := func(parts ...[]byte) {
		text := bytes.Join(parts, nil)
		var o codec.Object
		o.Reset(text[:len(text):len(text)])
		if !json.Valid(text) || !utf8.Valid(text) || parse(t, text).hasDuplicates() {
			readAndEdit(&o, rng, `{"x":1}`)
			return
		}
		r := reader{t, &o}
		r.all(parse(t, text), nil)
		if o.Err() != nil {
			t.Errorf("%s: %v", text, o.Err())
		}
	}
	for _, object := range smallObjects {
		text := []byte(object)
		for i := range text {
			check(text[:i])
			check(text[:i], text[i+1:])
			for _, c := range []byte(bytesThatMatter) {
				check(text[:i], []byte{c}, text[i+1:])
			}
		}
	}
}

// TestSmallValues replaces a byte of JSON values. The result is accepted exactly if it
// is JSON.
func TestSmallValues(t *testing.T) {
	values := []string{`{"a":[1,-20,{"b":null}],"c":""}`, `[true,false,[],{},"long enough"]`, `"é\u0041"`, `-0`, `10`, `1.5e3`}
	for _, depth := range []int{15, 16, 17, 18, 40} {
		values = append(values, strings.Repeat("[", depth)+strings.Repeat("]", depth),
			strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth))
	}
	for _, value := range values {
		fuzzValue(t, value)
		for i := range len(value) {
			fuzzValue(t, value[:i])
			fuzzValue(t, value[i:])
			fuzzValue(t, value[:i]+value[i+1:])
			for _, c := range []byte(bytesThatMatter) {
				fuzzValue(t, value[:i]+string(c)+value[i+1:])
			}
		}
	}
}

// TestNotQuoted puts unquoted texts of the same length in the place of strings.
func TestNotQuoted(t *testing.T) {
	for _, body := range []string{
		`{"kind":[AdmissionReview],"apiVersion":"admission.k8s.io/v1","request":{"uid":"1"}}`,
		`{"kind":"AdmissionReview","apiVersion":{admission.k8s.io/v1},"request":{"uid":"1"}}`,
	} {
		r := codec.Acquire()
		if err := r.Decode([]byte(body)); err == nil {
			t.Errorf("%s: no error", body)
		}
		r.Release()
	}
	var o codec.Object
	o.Reset([]byte(`{"null":null,"zero":0}`))
	if !o.Get("zero").IsSet() || o.Get("null").IsSet() || o.Get("none").IsSet() {
		t.Error("got IsSet for null or nothing, or not for 0")
	}
	var zero codec.Value
	if zero.IsSet() || zero.IsNull() || zero.Exists() {
		t.Error("the zero Value is something")
	}
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "zero Value") {
			t.Errorf("an edit of the zero Value: got %q", got)
		}
	}()
	zero.SetInt(1)
}

// TestShownOfWrong tests how much of a wrong value an error shows: 64 bytes.
func TestShownOfWrong(t *testing.T) {
	for n := 62; n < 67; n++ {
		kind := `"` + strings.Repeat("x", n-2) + `"`
		r := codec.Acquire()
		err := r.Decode([]byte(`{"kind":` + kind + `,"apiVersion":"admission.k8s.io/v1","request":{"uid":"1"}}`))
		want := "got " + kind + ", want"
		if n > 64 {
			want = "got " + kind[:64] + "..., want"
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: got %v, want %s", n, err, want)
		}
		r.Release()
	}
}

// TestDuplicateIsStale edits a member whose name an object has twice, and then edits
// through the Value of the second one, which was removed.
func TestDuplicateIsStale(t *testing.T) {
	for _, many := range []int{0, 40, 3000} { // the number of members before it: with and without an index
		var b strings.Builder
		for i := range many {
			fmt.Fprintf(&b, `"m%d":%d,`, i, i)
		}
		var o codec.Object
		o.Reset([]byte(`{` + b.String() + `"a":1,"b":2,"a":3}`))
		var last codec.Value
		for name, member := range o.Root().Members() {
			if name == "a" {
				last = member
			}
		}
		o.SetInt(4, "a")
		if got := o.Root().Len(); got != many+2 || o.Err() != nil {
			t.Errorf("got %d members, %v, want %d", got, o.Err(), many+2)
		}
		last.SetInt(5)
		if _, ok := errors.AsType[*codec.EditError](o.Err()); !ok {
			t.Errorf("edit of the second of two, %d before: got %v, want an error", many, o.Err())
		}
	}
}

// TestRootIsSame sets a document to its current value.
func TestRootIsSame(t *testing.T) {
	var o codec.Object
	o.Reset([]byte(`"a"`))
	if o.SetString("a"); o.Err() != nil {
		t.Errorf("to the same: %v", o.Err())
	}
	if o.SetString("b"); o.Err() == nil {
		t.Error("to another: no error")
	}
}

// TestStaleBeyondNodes edits through a Value without a node in an element that has
// another value now, is of another kind, or was removed.
func TestStaleBeyondNodes(t *testing.T) {
	for name, change := range map[string]func(o *codec.Object){
		"object":    func(o *codec.Object) { o.Set(`{"a":{"b":2}}`, "list", "1500") },
		"scalar":    func(o *codec.Object) { o.Set(`1`, "list", "1500") },
		"in it":     func(o *codec.Object) { o.Set(`[]`, "list", "1500", "a") },
		"removed":   func(o *codec.Object) { o.Remove("list", "1500") },
		"before it": func(o *codec.Object) { o.Remove("list", "3") },
		"all":       func(o *codec.Object) { o.Set("[]", "list") },
	} {
		var o codec.Object
		o.Reset([]byte(`{"list":[` + strings.Repeat(`{"a":{"b":1}},`, 2000) + `0]}`))
		value := o.Get("list", "1500").Get("a").Get("b")
		if change(&o); o.Err() != nil {
			t.Fatal(name, o.Err())
		}
		if value.SetInt(7); o.Err() == nil {
			t.Errorf("%s: an edit of what is gone is no error", name)
		}
	}
}
