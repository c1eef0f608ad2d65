package creator

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.Mutates(t, Plugin(), "", nil, "/metadata/annotations", "/metadata/annotations/example.com~1creator")
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, corpus.MustRead("namespaces-create-v1-2.json"))
}
