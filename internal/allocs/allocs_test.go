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
