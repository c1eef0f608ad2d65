package codec_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// TestValueEdit makes edits that start at a Value that was read.
func TestValueEdit(t *testing.T) {
	f := func(text string, edit func(v codec.Value), want string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		edit(o.Get("a"))
		if got := o.Root().JSON(); got != want || o.Err() != nil {
			t.Errorf("%s: got %s, %v, want %s", text, got, o.Err(), want)
		}
	}
	type V = codec.Value
	f(`{"a":{"b":1}}`, func(v V) { v.SetString("x", "c", "d"); v.SetInt(2, "b"); v.SetBool(true, "c", "e") },
		`{"a":{"b":2,"c":{"d":"x","e":true}}}`)
	f(`{"a":{"b":1}}`, func(v V) { v.Set("[]", "b"); v.Append("1", "b"); v.AppendString("x", "c") }, `{"a":{"b":[1],"c":["x"]}}`)
	f(`{"a":{"b":[{}]}}`, func(v V) { v.Get("b", "0").SetInt(1, "c") }, `{"a":{"b":[{"c":1}]}}`)
	f(`{"a":{"b":1}}`, func(v V) { v.Get("b").SetInt(2) }, `{"a":{"b":2}}`)
	f(`{"a":{"b":1}}`, func(v V) { v.Get("b").Remove(); v.Get("b").Remove(); v.Get("b").Remove("c") }, `{"a":{}}`)
	f(`{"a":[1,2]}`, func(v V) { v.Append("3"); v.AppendString("4"); v.Add("5", "-") }, `{"a":[1,2,3,"4",5]}`)
	f(`{"a":[1,2]}`, func(v V) { v.Get("1").Add("3") }, `{"a":[1,3,2]}`)
	f(`{"a":[1,2]}`, func(v V) { v.Get("0").Remove() }, `{"a":[2]}`)
	f(`{"a":[1,{}]}`, func(v V) { v.Append("{}"); v.Get("2").SetInt(1, "b"); v.Get("1").SetInt(2, "b") }, `{"a":[1,{"b":2},{"b":1}]}`)

	// A null stands for its place, whatever value has been set there.
	f(`{"a":null}`, func(v V) { v.SetInt(1, "b"); v.SetInt(2, "c"); v.SetInt(3, "c") }, `{"a":{"b":1,"c":3}}`)
	f(`{"a":null}`, func(v V) { v.Append("1"); v.Append("2") }, `{"a":[1,2]}`)
	f(`{"a":null}`, func(v V) { v.SetInt(1, "b", "c"); v.Remove("b", "c"); v.Remove("x") }, `{"a":{"b":{}}}`)
	f(`{"a":null}`, func(v V) { v.Remove(); v.Set("1") }, `{"a":1}`)
	f(`{"a":[null,1]}`, func(v V) { n := v.Get("0"); n.SetInt(1, "b"); n.SetInt(2, "c") }, `{"a":[{"b":1,"c":2},1]}`)

	// Edits next to a Value and below it do not make it stale.
	f(`{"a":{"b":{"c":1}},"d":0}`, func(v V) {
		b := v.Get("b")
		v.SetInt(1, "x")
		b.SetInt(2, "c")
		b.SetInt(2, "c")
		b.Remove("c")
		b.SetInt(3, "c")
	}, `{"a":{"b":{"c":3},"x":1},"d":0}`)
	// Equal texts at two places are two values.
	f(`{"a":{"b":{"x":[{"y":1}]}}}`, func(v V) {
		v.SetInt(2, "b", "x", "0", "y")
		text := v.Get("b").JSON()
		v.Set(text, "c")
		v.Set(text, "d")
		v.Get("c", "x", "0").SetInt(3, "y")
		v.Get("d", "x", "0").SetInt(4, "y")
	}, `{"a":{"b":{"x":[{"y":2}]},"c":{"x":[{"y":3}]},"d":{"x":[{"y":4}]}}}`)
}

