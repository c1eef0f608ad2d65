//go:build !poison

package codec

import "testing"

// TestArenaBytesMax tests how much memory a pooled Object or Response retains.
func TestArenaBytesMax(t *testing.T) {
	f := func(size int, kept bool) {
		t.Helper()
		if b := resetArena(make([]byte, size)); (cap(b) == size) != kept || len(b) != 0 {
			t.Errorf("%d: keeps %d bytes, want kept=%v", size, cap(b), kept)
		}
	}
	f(0, true)
	f(1, true)
	f(arenaBytesMax-1, true)
	f(arenaBytesMax, true)
	f(arenaBytesMax+1, false)
}
