package defaulttolerationseconds

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const (
	pods = `{"group":"","version":"v1","resource":"pods"}`

	notReady300    = `{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}`
	unreachable300 = `{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}`
	notReady700    = `{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":700}`
	unreachable700 = `{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":700}`
	other          = `{"key":"foo","operator":"Equal","value":"bar","effect":"NoSchedule","tolerationSeconds":700}`
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin(DefaultOptions())) }

func TestTolerations(t *testing.T) {
	chain := newChain(t, DefaultOptions())
	f := func(tolerations, want string) {
		t.Helper()
		object, want := `{"spec":{"tolerations":[`+tolerations+`]}}`, `{"spec":{"tolerations":[`+want+`]}}`
		checkAdmit(t, chain, object, want)
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

	// No key stands for every taint, no effect for every effect; both may also
	// be empty or null.
	unchanged(`{"operator":"Exists","effect":"NoExecute"}`)
	unchanged(`{"key":"","operator":"Exists","effect":""}`)
	unchanged(`{"key":null,"operator":"Exists","effect":null}`)
	unchanged(other + `,{"operator":"Exists"}`)
	unchanged(unreachable700 + `,` + other + `,` + notReady700)

	// Another effect is none of the plugin's business.
	f(`{"operator":"Exists","effect":"NoSchedule"}`,
		`{"operator":"Exists","effect":"NoSchedule"},`+notReady300+`,`+unreachable300)
	f(`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"PreferNoSchedule"}`,
		`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"PreferNoSchedule"},`+notReady300+`,`+unreachable300)
	f(`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"noexecute"}`,
		`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"noexecute"},`+notReady300+`,`+unreachable300)

	// Operator, value and seconds do not count.
	unchanged(`{"key":"node.kubernetes.io/not-ready","operator":"Equal","value":"x","effect":"NoExecute"},` + unreachable300)
	unchanged(`{"key":"node.kubernetes.io/not-ready"},{"key":"node.kubernetes.io/unreachable"}`)

	// A key is compared as what it stands for, not as it is written.
	unchanged(`{"key":"node.kubernetes.io\/not-ready","effect":"No\u0045xecute"},` + unreachable300)
	f(`{"key":"node.kubernetes.io/not-ready-yet","effect":"NoExecute"}`,
		`{"key":"node.kubernetes.io/not-ready-yet","effect":"NoExecute"},`+notReady300+`,`+unreachable300)

	// The API server reads null as the empty toleration, which has no key.
	unchanged(`null`)
}

func TestMissingParents(t *testing.T) {
	chain := newChain(t, DefaultOptions())
	f := func(object string) {
		t.Helper()
		checkAdmit(t, chain, object, `{"spec":{"tolerations":[`+notReady300+`,`+unreachable300+`]}}`)
	}
	f(`{"spec":{"tolerations":null}}`)
	f(`{"spec":{}}`)
	f(`{"spec":null}`)
	f(`{}`)
}

func TestOptions(t *testing.T) {
	f := func(options Options, want string) {
		t.Helper()
		checkAdmit(t, newChain(t, options), `{"spec":{}}`, want)
	}
	const pod = `{"spec":{"tolerations":[` +
		`{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":%d},` +
		`{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":%d}]}}`
	f(Options{NotReadyTolerationSeconds: 30, UnreachableTolerationSeconds: 60}, fmt.Sprintf(pod, 30, 60))
	f(Options{}, fmt.Sprintf(pod, 0, 0))
	f(Options{NotReadyTolerationSeconds: -1, UnreachableTolerationSeconds: math.MaxInt64}, fmt.Sprintf(pod, -1, math.MaxInt64))
}

// What cannot be changed is the plugin's failure: no panic, no patch.
func TestAdmitFailure(t *testing.T) {
	chain := newChain(t, DefaultOptions())
	f := func(object string) {
		t.Helper()
		if _, outcome := run(t, chain, reviewOf("CREATE", pods, object), nil); outcome != handlers.OutcomeErrored {
			t.Errorf("%s: got %v, want %v", object, outcome, handlers.OutcomeErrored)
		}
	}
	f(`{"spec":"pod"}`)
	f(`{"spec":[]}`)
	f(`{"spec":{"tolerations":"all"}}`)
	f(`{"spec":{"tolerations":{}}}`)
	f(`null`)
}

func TestHandles(t *testing.T) {
	chain := newChain(t, DefaultOptions())
	f := func(operation, resource string, want handlers.Outcome) {
		t.Helper()
		if _, outcome := run(t, chain, reviewOf(operation, resource, `{"spec":{}}`), nil); outcome != want {
			t.Errorf("%s %s: got %v, want %v", operation, resource, outcome, want)
		}
	}
	f("CREATE", pods, handlers.OutcomePatched)
	f("UPDATE", pods, handlers.OutcomePatched)
	f("DELETE", pods, handlers.OutcomeAllowed)
	f("CONNECT", pods, handlers.OutcomeAllowed)
	f("CREATE", `{"group":"","version":"v1","resource":"podtemplates"}`, handlers.OutcomeAllowed)
	f("CREATE", `{"group":"example.com","version":"v1","resource":"pods"}`, handlers.OutcomeAllowed)
}

func BenchmarkAdmit(b *testing.B) {
	chain := newChain(b, DefaultOptions())
	f := func(name string, want handlers.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				var outcome handlers.Outcome
				if dst, outcome = run(b, chain, body, dst[:0]); outcome != want {
					b.Fatalf("got %v, want %v", outcome, want)
				}
			}
		})
	}
	f("allowed", handlers.OutcomeAllowed, recording(b, true))
	f("patched", handlers.OutcomePatched, recording(b, false))
}

