package patching

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func decode(t *testing.T, patch string) jsonpatch.Patch {
	t.Helper()
	operations, err := jsonpatch.DecodePatch([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	return operations
}

// TestCopiesMax copies the maximum number of bytes, and more.
func TestCopiesMax(t *testing.T) {
	f := func(copied int, want bool) {
		t.Helper()
		document := fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("x", copied-len(`""`)))
		_, err := Apply(t.Context(), decode(t, `[{"op":"copy","from":"/a","path":"/b"}]`), document)
		_, tooMuch := errors.AsType[*jsonpatch.AccumulatedCopySizeError](err)
		if err != nil && !tooMuch || tooMuch == want {
			t.Errorf("%d bytes: got %v, want success %v", copied, err, want)
		}
	}
	f(copiesBytesMax-1, true)
	f(copiesBytesMax, true)
	f(copiesBytesMax+1, false)
}

// TestPanics tests that a patch on which the library panics fails with an error.
func TestPanics(t *testing.T) {
	for _, patch := range []string{
		`[{"op":"replace","path":""}]`, `[{"op":"replace","path":"","value":1}]`, `[{"op":"add","path":"/a"}]`, `[{}]`,
		`[{"op":"replace","path":"","value":null}]`, `[{"op":null,"path":"/a"}]`, `[{"op":"test","path":"/a/b/c","value":1}]`,
	} {
		after, err := Apply(t.Context(), decode(t, patch), []byte(`{"a":[1]}`))
		if err == nil && !json.Valid(after) {
			t.Errorf("%s: got %s and no error", patch, after)
		}
	}
}

// TestCopyMissing copies from a path that does not exist, which adds a null, as in
// kube-apiserver.
func TestCopyMissing(t *testing.T) {
	after, err := Apply(t.Context(), decode(t, `[{"op":"copy","from":"/a","path":"/b"}]`), []byte("{}"))
	if got, want := string(after), `{"b":null}`; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// TestTogether applies operations at indexes of arrays in small groups if the
// document is long, and stops when the context ends.
func TestTogether(t *testing.T) {
	operations := func(n int, path string) (all jsonpatch.Patch) {
		return decode(t, "["+strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"op":"add","path":%q,"value":1},`, path), n), ",")+"]")
	}
	f := func(path string, size, want int) {
		t.Helper()
		if got := together(operations(100, path), size); got != want {
			t.Errorf("%s, %d bytes: got %d, want %d", path, size, got, want)
		}
	}
	f("/a/b", movedBytesMax, 100)
	f("/a/-", movedBytesMax, 100)
	f("/a/0", 1, 100)
	f("/a/0", movedBytesMax/100, 100)
	f("/a/0", movedBytesMax/50, 50)
	f("/a/0", movedBytesMax/64, 64)
	const fifth = (movedBytesMax + 1) / 5 // without a rest
	f("/a/0", fifth, 4)
	f("/a/0", movedBytesMax, 1)
	f("/a/0", movedBytesMax+1, 1)

	for patch, want := range map[string]int{
		`{"op":"move","from":"/a/0","path":"/b"}`: 1, `{"op":"move","from":"/a","path":"/b"}`: 3,
		`{"op":"copy","from":"/a","path":"/b/0"}`: 1,
		`{"op":"move"}`: 3, `{"op":"remove","path":"/a"}`: 3,
	} {
		if got := together(decode(t, "["+patch+","+patch+","+patch+"]"), movedBytesMax); got != want {
			t.Errorf("%s: got %d, want %d", patch, got, want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if after, err := Apply(ctx, operations(1, "/a"), []byte("{}")); !errors.Is(err, context.Canceled) || after != nil {
		t.Errorf("got %s, %v, want the error of the context", after, err)
	}
}
