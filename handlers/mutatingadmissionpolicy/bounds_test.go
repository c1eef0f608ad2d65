package mutatingadmissionpolicy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// TestMany changes 10,000 containers: each by an operation, and all by an
// ApplyConfiguration.
func TestMany(t *testing.T) {
	if testing.Short() {
		t.Skip("10,000 changes take seconds")
	}
	const n = 10_000
	var before, after []string
	for i := range n {
		before = append(before, fmt.Sprintf(`{"name":"c%d"}`, i))
		after = append(after, fmt.Sprintf(`{"name":"c%d","image":"a"}`, i))
	}
	pod := func(containers []string) string {
		return `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[` + strings.Join(containers, ",") + `]}}`
	}
	const kind = `{"group":"","version":"v1","kind":"Pod"}`
	check(t, "ApplyConfiguration", `Object{spec: Object.spec{containers: object.spec.containers.map(c, `+
		`Object.spec.containers{name: c.name, image: "a"})}}`,
		"v1/pods", kind, pod(before), pod(after))
	check(t, "JSONPatch", `object.spec.containers.map(c, JSONPatch{op: "add", path: "/spec/containers/" + c.name.substring(1) + `+
		`"/image", value: "a"})`,
		"v1/pods", kind, pod(before), pod(after))
}

// TestOperationsMax has patches with as many operations as allowed, one fewer and one more, and the same
// for the bytes of values.
func TestOperationsMax(t *testing.T) {
	if testing.Short() {
		t.Skip("the maximum number of operations takes seconds")
	}
	f := func(operations int, value ref.Val, want bool) {
		t.Helper()
		one := &cel.JSONPatch{Op: "add", Path: "/a", Val: value}
		all := make([]ref.Val, operations)
		for i := range all {
			all[i] = one
		}
		_, err := operationsOf(&patch{ctx: t.Context(), memory: unlimited{}}, types.NewRefValList(types.DefaultTypeAdapter, all))
		if got := err == nil; got != want {
			t.Errorf("%d operations: got %v, want success %v", operations, err, want)
		}
	}
	f(diff.OperationsMax-1, types.True, true)
	f(diff.OperationsMax, types.True, true)
	f(diff.OperationsMax+1, types.True, false)
	text := func(bytes int) ref.Val { return types.String(strings.Repeat("x", bytes-len(`""`))) }
	f(1, text(diff.PatchBytesMax-1), true)
	f(1, text(diff.PatchBytesMax), true)
	f(1, text(diff.PatchBytesMax+1), false)
	f(2, text(diff.PatchBytesMax/2+1), false)
}

// unlimited is memory without a limit.
type unlimited struct{}

func (unlimited) Converts(ref.Val) error { return nil }
func (unlimited) Keeps(int) error        { return nil }

// TestContextEnds checks that no operation is applied after the context has ended.
func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := &patch{ctx: ctx, memory: unlimited{}, before: []byte("{}")}
	list := types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{&cel.JSONPatch{Op: "add", Path: "/a", Val: types.True}})
	if err := applyJSONPatch(p, list); !errors.Is(err, context.Canceled) || p.after != nil {
		t.Errorf("got %s, %v, want the error of the context", p.after, err)
	}
}
