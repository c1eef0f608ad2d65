package diff_test

import (
	"bytes"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// O makes a case fit on one line.
type O = *codec.Object

// checkText fails unless want is the patch for the edits that edit makes to
// text.
func checkText(t *testing.T, text string, edit func(o O), want string) {
	t.Helper()
	var o codec.Object
	o.Reset([]byte(text))
	edit(&o)
	if got := string(checkPatch(t, []byte(text), &o)); got != want {
		t.Errorf("%s:\n got %s\nwant %s", text, got, want)
	}
}

// TestAppendPatch tests the exact patch: only what changed, or the whole value
// if that is shorter.
func TestAppendPatch(t *testing.T) {
	f := func(text string, edit func(o O), want string) { t.Helper(); checkText(t, text, edit, want) }
	f(`{}`, func(O) {}, "")
	f(`{"a":1}`, func(o O) { o.Set("2", "a") }, `[{"op":"replace","path":"/a","value":2}]`)
	f(`{"a":1}`, func(o O) { o.Set("2", "b") }, `[{"op":"add","path":"/b","value":2}]`)
	f(`{"a":1}`, func(o O) { o.Remove("a") }, `[{"op":"remove","path":"/a"}]`)
	f(`{"a":1}`, func(o O) { o.Set("null", "a") }, `[{"op":"replace","path":"/a","value":null}]`)
	f(`{"a":null}`, func(o O) { o.Remove("a") }, `[{"op":"remove","path":"/a"}]`)
	f(`{"a":null}`, func(o O) { o.Set("null", "a") }, "")
	f(`{"a":1}`, func(o O) { o.Set("1.0", "a") }, `[{"op":"replace","path":"/a","value":1.0}]`)
	f(`{"a":1,"b":2}`, func(o O) { o.Set("3", "b"); o.Set("4", "a") },
		`[{"op":"replace","path":"/a","value":4},{"op":"replace","path":"/b","value":3}]`) // in the order of the text
	f(`{"a":1}`, func(o O) { o.Set("2", "a"); o.Set("3", "a") }, `[{"op":"replace","path":"/a","value":3}]`)
	f(`{"a":1}`, func(o O) { o.Set("2", "a"); o.Set("1", "a") }, "")

	// Pointers are escaped as JSON Pointers, then as JSON strings.
	f(`{"a/b~c\"\\\n":1}`, func(o O) { o.Remove("a/b~c\"\\\n") }, `[{"op":"remove","path":"/a~1b~0c\"\\\n"}]`)
	f(`{}`, func(o O) { o.Set("1", "é") }, `[{"op":"add","path":"/é","value":1}]`)
	f(`{"":{"":1}}`, func(o O) { o.Set("2", "", "") }, `[{"op":"replace","path":"//","value":2}]`)

	// A new parent is added as a whole, with the values in it, whether they
	// were set before or after it.
	f(`{}`, func(o O) { o.Set("1", "a", "b", "c") }, `[{"op":"add","path":"/a","value":{"b":{"c":1}}}]`)
	f(`{"a":null}`, func(o O) { o.Set("1", "a", "b") }, `[{"op":"replace","path":"/a","value":{"b":1}}]`)
	f(`{}`, func(o O) { o.Append("1", "a"); o.Append("2", "a") }, `[{"op":"add","path":"/a","value":[1,2]}]`)

	// If an object was set as a whole, the patch has only the differences.
	const labels = `{"labels":{"app":"a-name-that-is-long","tier":"another-long-name","zone":"one-more-long-name"}}`
	f(labels, func(o O) {
		o.Set(`{"app":"a-name-that-is-long","tier":"new","zone":"one-more-long-name"}`, "labels")
	}, `[{"op":"replace","path":"/labels/tier","value":"new"}]`)
	f(labels, func(o O) {
		o.Set(`{"zone":"one-more-long-name","more":"1","app":"a-name-that-is-long"}`, "labels")
	}, `[{"op":"remove","path":"/labels/tier"},{"op":"add","path":"/labels/more","value":"1"}]`)
	f(`{"a":{"b":1,"c":2}}`, func(o O) { o.Set(`{"b":3,"c":4}`, "a") }, `[{"op":"replace","path":"/a","value":{"b":3,"c":4}}]`)
	f(`{"a":{"b":1}}`, func(o O) { o.Set(`{}`, "a") }, `[{"op":"remove","path":"/a/b"}]`)
	f(`{"a":{"b":1}}`, func(o O) { o.Set(`[]`, "a") }, `[{"op":"replace","path":"/a","value":[]}]`)

	// Strings are equal if their plain texts are, whichever of them has
	// escapes.
	f(`{"a":["x","\u0079"]}`, func(o O) { o.Set(`["\u0078","y"]`, "a") }, "")
	f(`{"a":["x"]}`, func(o O) { o.Set(`["\u0079"]`, "a") }, `[{"op":"replace","path":"/a/0","value":"\u0079"}]`)
	f(`{"a":""}`, func(o O) { o.Set(`{"\\":1}`, "a") }, `[{"op":"replace","path":"/a","value":{"\\":1}}]`)
	f(`{"a":{"\\":1}}`, func(o O) { o.Set(`""`, "a") }, `[{"op":"replace","path":"/a","value":""}]`)

	// White space and escapes of unchanged values are no change.
	f(` { "a" : { "b" : "\u0078" , "c" : 1 } } `, func(o O) { o.Set(`{"c":1,"b":"x"}`, "a") }, "")
}

// TestAppendPatchArrays does the same for arrays: equal elements at both ends
// are not touched.
func TestAppendPatchArrays(t *testing.T) {
	f := func(text string, edit func(o O), want string) { t.Helper(); checkText(t, text, edit, want) }
	const args = `{"args":["first-argument","second-argument","third-argument","fourth-argument","fifth-argument"]}`
	f(args, func(o O) { o.Remove("args", "0") }, `[{"op":"remove","path":"/args/0"}]`)
	f(args, func(o O) { o.Remove("args", "2") }, `[{"op":"remove","path":"/args/2"}]`)
	f(args, func(o O) { o.Remove("args", "4"); o.Remove("args", "3") },
		`[{"op":"remove","path":"/args/4"},{"op":"remove","path":"/args/3"}]`)
	f(args, func(o O) { o.Add(`"x"`, "args", "0") }, `[{"op":"add","path":"/args/0","value":"x"}]`)
	f(args, func(o O) { o.Add(`"x"`, "args", "2"); o.Add(`"y"`, "args", "3") },
		`[{"op":"add","path":"/args/2","value":"x"},{"op":"add","path":"/args/3","value":"y"}]`)
	f(args, func(o O) { o.Append(`"x"`, "args") }, `[{"op":"add","path":"/args/5","value":"x"}]`)
	f(args, func(o O) { o.Add(`"x"`, "args", "-") }, `[{"op":"add","path":"/args/5","value":"x"}]`)
	f(args, func(o O) { o.Set(`"x"`, "args", "1"); o.Append(`"y"`, "args") },
		`[{"op":"replace","path":"/args/1","value":"x"},{"op":"add","path":"/args/5","value":"y"}]`)
	f(args, func(o O) { o.Remove("args", "1"); o.Append(`"y"`, "args") }, // two places: shorter as a whole
		`[{"op":"replace","path":"/args","value":["first-argument","third-argument","fourth-argument","fifth-argument","y"]}]`)
	f(args, func(o O) { o.Set(`[]`, "args") }, `[{"op":"replace","path":"/args","value":[]}]`)
	f(`{"a":["x"]}`, func(o O) { o.Remove("a", "0") }, `[{"op":"remove","path":"/a/0"}]`)
	f(`{"a":[{"n":"one","v":1},{"n":"two","v":2}]}`, func(o O) { o.Set("3", "a", "1", "v"); o.Set("4", "a", "0", "v") },
		`[{"op":"replace","path":"/a/0/v","value":4},{"op":"replace","path":"/a/1/v","value":3}]`)
	f(`{"a":[{"n":"a-long-name-of-one","v":1},{"n":"a-long-name-of-two","v":2}]}`, func(o O) {
		o.Set(`[{"n":"a-long-name-of-one","v":1},{"n":"a-long-name-of-two","v":3}]`, "a")
	}, `[{"op":"replace","path":"/a/1/v","value":3}]`)
	f(`[[1]]`, func(o O) { o.Append("2", "0") }, `[{"op":"add","path":"/0/1","value":2}]`)
}

// TestPatchOfPatched edits the object that a patch made, in a second round.
func TestPatchOfPatched(t *testing.T) {
	text := podObject(t)
	var o codec.Object
	edit := func() {
		o.Set(`"b"`, "metadata", "annotations", "a")
		for _, container := range o.Get("spec", "containers").Elements() {
			container.SetString("Always", "imagePullPolicy")
		}
	}
	o.Reset(text)
	edit()
	after := applied(t, text, checkPatch(t, text, &o))
	if bytes.Equal(after, text) {
		t.Fatal("nothing changed")
	}
	o.Reset(after)
	edit()
	if patch := checkPatch(t, after, &o); len(patch) > 0 {
		t.Errorf("the second time: got %s, want nothing", patch)
	}
}
