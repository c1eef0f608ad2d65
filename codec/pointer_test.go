package codec_test

import (
	"slices"
	"testing"

	"github.com/fastadmit/fastadmit/codec"
)

func TestAppendPath(t *testing.T) {
	f := func(pointer string, want ...string) {
		t.Helper()
		got, ok := codec.AppendPath([]string{"before"}, pointer)
		if !ok || !slices.Equal(got[1:], want) || got[0] != "before" {
			t.Errorf("%q: got %q, %v, want %q", pointer, got, ok, want)
		}
		if again := pointerOf(got[1:]); again != pointer {
			t.Errorf("%q: comes back as %q", pointer, again)
		}
	}
	f("")
	f("/", "")
	f("//", "", "")
	f("/a", "a")
	f("/a/b", "a", "b")
	f("/a/", "a", "")
	f("/0/-", "0", "-")
	f("/~0", "~")
	f("/~1", "/")
	f("/~01", "~1")
	f("/~10", "/0")
	f("/~0~1~0", "~/~")
	f("/é\x00\"", "é\x00\"")
	f("/kubernetes.io~1name", "kubernetes.io/name")

	for _, pointer := range []string{"a", "a/b", " /a", "/~", "/~2", "/~~", "/~~0", "/a~", "/~a/b", "/b/~", "~0"} {
		if got, ok := codec.AppendPath(nil, pointer); ok {
			t.Errorf("%q: got %q, want none", pointer, got)
		}
	}
}

func pointerOf(path []string) string {
	var pointer []byte
	for _, token := range path {
		pointer = codec.AppendPointerToken(append(pointer, '/'), token)
	}
	return string(pointer)
}

// FuzzPointer converts paths to pointers, and pointers to paths.
func FuzzPointer(f *testing.F) {
	for _, seed := range []string{"", "/", "/a/b", "/~0~1/~01", "a", "/~", "/é\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if path, ok := codec.AppendPath(nil, text); ok {
			if again := pointerOf(path); again != text {
				t.Errorf("%q: path %q comes back as %q", text, path, again)
			}
		}
		path := []string{text, "x", text}
		if again, ok := codec.AppendPath(nil, pointerOf(path)); !ok || !slices.Equal(again, path) {
			t.Errorf("%q comes back as %q, %v", path, again, ok)
		}
	})
}
