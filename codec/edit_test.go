package codec_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

func TestEdit(t *testing.T) {
	f := func(text string, edit func(o *codec.Object), want string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		edit(&o)
		if got := string(o.Root().AppendJSON(nil)); got != want || o.Err() != nil {
			t.Errorf("%s: got %s, %v, want %s", text, got, o.Err(), want)
		}
		if got := o.Root().JSON(); got != want {
			t.Errorf("%s: JSON: got %s, want %s", text, got, want)
		}
		if (o.Changes() != 0) != (text != want) {
			t.Errorf("%s: got %d changes", text, o.Changes())
		}
	}
	type O = *codec.Object
	f(`{"a":1}`, func(o O) { o.Set("2", "a") }, `{"a":2}`)
	f(`{"a":1}`, func(o O) { o.Set("1", "a") }, `{"a":1}`)
	f(`{"a":1}`, func(o O) { o.Set(`{"x":[]}`, "b") }, `{"a":1,"b":{"x":[]}}`)
	f(`{}`, func(o O) { o.Set("1", "a"); o.Set("2", "b"); o.Set("-3.5", "c") }, `{"a":1,"b":2,"c":-3.5}`)
	f(`{"a":[0]}`, func(o O) { o.Add("1", "a", "0"); o.Set("2", "b"); o.Set("3", "a", "1") }, `{"a":[1,3],"b":2}`)
	f(`{"a":1,"a":2,"b":3,"a":4}`, func(o O) { o.Set("5", "a"); o.Set("6", "c"); o.Remove("b") }, `{"a":5,"c":6}`)
	f(`{}`, func(o O) { o.SetString("q\"\n<é\xff", "a/b~c") }, `{"a/b~c":"q\"\n<é`+"\ufffd"+`"}`)
	f(`[1,2]`, func(o O) { o.Set("3", "1") }, `[1,3]`)
	f(`{"a":[{"b":1},{}]}`, func(o O) { o.Set("2", "a", "1", "b") }, `{"a":[{"b":1},{"b":2}]}`)
	f(`{"a":1}`, func(o O) { o.Set(`{"b":1}`, "a"); o.Set("2", "a", "b") }, `{"a":{"b":2}}`)
	f(`{"a":{"b":1}}`, func(o O) { o.Set("2", "a", "b"); o.Set("3", "a") }, `{"a":3}`)
	f(`{"a":{"b":1},"c":0}`, func(o O) { o.Set(o.Get("a").JSON(), "c"); o.Set("2", "c", "b") }, `{"a":{"b":1},"c":{"b":2}}`)

	f(`{"a":[]}`, func(o O) { o.Append("1", "a") }, `{"a":[1]}`)
	f(`{"a":[1]}`, func(o O) { o.Append("2", "a"); o.AppendString("3", "a") }, `{"a":[1,2,"3"]}`)
	f(`{}`, func(o O) { o.Append("1", "a") }, `{"a":[1]}`)
	f(`{"a":null}`, func(o O) { o.Append("1", "a") }, `{"a":[1]}`)
	f(`{"a":[1]}`, func(o O) { o.Append(`{}`, "a"); o.Set("2", "a", "1", "b") }, `{"a":[1,{"b":2}]}`)
	f(`[[1]]`, func(o O) { o.Append("2", "0") }, `[[1,2]]`)

	f(`{"a":[1,2]}`, func(o O) { o.Add("3", "a", "0") }, `{"a":[3,1,2]}`)
	f(`{"a":[1,2]}`, func(o O) { o.Add("3", "a", "1") }, `{"a":[1,3,2]}`)
	f(`{"a":[1,2]}`, func(o O) { o.Add("3", "a", "2") }, `{"a":[1,2,3]}`)
	f(`{"a":[1,2]}`, func(o O) { o.Add("3", "a", "-") }, `{"a":[1,2,3]}`)
	f(`{"a":[]}`, func(o O) { o.Add("3", "a", "0") }, `{"a":[3]}`)
	f(`{"a":{}}`, func(o O) { o.Add("3", "a", "-") }, `{"a":{"-":3}}`)
	f(`{"a":{"b":1}}`, func(o O) { o.Add("3", "a", "b") }, `{"a":{"b":3}}`)

	f(`{"a":1,"b":2}`, func(o O) { o.Remove("a") }, `{"b":2}`)
	f(`{"a":1}`, func(o O) { o.Remove("a") }, `{}`)
	f(`{"a":1}`, func(o O) { o.Remove("b"); o.Remove("a", "b"); o.Remove("c", "0") }, `{"a":1}`)
	f(`{"a":[1,2,3]}`, func(o O) { o.Remove("a", "1") }, `{"a":[1,3]}`)
	f(`{"a":[1,2,3]}`, func(o O) { o.Remove("a", "0"); o.Remove("a", "1"); o.Remove("a", "0") }, `{"a":[]}`)
	f(`{"a":[1]}`, func(o O) { o.Remove("a", "1"); o.Remove("a", "-") }, `{"a":[1]}`)
	f(`{"a":1}`, func(o O) { o.Remove("a"); o.Set("2", "a") }, `{"a":2}`)

	f(`[1]`, func(o O) { o.Append("2") }, `[1,2]`)
	f(`[1]`, func(o O) { o.Add("2", "-") }, `[1,2]`)

	// Missing or null parents are created.
	f(`{}`, func(o O) { o.Set("1", "a", "b", "c"); o.SetString("x", "a", "b", "d") }, `{"a":{"b":{"c":1,"d":"x"}}}`)
	f(`{"a":{"b":null,"c":1}}`, func(o O) { o.SetBool(true, "a", "b", "d") }, `{"a":{"b":{"d":true},"c":1}}`)
	f(`{"a":{"b":1}}`, func(o O) { o.Remove("a"); o.SetInt(-2, "a", "c", "d") }, `{"a":{"c":{"d":-2}}}`)
	f(`{}`, func(o O) { o.Append("1", "a", "b") }, `{"a":{"b":[1]}}`)
	f(`{"a":[null]}`, func(o O) { o.AppendString("x", "a", "0", "b") }, `{"a":[{"b":["x"]}]}`)
	f(`{}`, func(o O) { o.Add("1", "a", "b") }, `{"a":{"b":1}}`)
	f(`{"a":null}`, func(o O) { o.Add("1", "a", "-") }, `{"a":[1]}`)
	f(`{"a":{"b":null}}`, func(o O) { o.Remove("a", "b", "c"); o.Remove("a", "c", "d") }, `{"a":{"b":null}}`)

	f(`{"a":"x"}`, func(o O) { o.SetString("x", "a") }, `{"a":"x"}`)
	f(`{"a":"\u0078"}`, func(o O) { o.SetString("x", "a") }, `{"a":"\u0078"}`)
	f(`{"a":1}`, func(o O) { o.SetInt(1, "a") }, `{"a":1}`)
	f(`{"a":1}`, func(o O) { o.SetInt(math.MinInt64, "a") }, `{"a":-9223372036854775808}`)
	f(`{"a":true}`, func(o O) { o.SetBool(true, "a") }, `{"a":true}`)
	f(`{"a":true}`, func(o O) { o.SetBool(false, "a") }, `{"a":false}`)
}

