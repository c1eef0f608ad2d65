// With these tags, bodies are copied, so more memory is allocated.

//go:build !poison && !race

package server

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestLargeBodiesUseMemoryAgain sends large reviews over one connection while the garbage
// collector is off. Reviews of one size share memory, reviews of another size have their
// own, and all are answered.
func TestLargeBodiesUseMemoryAgain(t *testing.T) {
	p := servePatiently(t, timeouts{})
	x := p.Open(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	allocated := func(times, size int) int64 {
		t.Helper()
		raw := servertest.Request("/validate", servertest.Padded(size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			if response, answer := x.Send(raw); response.StatusCode != http.StatusOK {
				t.Fatalf("got %s: %s", response.Status, answer)
			}
		}
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	const large, larger, times = 600_000, 3_000_000, 8 // these take 1 MiB and 4 MiB
	takes := bodyMemory(large)
	if got := allocated(1, large); got < takes {
		t.Errorf("the first one: allocated %d bytes, want %d", got, takes)
	}
	if got := allocated(times, large); got > takes {
		t.Errorf("%d more: allocated %d bytes, want less than the %d of one body", times, got, takes)
	}
	if got := allocated(1, larger); got < bodyMemory(larger) {
		t.Errorf("one that is larger: allocated %d bytes, want %d", got, bodyMemory(larger))
	}
	if got := allocated(1, large); got < takes || got >= bodyMemory(larger) {
		t.Errorf("one that is smaller again: allocated %d bytes, want %d", got, takes)
	}
	runtime.GC()
	if got := allocated(1, large); got < takes {
		t.Errorf("after a garbage collection: allocated %d bytes, want %d", got, takes)
	}
}
