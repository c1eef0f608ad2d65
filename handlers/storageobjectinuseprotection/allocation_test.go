//go:build !race

package storageobjectinuseprotection

import (
	"testing"

	"github.com/fastadmit/fastadmit/handlers"
)

func TestNoAllocations(t *testing.T) {
	chain := newChain(t)
	var dst []byte
	f := func(want handlers.Outcome, body []byte) {
		t.Helper()
		allocations := testing.AllocsPerRun(100, func() {
			var outcome handlers.Outcome
			if dst, outcome = run(t, chain, body, dst[:0]); outcome != want {
				t.Fatalf("got %v, want %v", outcome, want)
			}
		})
		if allocations != 0 {
			t.Errorf("%v: got %v allocations, want 0", want, allocations)
		}
	}

	f(handlers.OutcomeAllowed, recording(true))
	f(handlers.OutcomePatched, recording(false))
}
