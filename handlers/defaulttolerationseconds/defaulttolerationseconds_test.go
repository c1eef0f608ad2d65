package defaulttolerationseconds

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const (
	pods = "v1/pods"

	notReady300    = `{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}`
	unreachable300 = `{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}`
	notReady700    = `{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":700}`
	unreachable700 = `{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":700}`
	other          = `{"key":"foo","operator":"Equal","value":"bar","effect":"NoSchedule","tolerationSeconds":700}`
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin(DefaultOptions())) }

func TestMutates(t *testing.T) {
	admissiontest.Mutates(t, Plugin(DefaultOptions()), "", withoutTolerations, "/spec/tolerations", "/spec/tolerations/*")
}

func TestTolerations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(DefaultOptions()), "")
	f := func(tolerations, want string) {
		t.Helper()
		object, want := `{"spec":{"tolerations":[`+tolerations+`]}}`, `{"spec":{"tolerations":[`+want+`]}}`
		admissiontest.CheckAdmit(t, chain, pods, object, want)
	}
	unchanged := func(tolerations string) {
		t.Helper()
		f(tolerations, tolerations)
	}

	// Upstream's own cases.
	f(``, notReady300+`,`+unreachable300)
	f(other, other+`,`+notReady300+`,`+unreachable300)
	f(notReady700, notReady700+`,`+unreachable300)
	f(unreachable700, unreachable700+`,`+notReady300)
	unchanged(notReady700 + `,` + unreachable700)
	f(`{"key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":700}`,
		`{"key":"node.kubernetes.io/unreachable","operator":"Exists","tolerationSeconds":700},`+notReady300)
	unchanged(`{"operator":"Exists","tolerationSeconds":700}`)

	// No key tolerates every taint, no effect every effect; both may also be empty or null.
	unchanged(`{"operator":"Exists","effect":"NoExecute"}`)
	unchanged(`{"key":"","operator":"Exists","effect":""}`)
	unchanged(`{"key":null,"operator":"Exists","effect":null}`)
	unchanged(other + `,{"operator":"Exists"}`)
	unchanged(unreachable700 + `,` + other + `,` + notReady700)

	// Tolerations of other effects are ignored.
	f(`{"operator":"Exists","effect":"NoSchedule"}`,
		`{"operator":"Exists","effect":"NoSchedule"},`+notReady300+`,`+unreachable300)
	f(`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"PreferNoSchedule"}`,
		`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"PreferNoSchedule"},`+notReady300+`,`+unreachable300)
	f(`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"noexecute"}`,
		`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"noexecute"},`+notReady300+`,`+unreachable300)

	// Operator, value and seconds are ignored.
	unchanged(`{"key":"node.kubernetes.io/not-ready","operator":"Equal","value":"x","effect":"NoExecute"},` + unreachable300)
	unchanged(`{"key":"node.kubernetes.io/not-ready"},{"key":"node.kubernetes.io/unreachable"}`)

	// Keys are compared after unescaping.
	unchanged(`{"key":"node.kubernetes.io\/not-ready","effect":"No\u0045xecute"},` + unreachable300)
	f(`{"key":"node.kubernetes.io/not-ready-yet","effect":"NoExecute"}`,
		`{"key":"node.kubernetes.io/not-ready-yet","effect":"NoExecute"},`+notReady300+`,`+unreachable300)

	// The API server reads null as the empty toleration, which has no key.
	unchanged(`null`)
}

func TestMissingParents(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(DefaultOptions()), "")
	f := func(object string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, pods, object, `{"spec":{"tolerations":[`+notReady300+`,`+unreachable300+`]}}`)
	}
	f(`{"spec":{"tolerations":null}}`)
	f(`{"spec":{}}`)
	f(`{"spec":null}`)
	f(`{}`)
}

func TestOptions(t *testing.T) {
	f := func(options Options, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, admissiontest.MustChain(t, Plugin(options), ""), pods, `{"spec":{}}`, want)
	}
	const pod = `{"spec":{"tolerations":[` +
		`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":%d},` +
		`{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":%d}]}}`
	f(Options{NotReadyTolerationSeconds: 30, UnreachableTolerationSeconds: 60}, fmt.Sprintf(pod, 30, 60))
	f(Options{}, fmt.Sprintf(pod, 0, 0))
	f(Options{NotReadyTolerationSeconds: -1, UnreachableTolerationSeconds: math.MaxInt64}, fmt.Sprintf(pod, -1, math.MaxInt64))
}

// TestAdmitFailure has values that cannot be changed: the plugin fails, without panic or
// patch.
func TestAdmitFailure(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(DefaultOptions()), "")
	f := func(object string) {
		t.Helper()
		body := admissiontest.Body(codec.Create, pods, object)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, body)
	}
	f(`{"spec":"pod"}`)
	f(`{"spec":[]}`)
	f(`{"spec":{"tolerations":"all"}}`)
	f(`{"spec":{"tolerations":{}}}`)
	f(`null`)
}

func TestHandles(t *testing.T) {
	admissiontest.CheckPodsCreateUpdate(t, admissiontest.MustChain(t, Plugin(DefaultOptions()), ""), `{"spec":{}}`)
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(DefaultOptions()), "")
	body := corpus.MustRead("pods-create-v1-1.json")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, withoutTolerations(body))
}

func BenchmarkAdmit(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(DefaultOptions()), "")
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Mutate, want, body) })
	}
	body := corpus.MustRead("pods-create-v1-1.json")
	f("allowed", admission.OutcomeAllowed, body)
	f("patched", admission.OutcomePatched, withoutTolerations(body))
}

// withoutTolerations removes the tolerations that the in-tree plugin added to a recorded
// review.
func withoutTolerations(body []byte) []byte {
	const added = notReady300 + `,` + unreachable300
	body = bytes.ReplaceAll(body, []byte(`,`+added), nil)
	return bytes.ReplaceAll(body, []byte(added), nil)
}
