package limitpodhardantiaffinitytopology

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// TestOddPods has pods that no API server sends: wrong values are read as missing. A term
// without a topology key is denied, as in-tree.
func TestOddPods(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(object, want string) {
		t.Helper()
		body := admissiontest.Body(codec.Create, "v1/pods", object)
		if got := string(admissiontest.Answer(t, chain, admission.Validate, body)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", object, got, want)
		}
	}
	required := func(terms string) string {
		return `{"spec":{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":` + terms + `}}}}`
	}

	const allowed = `{"allowed":true}`
	f(`null`, allowed)
	f(`{}`, allowed)
	f(`{"spec":null}`, allowed)
	f(`{"spec":[{"affinity":1}]}`, allowed)
	f(`{"spec":{"affinity":null}}`, allowed)
	f(`{"spec":{"affinity":{"podAntiAffinity":null}}}`, allowed)
	f(required(`null`), allowed)
	f(required(`[]`), allowed)
	f(required(`{"topologyKey":"zone"}`), allowed)
	f(required(`[{"topologyKey":"kubernetes.io\/hostnam\u0065"}]`), allowed)

	const denied = `{"allowed":false,"status":{"code":403,"details":{"kind":"pods"},` +
		`"message":"pods is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey  ` +
		`but only key kubernetes.io/hostname is allowed","metadata":{},"reason":"Forbidden","status":"Failure"}}`
	f(required(`[{}]`), denied)
	f(required(`[{"topologyKey":null}]`), denied)
	f(required(`[{"topologyKey":["kubernetes.io/hostname"]}]`), denied)
	f(required(`[null]`), denied)
	f(required(`["kubernetes.io/hostname"]`), denied)
}

func TestNoAllocations(t *testing.T) {
	// This one has required anti-affinity.
	body := corpus.MustRead("pods-create-v1-1.json")
	admissiontest.NoAllocations(t, admissiontest.MustChain(t, Plugin(), ""), admission.Validate, admission.OutcomeAllowed, body)
}