func TestEditRefused(t *testing.T) {
	f := func(text string, edit func(o *codec.Object), pointer, reason string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		edit(&o)
		var fault *codec.EditError
		if !errors.As(o.Err(), &fault) || fault.Pointer != pointer || fault.Reason != reason {
			t.Errorf("%s: got %v, want %q: %s", text, o.Err(), pointer, reason)
			return
		}
		if got, want := o.Err().Error(), fmt.Sprintf("cannot edit %q: %s", pointer, reason); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := o.Root().JSON(); got != text || o.Changes() != 0 {
			t.Errorf("%s: got %s with %d changes", text, got, o.Changes())
		}
		o.Set("1", "other") // after an error edits are no-ops, and the first error stays
		o.Append("1", "others")
		o.Remove("a")
		o.SetString("x", "a", "b", "c")
		if got := o.Root().JSON(); got != text || !errors.Is(o.Err(), fault) {
			t.Errorf("%s: got %s, %v after a fault", text, got, o.Err())
		}
	}
	type O = *codec.Object
	const (
		noContainer = "neither an object nor an array"
		invalid     = "the new value is not valid JSON"
	)
	f(`{"a":1}`, func(o O) { o.Set("1") }, "", "cannot replace or remove the whole document")
	f(`{"a":1}`, func(o O) { o.Remove() }, "", "cannot replace or remove the whole document")
	f(`{"a":1}`, func(o O) { o.Add("1") }, "", "cannot replace or remove the whole document")
	f(`{"a":1}`, func(o O) { o.Append("1") }, "", "not an array")
	f(`null`, func(o O) { o.Append("1") }, "", "cannot replace or remove the whole document")
	f(`null`, func(o O) { o.Set("1", "a") }, "", "cannot replace or remove the whole document")
	f(`[1]`, func(o O) { o.Remove("0") }, "", "cannot insert into or remove from an array that is the document itself")
	f(`1`, func(o O) { o.Set("1", "a") }, "", noContainer)
	f(``, func(o O) { o.Set("1", "a") }, "/a", "there is no document, as for the object of a DELETE request")
	f(`{"a":1}`, func(o O) { o.Set("1", "a", "b") }, "/a", noContainer)
	f(`{"x/y":{"~":1}}`, func(o O) { o.Set("1", "x/y", "~", "c") }, "/x~1y/~0", noContainer)
	f(`{"a":[]}`, func(o O) { o.Set("1", "a", "0") }, "/a/0", "the array is shorter than that, use Append")
	f(`{"a":[1]}`, func(o O) { o.Set("1", "a", "-") }, "/a/-", "the array is shorter than that, use Append")
	f(`{"a":[1]}`, func(o O) { o.Set("1", "a", "1", "b") }, "/a/1", "the array is shorter than that, use Append")
	f(`{"a":[1]}`, func(o O) { o.Append("1", "a", "1") }, "/a/1", "the array is shorter than that, use Append")
	f(`{"a":{}}`, func(o O) { o.Append("1", "a") }, "/a", "not an array")
	f(`{"a":""}`, func(o O) { o.AppendString("1", "a") }, "/a", "not an array")
	f(`{"a":[1]}`, func(o O) { o.Add("1", "a", "2") }, "/a/2", "no such index in the array")
	f(`{"a":[1]}`, func(o O) { o.Add("1", "a", "x") }, "/a/x", "no such index in the array")

	deep := strings.Repeat("[", 10001) + strings.Repeat("]", 10001)
	for _, json := range []string{
		"", " ", "x", "nul", "truefalse", "1 ", " 1", "1,2", "{", "[1,]", `{"a":1,}`, `{"a"}`, `{a:1}`, `{1:1}`, "01", "+1", "1.", ".5",
		"1e", "-", `"`, `"a`, `a"`, `"a"b"`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\"`, "\"\n\"", "\"\xff\"", `["\x"]`, "[\"\t\"]",
		"{\"\x01\":1}",
		`"a\`, "\"\x01", "\"\xff", `{"a\`, `["a":1]`, `{"a",1}`, "'a'", "NaN", "[1 2]", "[]]", "\ufeff1", deep,
	} {
		f(`{"a":{"b":[1]}}`, func(o O) { o.Set(json, "a", "b") }, "/a/b", invalid)
		f(`{"a":{"b":[1]}}`, func(o O) { o.Append(json, "a", "b") }, "/a/b", invalid)
		f(`{"a":{"b":[1]}}`, func(o O) { o.Add(json, "a", "b", "0") }, "/a/b/0", invalid)
	}
}

