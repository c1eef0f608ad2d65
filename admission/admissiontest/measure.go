package admissiontest

import (
	"runtime"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/allocs"
)

// NoAllocations checks that the server does not allocate between a body and its
// response, and that the review has the outcome want. The test is skipped with the race
// detector and with the build tag poison, because both allocate.
func NoAllocations(t testing.TB, chain *admission.Chain, phase admission.Phase, want admission.Outcome, body []byte) {
	t.Helper()
	if allocates {
		t.Skip("this build allocates: the race detector, or the tag poison")
	}
	var dst []byte
	allocations := allocs.PerRun(200, func() { dst = mustEnd(t, chain, phase, want, body, dst[:0]) })
	if allocations != 0 {
		t.Errorf("%s, %s: got %v allocations, want 0", phase, want, allocations)
	}
}

// Benchmark measures the time and memory between a body and its response, and checks the
// outcome.
func Benchmark(b *testing.B, chain *admission.Chain, phase admission.Phase, want admission.Outcome, body []byte) {
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		dst = mustEnd(b, chain, phase, want, body, dst[:0])
	}
}

// mustEnd is Respond for a review that must have the outcome want.
func mustEnd(t testing.TB, chain *admission.Chain, phase admission.Phase, want admission.Outcome, body, dst []byte) []byte {
	dst, got := Respond(t, chain, phase, body, dst)
	if got != want {
		t.Fatalf("%s: got %s and %s, want %s", phase, got, dst, want)
	}
	return dst
}

// LiveHeap returns the number of bytes in use on the heap after two garbage collections.
// Pools release their memory only in the second one.
func LiveHeap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
