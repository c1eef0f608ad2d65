package memo

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fastadmit/fastadmit/internal/allocs"
)

func TestMemo(t *testing.T) {
	parsed := 0
	m := New(func(text string) int { parsed++; return len(text) })
	f := func(text string, want int) {
		t.Helper()
		before := parsed
		for range 2 {
			if got := m.Get(text); got != len(text) {
				t.Errorf("got %d for a text of %d bytes", got, len(text))
			}
		}
		if got := parsed - before; got != want {
			t.Errorf("a text of %d bytes was parsed %d times, want %d", len(text), got, want)
		}
	}
	f("", 1)
	f("", 0)
	f(strings.Repeat("x", memoTextMax-1), 1)
	f(strings.Repeat("y", memoTextMax), 1)
	f(strings.Repeat("z", memoTextMax+1), 2)
	for i := len(m.known); i < memoMax; i++ {
		f(strconv.Itoa(i), 1)
	}
	f("", 0)
	if len(m.known) != memoMax {
		t.Errorf("got %d texts, want %d", len(m.known), memoMax)
	}
	f("one more", 1)
	if len(m.known) != 1 {
		t.Errorf("got %d texts, want those of before forgotten", len(m.known))
	}
	f("", 1)
	f("one more", 0)
	if got := allocs.PerRun(100, func() { m.Get("one more") }); got != 0 {
		t.Errorf("got %v allocations", got)
	}
}

func TestMemoOfMany(t *testing.T) {
	m := New(func(text string) string { return text })
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 2 * memoMax {
				if text := strconv.Itoa(i); m.Get(text) != text {
					t.Error("got the meaning of another text")
				}
			}
		})
	}
	all.Wait()
}
