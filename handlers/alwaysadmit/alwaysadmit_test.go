package alwaysadmit

import (
	"testing"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

// TestRecordings gets every recorded review, and allows it without a patch.
func TestRecordings(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	runs := 0
	chain.Observe = func(handlers.Run) { runs++ }
	for _, name := range corpus.Names() {
		for _, phase := range []handlers.Phase{handlers.Mutate, handlers.Validate} {
			got := string(handlertest.Answer(t, chain, phase, corpus.MustRead(name)))
			if want := `{"allowed":true}`; got != want {
				t.Errorf("%s %s: got %s, want %s", phase, name, got, want)
			}
		}
	}
	if want := 2 * len(corpus.Names()); runs != want {
		t.Errorf("got %d runs of the plugin, want %d", runs, want)
	}
}

func TestNoAllocations(t *testing.T) {
	chain, body := handlertest.MustChain(t, Plugin(), ""), corpus.MustRead("pods-create-v1-1.json")
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomeAllowed, body)
	handlertest.NoAllocations(t, chain, handlers.Validate, handlers.OutcomeAllowed, body)
}
