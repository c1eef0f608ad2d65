//go:build !race

package extendedresourcetoleration

import (
	"strings"
	"testing"
	"time"

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

	f(handlers.OutcomeAllowed, recording(t, false))
	f(handlers.OutcomePatched, recording(t, true))

	const all = `"a.io/x":"1","b.io/x":"1","c.io/x":"1","d.io/x":"1","e.io/x":"1","f.io/x":"1","g.io/x":"1","h.io/x":"1"`
	f(handlers.OutcomePatched, reviewOf("CREATE", pods, podOf(all, ``)))
	f(handlers.OutcomeAllowed, reviewOf("CREATE", pods, podOf(`"a.io/x":"1"`, tolerationOf("a.io/x"))))
}

// TestTime checks that the time does not grow with the square of what a pod
// requests or tolerates. It takes about a second; with the square it was 33
// seconds for the first pod.
func TestTime(t *testing.T) {
	const n, most = 100_000, 10 * time.Second
	chain := newChain(t)
	requests, tolerations := many(n)
	withSeconds := strings.ReplaceAll(tolerations, `"NoSchedule"`, `"NoSchedule","tolerationSeconds":5`)
	for _, has := range [...]string{``, tolerations, withSeconds} {
		body := reviewOf("CREATE", pods, podOf(requests, has))
		start := time.Now()
		run(t, chain, body, nil)
		if elapsed := time.Since(start); elapsed > most {
			t.Errorf("got %v for a body of %d bytes, want less than %v", elapsed, len(body), most)
		}
	}
}
