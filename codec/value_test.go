package codec_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

func TestGet(t *testing.T) {
	const text = `{
		"": "no name", "a": {"b": [10, {"c": true}, []], "": 1},
		"x~y": 1, "x/y": 2, "x~1y": 3, "quo\"te": 4, "t\u0061b\t": 5, "é世😀": 6, "\u00e9\u4e16\ud83d\ude01": 7,
		"0": "zero", "-": "dash", "null": null, "empty": {}, "none": [], "nothing": ""
	}`
	f := func(want string, path ...string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		if got := o.Get(path...).JSON(); got != want || o.Err() != nil {
			t.Errorf("Get(%q): got %s, %v, want %s", path, got, o.Err(), want)
		}
		o.Reset([]byte("[0," + text + "]")) // elements' members are looked up in another way
		if got := o.Get(append([]string{"1"}, path...)...).JSON(); got != want || o.Err() != nil {
			t.Errorf("Get(%q) in an array: got %s, %v, want %s", path, got, o.Err(), want)
		}
	}
	f(`"no name"`, "")
	f(`10`, "a", "b", "0")
	f(`true`, "a", "b", "1", "c")
	f(`[]`, "a", "b", "2")
	f(`1`, "a", "")
	f(`1`, "x~y")
	f(`2`, "x/y")
	f(`3`, "x~1y")
	f(`4`, `quo"te`)
	f(`5`, "tab\t")
	f(`6`, "é世😀")
	f(`7`, "é世😁")
	f(`"zero"`, "0")
	f(`"dash"`, "-")
	f(`null`, "null")
	f(`{}`, "empty")
	f(`[]`, "none")
	f(`""`, "nothing")

	f("", "b")
	f("", "a", "b", "3")
	f("", "a", "b", "-")
	f("", "a", "b", "-1")
	f("", "a", "b", "+1")
	f("", "a", "b", "00")
	f("", "a", "b", "01")
	f("", "a", "b", "1.0")
	f("", "a", "b", " 1")
	f("", "a", "b", "")
	f("", "a", "b", "18446744073709551616")
	f("", "a", "b", "0", "0")
	f("", "a", "b", "c")
	f("", "null", "x")
	f("", "none", "0")
	f("", "empty", "")
	f("", "nothing", "0")
	f("", "no", "such", "path")
	f("", `quo\"te`)
	f("", `t\u0061b\t`)
}

func TestMissingNullAndEmpty(t *testing.T) {
	f := func(text string, kind codec.Kind, exists, null bool) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		v := o.Get("a")
		if v.Kind() != kind || v.Exists() != exists || v.IsNull() != null {
			t.Errorf("%s: got %v, %v, %v", text, v.Kind(), v.Exists(), v.IsNull())
		}
		if v.String() != "" || v.Bool() || v.Len() != 0 || v.Get("b").Exists() || v.Get("0").Exists() {
			t.Errorf("%s: reads as something", text)
		}
		if n, ok := v.Int64(); n != 0 || ok {
			t.Errorf("%s: reads as a number", text)
		}
		if v.EqualString("") != (kind == codec.KindString) {
			t.Errorf("%s: EqualString is wrong", text)
		}
		if o.Err() != nil {
			t.Errorf("%s: %v", text, o.Err())
		}
	}
	f(`{}`, codec.KindMissing, false, false)
	f(`[]`, codec.KindMissing, false, false)
	f(`null`, codec.KindMissing, false, false)
	f(``, codec.KindMissing, false, false)
	f(` `, codec.KindMissing, false, false)
	f(`"a"`, codec.KindMissing, false, false)
	f(`1`, codec.KindMissing, false, false)
	f(`{"a":null}`, codec.KindNull, true, true)
	f(`{"a":""}`, codec.KindString, true, false)
	f(`{"a":{}}`, codec.KindObject, true, false)
	f(`{"a":[]}`, codec.KindArray, true, false)
	f(`{"a":false}`, codec.KindBool, true, false)

	var zero codec.Value
	if zero.Exists() || zero.Len() != 0 || zero.JSON() != "" || zero.Scalar() != "" || zero.Get("a").Exists() {
		t.Error("the zero Value is not missing")
	}
	for range zero.Members() {
		t.Error("the zero Value has members")
	}
	for range zero.Elements() {
		t.Error("the zero Value has elements")
	}
}

// TestDuplicates tests which of two members with the same name is read. The API
// server never writes such objects.
func TestDuplicates(t *testing.T) {
	var o codec.Object
	o.Reset([]byte(`{"a":1,"b":{"c":1,"c":2},"a":2,"\u0061":3}`))
	if got := o.Get("a").JSON() + o.Get("b", "c").JSON(); got != "11" {
		t.Errorf("Get: got %s, want the first", got)
	}
	var names []string
	for name, member := range o.Root().Members() {
		names = append(names, name+member.Scalar())
	}
	if want := []string{"a1", "b", "a2", "a3"}; !slices.Equal(names, want) {
		t.Errorf("Members: got %q, want %q", names, want)
	}
	var inArray codec.Object
	inArray.Reset([]byte(`[{"a":1,"b":{"c":1,"c":2},"a":2}]`))
	if got := inArray.Get("0", "a").JSON() + inArray.Get("0", "b", "c").JSON(); got != "11" {
		t.Errorf("Get in an array: got %s, want the first", got)
	}
	o.Set("4", "a")
	if got, want := o.Root().JSON(), `{"a":4,"b":{"c":1,"c":2}}`; got != want {
		t.Errorf("Set: got %s, want %s: one of them is left", got, want)
	}
	o.Remove("a")
	if got, want := o.Root().JSON(), `{"b":{"c":1,"c":2}}`; got != want {
		t.Errorf("Remove: got %s, want %s", got, want)
	}
}

