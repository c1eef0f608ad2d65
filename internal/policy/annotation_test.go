package policy

import (
	"strings"
	"testing"
)

// TestAnnotationKey tests keys with the maximum number of characters, with one fewer and
// with one more.
func TestAnnotationKey(t *testing.T) {
	f := func(name, key, want string) {
		t.Helper()
		if got := AnnotationKey(name, key); got != want {
			t.Errorf("%s and %s: got %s of %d characters, want %s", name, key, got, len(got), want)
		}
	}
	long := strings.Repeat("a", 61)
	f("p.example.com", "key", "p.example.com.key")
	f(long[:60], "k", long[:60]+".k")
	f(long, "k", long+".k")
	f(long+"a", "k", long[:52]+"-52619bce73") // of SHA-256
}
