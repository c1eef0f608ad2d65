package codec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

// TestIterator compares an Iterator with the loops, for items with nodes, items
// beyond nodesMax, and edited items.
func TestIterator(t *testing.T) {
	f := func(json string, edit func(*codec.Object), path ...string) {
		t.Helper()
		var object codec.Object
		object.Reset([]byte(json))
		if edit != nil {
			edit(&object)
		}
		v := object.Get(path...)
		var want, got []string
		for i, element := range v.Elements() {
			want = append(want, fmt.Sprint(i, element.JSON()))
		}
		for name, member := range v.Members() {
			want = append(want, fmt.Sprint(name, member.JSON()))
		}
		it := v.Iterator()
		for i := 0; it.Next(); i++ {
			if v.Kind() == codec.KindObject {
				got = append(got, fmt.Sprint(it.Name(), it.Value().JSON()))
			} else {
				got = append(got, fmt.Sprint(i, it.Value().JSON()))
			}
		}
		if !slices.Equal(got, want) || object.Err() != nil {
			t.Errorf("%.100s: got %.300q, %v, want %.300q", json, got, object.Err(), want)
		}
	}
	f(`{}`, nil)
	f(`[]`, nil)
	f(`1`, nil)
	f(`{"a":1}`, nil, "b")
	f(`{"a":1,"b\n":[2],"c":{"d":null}}`, nil)
	f(`[1,[2],{"a":3}]`, nil)
	f(`{"a":1,"b":2}`, func(o *codec.Object) { o.Set("3", "c"); o.Remove("a") })
	f(`{"a":[1]}`, func(o *codec.Object) { o.Append("2", "a") }, "a")
	many := strings.Repeat(`{"a":1},`, 3000)
	f(`{"list":[`+many+`0]}`, nil, "list")
	f(`{"list":[`+many+`0]}`, func(o *codec.Object) { o.Get("list").Len() }, "list")
	var members strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&members, `"m%d":%d,`, i, i)
	}
	f(`{`+members.String()+`"z":0}`, nil)
}

func TestFind(t *testing.T) {
	const env = `[{"name":"A"},1,{"name":2},{},{"value":"B"},{"name":"B","value":"1"},{"n\u0061me":"\u0043"},{"name":"B","value":"2"}]`
	f := func(text, name, s, want string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(text))
		if got := o.Root().Find(name, s).JSON(); got != want || o.Err() != nil {
			t.Errorf("Find(%q, %q) in %.100s: got %s, %v, want %s", name, s, text, got, o.Err(), want)
		}
	}
	f(env, "name", "B", `{"name":"B","value":"1"}`)
	f(env, "value", "2", `{"name":"B","value":"2"}`)
	f(env, "name", "C", `{"n\u0061me":"\u0043"}`)
	f(env, "name", "2", "")
	f(env, "name", "", "")
	f(`{"a":{"name":"B"}}`, "name", "B", "")
	f(`"name"`, "name", "name", "")

	var o codec.Object
	o.Reset([]byte(`{"env":` + env + `}`))
	o.Append(`{"name":"D"}`, "env")
	o.Get("env").Find("name", "D").SetString("1", "value")
	if got, want := o.Get("env").Find("name", "D").JSON(), `{"name":"D","value":"1"}`; got != want {
		t.Errorf("after edits: got %s, want %s", got, want)
	}
	if missing := o.Get("none").Find("name", "D"); missing.Exists() || missing.Get("value").Exists() {
		t.Errorf("in what is missing: got %s, want nothing", missing.JSON())
	}
}
