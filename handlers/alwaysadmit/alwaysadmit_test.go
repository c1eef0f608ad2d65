package alwaysadmit

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// TestRecordings allows every recorded review without a patch.
func TestRecordings(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	runs := 0
	chain.Observe = func(admission.Run) { runs++ }
	for _, name := range corpus.Names() {
		for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
			got := string(admissiontest.Answer(t, chain, phase, corpus.MustRead(name)))
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
	chain, body := admissiontest.MustChain(t, Plugin(), ""), corpus.MustRead("pods-create-v1-1.json")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, body)
}