// TestValueEditRefused makes edits that start at Values that cannot be edited.
func TestValueEditRefused(t *testing.T) {
	f := func(read func(o *codec.Object) codec.Value, between func(o *codec.Object), pointer, reason string) {
		t.Helper()
		edits := map[string]func(v codec.Value){
			"Set":          func(v codec.Value) { v.Set("9", "x") },
			"SetString":    func(v codec.Value) { v.SetString("9", "x") },
			"SetInt":       func(v codec.Value) { v.SetInt(9, "x") },
			"SetBool":      func(v codec.Value) { v.SetBool(true, "x") },
			"Append":       func(v codec.Value) { v.Append("9", "x") },
			"AppendString": func(v codec.Value) { v.AppendString("9", "x") },
			"Add":          func(v codec.Value) { v.Add("9", "x") },
			"Remove":       func(v codec.Value) { v.Remove("x") },
		}
		for name, edit := range edits {
			var o codec.Object
			o.Reset([]byte(`{"a":{"b":{"x":1}},"l":[{"x":0},{"x":1},{"x":2}]}`))
			v := read(&o)
			between(&o)
			before, changes := string(o.Root().AppendJSON(nil)), o.Changes()
			if edit(v); name == "Remove" && !v.Exists() {
				if o.Err() != nil {
					t.Errorf("Remove: got %v", o.Err())
				}
				continue
			}
			fault, ok := errors.AsType[*codec.EditError](o.Err())
			if !ok || fault.Pointer != pointer || !strings.Contains(fault.Reason, reason) {
				t.Errorf("%s: got %v, want %q: %s", name, o.Err(), pointer, reason)
			}
			if got := string(o.Root().AppendJSON(nil)); got != before || o.Changes() != changes {
				t.Errorf("%s: got %s, want %s", name, got, before)
			}
		}
	}
	type (
		O = *codec.Object
		V = codec.Value
	)
	const stale = "was replaced, removed or moved after it was read; read it again"
	const missing = "is missing; start at the Value that contains it"
	b := func(o O) V { return o.Get("a", "b") }
	second := func(o O) V { return o.Get("l", "1") }
	f(b, func(o O) { o.Set(`{"x":1,"y":2}`, "a", "b") }, "/a/b/x", stale)
	f(b, func(o O) { o.Set("{}", "a") }, "/a/b/x", stale)
	f(b, func(o O) { o.Set(o.Get("a").JSON(), "c"); o.Set("1", "a") }, "/a/b/x", stale)
	f(b, func(o O) { o.Remove("a") }, "/a/b/x", stale)
	f(b, func(o O) { o.Remove("a", "b"); o.Set(`{"x":1}`, "a", "b") }, "/a/b/x", stale)
	f(second, func(o O) { o.Remove("l", "0") }, "/l/1/x", stale)
	f(second, func(o O) { o.Add("0", "l", "0") }, "/l/1/x", stale)
	f(second, func(o O) { o.Add("0", "l", "2") }, "/l/1/x", stale)
	f(func(o O) V { return o.Get("a", "c") }, func(O) {}, "/x", missing)
	f(func(o O) V { return o.Get("a", "c") }, func(o O) { o.Set("{}", "a", "c") }, "/x", missing)
	f(func(o O) V {
		o.Set("[]", "a", "b")
		for edit := range o.Edits() {
			return edit.Before
		}
		return V{}
	}, func(O) {}, "/x", stale)

	defer func() {
		if recover() == nil {
			t.Error("the zero Value was edited")
		}
	}()
	var zero V
	zero.SetString("x", "a")
}

// TestReadOnly edits objects that are not under review.
func TestReadOnly(t *testing.T) {
	f := func(read func(r *codec.Review) codec.Value, want string) {
		t.Helper()
		r := codec.Acquire()
		defer r.Release()
		if err := r.Decode([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","userInfo":{},` +
			`"object":{"a":{}},"oldObject":{"a":{}},"options":{"a":{}}}}`)); err != nil {
			t.Fatal(err)
		}
		read(r).SetString("x", "b")
		if fault, ok := errors.AsType[*codec.EditError](r.Err()); !ok || !strings.HasPrefix(r.Err().Error(), want) ||
			!strings.Contains(fault.Reason, "only Review.Object can be edited") {
			t.Errorf("got %v, want %s", r.Err(), want)
		}
		if r.Object.Changes()+r.OldObject.Changes()+r.Options.Changes() != 0 {
			t.Errorf("%s: something was changed", want)
		}
	}
	f(func(r *codec.Review) codec.Value { return r.OldObject.Get("a") }, `request.oldObject: cannot edit "/a/b"`)
	f(func(r *codec.Review) codec.Value { return r.OldObject.Root() }, `request.oldObject: cannot edit "/b"`)
	f(func(r *codec.Review) codec.Value { return r.Options.Get("a") }, `request.options: cannot edit "/a/b"`)
	f(func(r *codec.Review) codec.Value { return r.UserInfo() }, `AdmissionReview: cannot edit "/b"`)
}
