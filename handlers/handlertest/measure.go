package handlertest

import (
	"runtime"
	"testing"

	"github.com/fastadmit/fastadmit/handlers"
)

// NoAllocations checks that the server allocates nothing from a body to its
// response, and how the review ends. The test is skipped under the race detector
// and the build tag poison, which allocate.
func NoAllocations(t testing.TB, chain *handlers.Chain, phase handlers.Phase, want handlers.Outcome, body []byte) {
	t.Helper()
	if allocates {
		t.Skip("this build allocates: the race detector, or the tag poison")
	}
	var dst []byte
	allocations := testing.AllocsPerRun(200, func() { dst = mustEnd(t, chain, phase, want, body, dst[:0]) })
	if allocations != 0 {
		t.Errorf("%s, %s: got %v allocations, want 0", phase, want, allocations)
	}
}

// Benchmark measures what the server does from a body to its response.
func Benchmark(b *testing.B, chain *handlers.Chain, phase handlers.Phase, want handlers.Outcome, body []byte) {
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		dst = mustEnd(b, chain, phase, want, body, dst[:0])
	}
}

// mustEnd is Respond for a review that must end like that.
func mustEnd(t testing.TB, chain *handlers.Chain, phase handlers.Phase, want handlers.Outcome, body, dst []byte) []byte {
	dst, got := Respond(t, chain, phase, body, dst)
	if got != want {
		t.Fatalf("%s: got %s and %s, want %s", phase, got, dst, want)
	}
	return dst
}

// LiveHeap returns how many bytes of the heap are in use after a garbage collection, and
// after a second one, because pools keep what they have for one.
func LiveHeap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
