package diff_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// TestChange applies the difference of two documents to one that has more
// fields.
func TestChange(t *testing.T) {
	f := func(object, before, after, want string) {
		t.Helper()
		var o codec.Object
		o.Reset([]byte(object))
		if err := diff.Change(&o, []byte(before), []byte(after)); err != nil || o.Root().JSON() != want {
			t.Errorf("%s, %s, %s:\n got %s, %v\nwant %s", object, before, after, o.Root().JSON(), err, want)
		}
	}
	f(`{"a":1,"x":2}`, `{"a":1}`, `{"a":1}`, `{"a":1,"x":2}`)
	f(`{"a":1,"x":2}`, `{"a":1}`, `{}`, `{"x":2}`)
	f(`{"a":1,"x":2}`, `{}`, `{"b":{"c":[]}}`, `{"a":1,"x":2,"b":{"c":[]}}`)
	f(`{"a":"<","x":2}`, `{"a":"\u003c"}`, `{"a":"<"}`, `{"a":"<","x":2}`)
	f(`{"a":{"b":1,"x":2}}`, `{"b":0,"a":{"b":1}}`, `{"a":{"b":2},"b":0}`, `{"a":{"b":2,"x":2}}`) // in another order
	f(`{"a":[{"k":1,"x":1},{"k":2,"x":2}]}`, `{"a":[{"k":1},{"k":2}]}`, `{"a":[{"k":2}]}`, `{"a":[{"k":2,"x":2}]}`)
	f(`{"a":[1,2]}`, `{"a":[1,2]}`, `{"a":[]}`, `{"a":[]}`)
	f(`{"a":[]}`, `{"a":[]}`, `{"a":[{}]}`, `{"a":[{}]}`)
	f(`{"a":{}}`, `{"a":{}}`, `{"a":[]}`, `{"a":[]}`)
	f(`{"a":1}`, `{"a":1}`, `{"a":null}`, `{"a":null}`)

	deep := func(depth int, value string) string {
		return strings.Repeat(`{"d":`, depth) + value + strings.Repeat(`}`, depth)
	}
	f(deep(64, `{"k":1,"x":1}`), deep(64, `{"k":1}`), deep(64, `{"k":2}`), deep(64, `{"k":2}`)) // as a whole
	f(deep(63, `{"k":1,"x":1}`), deep(63, `{"k":1}`), deep(63, `{"k":2}`), deep(63, `{"k":2,"x":1}`))
}

// TestChangeGenerated changes a generated document into another one.
func TestChangeGenerated(t *testing.T) {
	random := seed.Rand(t)
	var value func(depth int) any
	value = func(depth int) any {
		switch n := random.IntN(3); {
		case depth == 0 || n == 0:
			return random.IntN(3)
		case n == 1:
			array := make([]any, random.IntN(4))
			for i := range array {
				array[i] = value(depth - 1)
			}
			return array
		}
		object := make(map[string]any)
		for range random.IntN(4) {
			object[fmt.Sprintf("k%d<", random.IntN(4))] = value(depth - 1)
		}
		return object
	}
	for range 2000 {
		before, _ := json.Marshal(map[string]any{"v": value(4)})
		after, _ := json.Marshal(map[string]any{"v": value(4)})
		var o codec.Object
		o.Reset(before)
		if err := diff.Change(&o, before, after); err != nil {
			t.Fatal(err)
		}
		if got := o.Root().JSON(); !reflect.DeepEqual(decoded(t, []byte(got)), decoded(t, after)) {
			t.Fatalf("%s to %s: got %s", before, after, got)
		}
		checkPatch(t, before, &o)
	}
}

func TestChangeRefuses(t *testing.T) {
	var o codec.Object
	o.Reset([]byte(`{"a":1}`))
	if err := diff.Change(&o, []byte(`{"a":1}`), []byte(`{"a":`)); err == nil {
		t.Error("got no error of a document that is not JSON")
	}
	o.Reset([]byte(`{}`))
	large := `{"a":"` + strings.Repeat("x", codec.MemoryMax) + `"}`
	if _, ok := errors.AsType[*codec.SizeError](diff.Change(&o, []byte(`{}`), []byte(large))); !ok {
		t.Errorf("got %v, want a SizeError", o.Err())
	}
}

func TestEdit(t *testing.T) {
	f := func(change func(p *corev1.Pod) bool, want string) {
		t.Helper()
		text := `{"metadata":{"name":"a"},"spec":{"new":1}}`
		var o codec.Object
		o.Reset([]byte(text))
		var pod corev1.Pod
		if err := json.Unmarshal([]byte(text), &pod); err != nil {
			t.Fatal(err)
		}
		if err := diff.Edit(&o, &pod, func() bool { return change(&pod) }); err != nil || o.Root().JSON() != want {
			t.Errorf("got %s, %v, want %s", o.Root().JSON(), err, want)
		}
	}
	f(func(p *corev1.Pod) bool { return true }, `{"metadata":{"name":"a"},"spec":{"new":1}}`)
	f(func(p *corev1.Pod) bool { p.Spec.HostPID = true; return true }, `{"metadata":{"name":"a"},"spec":{"new":1,"hostPID":true}}`)
	f(func(p *corev1.Pod) bool { p.Spec.HostPID = true; return false }, `{"metadata":{"name":"a"},"spec":{"new":1}}`)

	var o codec.Object
	o.Reset([]byte(`{}`))
	if err := diff.Edit(&o, func() {}, nil); err == nil {
		t.Error("got no error of a value that cannot be encoded")
	}
}
