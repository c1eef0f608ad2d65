package allocs

import (
	"testing"
	"time"
)

var sink []byte

func TestPerRun(t *testing.T) {
	if got := PerRun(10, func() { sink = make([]byte, 100) }); got != 1 {
		t.Errorf("got %v allocations of one run, want 1", got)
	}
	// Another goroutine allocates for a while.
	end := time.Now().Add(50 * time.Millisecond)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for time.Now().Before(end) {
			sink = make([]byte, 100)
		}
	}()
	if got := PerRun(10, func() { time.Sleep(time.Microsecond) }); got != 0 {
		t.Errorf("got %v allocations, want none of another goroutine's", got)
	}
	<-done
}

func TestBytes(t *testing.T) {
	if got := Bytes(func() { sink = make([]byte, 1<<20) }); got < 1<<20 || got > 2<<20 {
		t.Errorf("got %d bytes, want %d and what the test's other goroutines allocate", got, 1<<20)
	}
}
