package cel

import (
	"context"
	"runtime"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	"github.com/google/cel-go/common/types"

	"github.com/fastadmit/fastadmit/internal/turns"
)

// A requester counts how often a turn is taken for it.
type requester struct{ asked int }

// Requester implements cluster.Requester.
func (r *requester) Requester() (user, namespace string) {
	r.asked++
	return "jane", "shop"
}

// TestTurns checks that long evaluations take a turn and give it back: otherwise the last one would wait
// forever.
func TestTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and says nothing new with poisoned memory")
	}
	all := turns.New(metrics.NewSet())
	bothEvaluators(t, func(t *testing.T, c *Compiler) {
		for text, takes := range map[string]bool{
			"lists.range(150).all(i, lists.range(800).all(j, j >= 0))": true,
			"object.words.all(x, !(x in object.l))":                    true,
			"object.kind == 'X'":                                       false,
		} {
			x := compiledWith(t, c, text)
			for range runtime.GOMAXPROCS(0) + 1 {
				r := new(requester)
				work := all.Begin(r)
				ctx := context.WithValue(t.Context(), turns.Key{}, &work)
				in := NewInput(ctx, reviewOf(t, memoryObject(20_000)))
				value, err, fatal := c.Begin(in, 1<<62).Evaluate(x)
				if value != types.True || err != nil || fatal != nil {
					t.Errorf("%s: got %v, %v, %v", text, value, err, fatal)
				}
				if (r.asked > 0) != takes {
					t.Errorf("%s: took %d turns, want one: %v", text, r.asked, takes)
				}
			}
		}
	})
}
