package socket

import (
	"net"
	"testing"
	"time"
)

// TestWaits checks a connection before and after its peer sends data, the data is read,
// and the peer closes it.
func TestWaits(t *testing.T) {
	fast, other := pair(t)
	becomes := func(want bool, what string) {
		t.Helper()
		for range 1000 {
			if Waits(fast) == want {
				return
			}
			time.Sleep(time.Millisecond) // loopback takes a moment
		}
		t.Errorf("%s: got %v, want %v", what, !want, want)
	}
	becomes(false, "nothing was sent")
	if _, err := other.Write([]byte("some")); err != nil {
		t.Fatal(err)
	}
	becomes(true, "something was sent")
	b := make([]byte, 3)
	for range 2 {
		if _, err := fast.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	becomes(false, "all was read")
	if _, err := other.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	becomes(true, "more was sent")
	other.Close()
	becomes(false, "the other end is closed")
	fast.Close()
	becomes(false, "this end is closed")
	if pipe, _ := net.Pipe(); Waits(pipe) {
		t.Error("a pipe: got true")
	}
}