// recording returns the creation of a pod as it was recorded, or without the
// tolerations that in-tree gave it then.
func recording(t testing.TB, tolerates bool) []byte {
	t.Helper()
	body := corpus.MustRead("pods-create-v1-1.json")
	if tolerates {
		return body
	}
	stripped := bytes.Replace(body, []byte(`,`+notReady300+`,`+unreachable300), nil, 1)
	if len(stripped) == len(body) {
		t.Fatal("the recording has no tolerations to take away")
	}
	return stripped
}

func reviewOf(operation, resource, object string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","resource":%s,"operation":%q,"object":%s}}`,
		resource, operation, object)
}

func newChain(t testing.TB, options Options) *handlers.Chain {
	t.Helper()
	chain, err := handlertest.NewChain(Plugin(options), "")
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// run does with a body what the server does and appends the response to dst.
func run(t testing.TB, chain *handlers.Chain, body, dst []byte) ([]byte, handlers.Outcome) {
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	outcome, err := chain.Review(context.Background(), review, handlers.Mutate, handlers.All)
	if err != nil {
		t.Fatal(err)
	}
	return review.AppendResponse(dst), outcome
}

// checkAdmit checks what a created pod becomes, and that it stays that when it
// is admitted again.
func checkAdmit(t *testing.T, chain *handlers.Chain, object, want string) {
	t.Helper()
	if got := admitted(t, chain, object); !equalJSON(t, got, want) {
		t.Errorf("%s: got %s, want %s", object, got, want)
	}
	if again := admitted(t, chain, want); !equalJSON(t, again, want) {
		t.Errorf("%s: mutating twice is not mutating once: got %s", want, again)
	}
}

// admitted returns the created pod with the response's patch applied by the
// library that kube-apiserver applies it with.
func admitted(t *testing.T, chain *handlers.Chain, object string) string {
	t.Helper()
	var response struct {
		Allowed bool
		Patch   json.RawMessage
	}
	answer := handlertest.Answer(t, chain, handlers.Mutate, reviewOf("CREATE", pods, object))
	if err := json.Unmarshal(answer, &response); err != nil || !response.Allowed {
		t.Fatalf("%s: got %s (%v), want it allowed", object, answer, err)
	}
	if response.Patch == nil {
		return object
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatalf("%s: %v in %s", object, err, response.Patch)
	}
	applied, err := patch.Apply([]byte(object))
	if err != nil {
		t.Fatalf("%s: %v in %s", object, err, response.Patch)
	}
	return string(applied)
}

func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatalf("%v in %s", err, a)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return reflect.DeepEqual(x, y)
}
