//go:build !race

package alwayspullimages

import (
	"context"
	"testing"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

func TestNoAllocations(t *testing.T) {
	create, update := corpus.MustRead("pods-create-v1-1.json"), corpus.MustRead("pods-update-v1-1.json")
	checkAllocations(t, handlers.Mutate, handlers.OutcomePatched, create)
	checkAllocations(t, handlers.Mutate, handlers.OutcomeAllowed, update)
	checkAllocations(t, handlers.Validate, handlers.OutcomeAllowed, update)
	checkAllocations(t, handlers.Validate, handlers.OutcomeAllowed, alwaysPulling(t))
}

func checkAllocations(t *testing.T, phase handlers.Phase, want handlers.Outcome, body []byte) {
	t.Helper()
	chain, err := handlertest.NewChain(Plugin(), "")
	if err != nil {
		t.Fatal(err)
	}
	var dst []byte
	allocations := testing.AllocsPerRun(200, func() {
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(body); err != nil {
			t.Fatal(err)
		}
		outcome, err := chain.Review(context.Background(), review, phase, handlers.All)
		if err != nil || outcome != want {
			t.Fatalf("got %s and error %v, want %s", outcome, err, want)
		}
		dst = review.AppendResponse(dst[:0])
	})
	if allocations != 0 {
		t.Errorf("%s, %s: got %v allocations, want 0", phase, want, allocations)
	}
}
