package mutatingadmissionpolicy

import (
	"fmt"
	"strings"
	"testing"
)

// TestMemory checks that patches with more memory than an evaluation may use are denied, and that smaller
// ones are applied.
func TestMemory(t *testing.T) {
	f := func(kind, expression string, elements int, want string) {
		t.Helper()
		object := fmt.Sprintf(`{"metadata":{"annotations":{"a":"b"}},"list":[1%s]}`, strings.Repeat(",1", elements-1))
		check(t, kind, expression, "example.com/v1/shops", `{"group":"example.com","version":"v1","kind":"Shop"}`, object, want)
	}
	const (
		denied = "validation failed due to running out of memory budget, no further validation rules will be run"
		short  = `{"metadata":{"annotations":{"a":"b"}},"list":[1,1],"x":`
	)
	f("JSONPatch", `lists.range(900).map(i, JSONPatch{op: "add", path: "/x", value: object.list})`, 2, short+"[1,1]}")
	f("JSONPatch", `[JSONPatch{op: "add", path: "/x", value: [1].map(i, object.list)}]`, 2, short+"[[1,1]]}")
	f("JSONPatch", `[JSONPatch{op: "add", path: "/x", value: lists.range(900).map(i, object.list)}]`, 1000, denied)
	f("JSONPatch", `[JSONPatch{op: "add", path: "/x", value: lists.range(900).map(i, Object.x{a: object.list})}]`, 1000, denied)
	f("JSONPatch", `[JSONPatch{op: "add", path: "/x", value: {"a": lists.range(900).map(i, object.list)}}]`, 1000, denied)
	f("ApplyConfiguration", `Object{list: lists.range(900).map(i, object.list)}`, 1000, denied)
	f("ApplyConfiguration", `[Object.list{a: object.list}].map(o, Object{list: lists.range(900).map(i, o)})[0]`, 1000, denied)
}
