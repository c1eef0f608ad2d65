package creator

import (
	"testing"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	handlertest.Mutates(t, Plugin(), "", nil, "/metadata/annotations", "/metadata/annotations/example.com~1creator")
}

func TestNoAllocations(t *testing.T) {
	chain := handlertest.MustChain(t, Plugin(), "")
	handlertest.NoAllocations(t, chain, handlers.Mutate, handlers.OutcomePatched, corpus.MustRead("namespaces-create-v1-2.json"))
}