func TestScalars(t *testing.T) {
	f := func(text, scalar, plain string, isBool bool, integer int64, isInteger bool) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(" \n" + text + "\t\r"))
		v := o.Root()
		if v.Scalar() != scalar || v.String() != plain || v.Bool() != isBool {
			t.Errorf("%s: got %q, %q, %v", text, v.Scalar(), v.String(), v.Bool())
		}
		if n, ok := v.Int64(); n != integer || ok != isInteger {
			t.Errorf("%s: got %d, %v, want %d, %v", text, n, ok, integer, isInteger)
		}
		if v.JSON() != text || o.Err() != nil {
			t.Errorf("%s: got %s, %v", text, v.JSON(), o.Err())
		}
	}
	f(`true`, "true", "", true, 0, false)
	f(`false`, "false", "", false, 0, false)
	f(`null`, "null", "", false, 0, false)
	f(`0`, "0", "", false, 0, true)
	f(`-0`, "-0", "", false, 0, true)
	f(`9223372036854775807`, "9223372036854775807", "", false, 9223372036854775807, true)
	f(`-9223372036854775808`, "-9223372036854775808", "", false, -9223372036854775808, true)
	f(`1.5`, "1.5", "", false, 0, false)
	f(`1e3`, "1e3", "", false, 0, false)
	f(`"1"`, "1", "1", false, 0, false)
	f(`"true"`, "true", "true", false, 0, false)
	f(`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t", "\"\\/\b\f\n\r\t", false, 0, false)
	f(`"\u00e9\ud83d\ude00\u0000"`, "é😀\x00", "é😀\x00", false, 0, false)
	f(`"\ud83d \ude00"`, "\ufffd \ufffd", "\ufffd \ufffd", false, 0, false)
	f(`[1]`, "", "", false, 0, false)
	f(`{"a":1}`, "", "", false, 0, false)

	for _, text := range []string{"9223372036854775808", "-9223372036854775809", "1.0", "1E0"} {
		var o codec.Object
		o.Reset([]byte(text))
		if _, ok := o.Root().Int64(); ok {
			t.Errorf("%s is an int64", text)
		}
	}
}

// TestSyntaxError reads one value of a text that is not JSON.
func TestSyntaxError(t *testing.T) {
	read := func(v codec.Value) { // all values, at any depth
		var all func(v codec.Value)
		all = func(v codec.Value) {
			_ = v.Scalar() + v.String()
			for _, member := range v.Members() {
				all(member)
			}
			for _, element := range v.Elements() {
				all(element)
			}
		}
		all(v)
	}
	f := func(text string, offset int, want, got string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		read(o.Root())
		var fault *codec.SyntaxError
		if !errors.As(o.Err(), &fault) {
			t.Errorf("%q: got %v, want a SyntaxError", text, o.Err())
			return
		}
		if fault.Offset != offset || fault.Want != want || fault.Got != got {
			t.Errorf("%q: got %d, %q, %q, want %d, %q, %q", text, fault.Offset, fault.Want, fault.Got, offset, want, got)
		}
		first := o.Err()
		o.Set("1", "a")
		read(o.Root())
		if !errors.Is(o.Err(), first) || o.Changes() != 0 {
			t.Errorf("%q: got %v after more reads and edits", text, o.Err())
		}
		o.Reset([]byte(`{}`))
		if o.Err() != nil {
			t.Errorf("%q: got %v after Reset", text, o.Err())
		}
	}
	const end = "the end of the text"
	f(`{`, 1, "',' or a closing bracket", end)
	f(`[1,2`, 4, "',' or a closing bracket", end)
	f(`[1 2]`, 3, "',' or a closing bracket", `"2]"`)
	f(`[1,]`, 3, "an item behind ','", `"]"`)
	f(`{"a":1,}`, 7, "an item behind ','", `"}"`)
	f(`{"a" 1}`, 5, "':' behind a member name", `"1}"`)
	f(`{a:1}`, 1, "a member name in quotes", `"a:1}"`)
	f(`{"a:1}`, 1, "a complete member name", `"\"a:1}"`)
	f(`{"a":`, 5, "a value", end)
	f(`{"a":}`, 5, "a complete value", `"}"`)
	f(`{"a":"b`, 5, "a complete value", `"\"b"`)
	f(`{"a":{"b":[1}`, 12, "',' or a closing bracket", `"}"`)
	f(`nul`, 0, "a complete value", `"nul"`)
	f(`[tru]`, 1, "a complete value", `"tru]"`)
	f("[\"a\nb\"]", 3, "no control character in a string", `"\nb"`)
	f("[\"a\xff\"]", 2, "a string in UTF-8", `"a\xff"`)
	f(`["ab\x"]`, 4, "valid escapes in a string", `"\\x"`)
	f(`["ab\u12"]`, 4, "valid escapes in a string", `"\\u12"`)
	f(`{"\q":1}`, 2, "valid escapes in a string", `"\\q"`)

	err := &codec.SyntaxError{Offset: 3, Want: "a value", Got: "the end of the text"}
	if got, want := err.Error(), "invalid JSON at byte 3: got the end of the text, want a value"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSkippedIsNotValidated tests a rule of the package comment: a value that
// is never read is not validated.
func TestSkippedIsNotValidated(t *testing.T) {
	f := func(text string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		if got := o.Get("b").JSON(); got != "1" || o.Err() != nil {
			t.Errorf("%s: got %q, %v, want 1", text, got, o.Err())
		}
	}
	f(`{"a":{x]},"b":1}`)
	f(`{"a":[1 2,,],"b":1}`)
	f(`{"a":--..ee,"b":1}`)
	f("{\"a\":\"\\x\n\xff\",\"b\":1}")
	f(`{"a":` + strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5) + `,"b":1}`)
}