// TestEditInvalidDocument edits behind a syntax error.
func TestEditInvalidDocument(t *testing.T) {
	var o codec.Object
	o.Reset([]byte(`{"a":[1 2]}`))
	o.Append("3", "a")
	var fault *codec.SyntaxError
	if !errors.As(o.Err(), &fault) || fault.Offset != 8 {
		t.Errorf("got %v, want a SyntaxError at byte 8", o.Err())
	}
	if o.Changes() != 0 {
		t.Errorf("got %d changes", o.Changes())
	}
}

// TestEditInLoop edits an object or array during a loop over it. Every loop
// must end.
func TestEditInLoop(t *testing.T) {
	f := func(edit func(o *codec.Object, v codec.Value), times int, want string) {
		t.Helper()
		for _, edited := range []bool{false, true} { // an array that was edited before takes another code path
			var o codec.Object
			o.Reset([]byte(`{"a":[1,2],"o":{"x":1,"y":2}}`))
			if edited {
				o.Reset([]byte(`{"a":[0],"o":{"x":0}}`))
				o.Set("1", "a", "0")
				o.Append("2", "a")
				o.Set("1", "o", "x")
				o.Set("2", "o", "y")
			}
			seen := 0
			for _, v := range o.Get("a").Elements() {
				edit(&o, v)
				seen++
			}
			for _, v := range o.Get("o").Members() {
				edit(&o, v)
				seen++
			}
			if got := o.Root().JSON(); seen != times || got != want || o.Err() != nil {
				t.Errorf("got %d times, %s, %v, want %d times, %s", seen, got, o.Err(), times, want)
			}
		}
	}
	type (
		O = *codec.Object
		V = codec.Value
	)
	f(func(o O, v V) { o.Append("9", "a") }, 4, `{"a":[1,2,9,9,9,9],"o":{"x":1,"y":2}}`)
	f(func(o O, v V) { o.Set("9", "o", "n"+v.Scalar()) }, 6, `{"a":[1,2],"o":{"x":1,"y":2,"n1":9,"n2":9,"n9":9}}`)
	f(func(o O, v V) { o.Add("9", "a", "0") }, 4, `{"a":[9,9,9,9,1,2],"o":{"x":1,"y":2}}`)
	f(func(o O, v V) { o.Remove("a", "0") }, 4, `{"a":[],"o":{"x":1,"y":2}}`)
	f(func(o O, v V) { o.Remove("a") }, 4, `{"o":{"x":1,"y":2}}`)
	f(func(o O, v V) { o.Set("[]", "a"); o.Set("{}", "o") }, 2, `{"a":[],"o":{}}`)
}

// TestValueReadBefore tests which later edits a Value shows.
func TestValueReadBefore(t *testing.T) {
	var o codec.Object
	o.Reset([]byte(`{"a":{"b":[1,2]}}`))
	o.Set("3", "a", "b", "0")
	a := o.Get("a")
	o.Set("4", "a", "b", "1")
	if got, want := a.JSON(), `{"b":[3,4]}`; got != want {
		t.Errorf("got %s, want %s: edits below show", got, want)
	}
	// A Value does not show a replacement of itself, nor edits of the
	// replacement.
	o.Set(`{"c":[5]}`, "a")
	o.Set("6", "a", "c", "0")
	o.Set("7", "a", "d")
	if got, want := a.JSON(), `{"b":[1,2]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if a.Get("c").Exists() || a.Len() != 1 {
		t.Errorf("got %s", a.JSON())
	}
	o.Remove("a")
	if got, want := a.JSON(), `{"b":[1,2]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestNumberReadBefore replaces numbers that edits set: a number that was read
// before must not run into the text of the next edit.
func TestNumberReadBefore(t *testing.T) {
	var o codec.Object
	o.Reset([]byte(`{}`))
	composed := func(text string) string {
		return o.Compose(func(dst []byte) []byte { return append(dst, text...) })
	}
	o.Set("1", "a")
	o.Set(composed("2"), "b")
	a, b := o.Get("a"), o.Get("b")
	o.Set("34", "a")
	o.Set(composed("5"), "b")
	if got := a.Scalar() + "," + b.Scalar(); got != "1,2" || o.Err() != nil {
		t.Errorf("got %s, %v, want 1,2", got, o.Err())
	}
	a, b = o.Get("a"), o.Get("b")
	o.Set("6", "b")
	o.Set("7", "a")
	if got := a.Scalar() + "," + b.Scalar(); got != "34,5" || o.Err() != nil {
		t.Errorf("got %s, %v, want 34,5", got, o.Err())
	}
}

// TestCompose builds values in the Object's memory, more than fits at first.
func TestCompose(t *testing.T) {
	var o codec.Object
	for round := range 3 {
		o.Reset([]byte(`{"a":[]}`))
		var all []string
		want := `{"a":[`
		for i := range 100 {
			text := o.Compose(func(dst []byte) []byte { return fmt.Appendf(dst, `{"n":%d}`, i) })
			o.Append(text, "a")
			all = append(all, text)
			want += fmt.Sprintf(`{"n":%d},`, i)
		}
		want = strings.TrimSuffix(want, ",") + "]}"
		if got := o.Root().JSON(); got != want || o.Err() != nil {
			t.Errorf("round %d: got %s, %v, want %s", round, got, o.Err(), want)
		}
		if got := strings.Join(all, ","); got != want[len(`{"a":[`):len(want)-2] {
			t.Errorf("round %d: got %s", round, got)
		}
	}
}

func TestEdits(t *testing.T) {
	var o codec.Object
	o.Reset([]byte(`{"a":{"b":1,"c":null},"d":[{"e":1},2],"x/~é":0}`))
	o.Set("9", "d", "1")
	o.Set("2", "a", "b")
	o.Set("3", "d", "0", "e")
	o.Remove("a", "c")
	o.Append(`{"f":1}`, "d")
	o.Set("4", "d", "2", "f")
	o.Set("5", "x/~é")
	o.Set("0", "m")
	o.Set("6", "n")
	o.Remove("m")
	o.Get("a", "b")
	var got []string
	for edit := range o.Edits() {
		got = append(got, edit.Pointer+" "+edit.Before.JSON()+" "+edit.After.JSON())
	}
	want := []string{
		"/a/b 1 2", "/a/c null ", "/d/0/e 1 3", "/d/1 2 9", `/d/2  {"f":4}`, "/x~1~0é 0 5", "/n  6",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for range o.Edits() {
		break
	}
	for edit := range o.Edits() {
		if edit.Pointer == "/a/b" {
			break
		}
	}
}
