package extendedresourcetoleration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

const (
	pods = `{"group":"","version":"v1","resource":"pods"}`

	ek = `{"key":"example.com/device-ek","operator":"Exists","effect":"NoSchedule"}`
	do = `{"key":"example.com/device-do","operator":"Exists","effect":"NoSchedule"}`

	requestsCPU    = `{"resources":{"requests":{"cpu":"2"}}}`
	requestsMemory = `{"resources":{"requests":{"memory":"2048"}}}`
	requestsEk     = `{"resources":{"requests":{"example.com/device-ek":"1"}}}`
	requestsDo     = `{"resources":{"requests":{"example.com/device-do":"2"}}}`
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestAdmit(t *testing.T) {
	chain := newChain(t)
	f := func(containers, initContainers, tolerations, want string) {
		t.Helper()
		const pod = `{"spec":{"containers":[%s],"initContainers":[%s],"tolerations":[%s]}}`
		checkAdmit(t, chain, fmt.Sprintf(pod, containers, initContainers, tolerations),
			fmt.Sprintf(pod, containers, initContainers, want))
	}

	// Upstream's own cases.
	f(``, ``, ``, ``)
	f(requestsCPU, ``, ``, ``)
	f(``, requestsMemory, ``, ``)
	f(requestsEk, ``, ``, ek)
	f(``, requestsDo, ``, do)
	const other = `{"key":"foo","operator":"Equal","value":"bar","effect":"NoSchedule"}`
	f(requestsCPU+`,`+requestsEk, ``, other, other+`,`+ek)
	f(requestsMemory+`,`+requestsEk, requestsCPU+`,`+requestsDo, ``, do+`,`+ek)
	f(requestsCPU+`,`+requestsMemory+`,`+requestsEk, ``, ek, ek)
	const otherEffect = `{"key":"example.com/device-ek","operator":"Equal","value":"foo","effect":"NoExecute"}`
	f(requestsCPU+`,`+requestsMemory+`,`+requestsEk, ``, otherEffect, otherEffect+`,`+ek)
	const wildcard = `{"operator":"Exists"}`
	f(requestsCPU+`,`+requestsMemory+`,`+requestsEk, ``, wildcard, wildcard+`,`+ek)

	// A resource requested twice gets one toleration, and sorting is by bytes.
	f(requestsEk+`,`+requestsEk, requestsEk, ``, ek)
	f(`{"resources":{"requests":{"b.io/b":"1","b.io/B":"1","a.io/z":"1"}}}`, ``, ``,
		tolerationOf("a.io/z")+`,`+tolerationOf("b.io/B")+`,`+tolerationOf("b.io/b"))

	// Each of operator, effect and value must be the same for a toleration to
	// be the resource's; an empty value is none.
	for _, almost := range [...]string{
		`{"key":"example.com/device-ek","effect":"NoSchedule"}`,
		`{"key":"example.com/device-ek","operator":"Equal","effect":"NoSchedule"}`,
		`{"key":"example.com/device-ek","operator":"Exists"}`,
		`{"key":"example.com/device-ek","operator":"Exists","effect":"PreferNoSchedule"}`,
		`{"key":"example.com/device-ek","operator":"Exists","value":"x","effect":"NoSchedule"}`,
		`{"key":"example.com/device-e","operator":"Exists","effect":"NoSchedule"}`,
		`null`,
	} {
		f(requestsEk, ``, almost, almost+`,`+ek)
	}
	const emptyValue = `{"key":"example.com/device-ek","operator":"Exists","value":"","effect":"NoSchedule"}`
	f(requestsEk, ``, emptyValue, emptyValue)
	const nullValue = `{"key":"example.com/device-ek","operator":"Exists","value":null,"effect":"NoSchedule","tolerationSeconds":null}`
	f(requestsEk, ``, nullValue, nullValue)

	// Any toleration of the resource loses its seconds, where it stands.
	const seconds = `{"key":"example.com/device-ek","operator":"Exists","effect":"NoSchedule","tolerationSeconds":5}`
	f(requestsEk, ``, seconds, ek)
	f(requestsEk, ``, other+`,`+seconds+`,`+wildcard, other+`,`+ek+`,`+wildcard)
	f(requestsEk, ``, ek+`,`+seconds+`,`+seconds, ek+`,`+ek+`,`+ek)
	f(requestsEk+`,`+requestsDo, ``, seconds, ek+`,`+do)
	f(requestsDo, ``, seconds, seconds+`,`+do)
}

func TestRequests(t *testing.T) {
	chain := newChain(t)
	f := func(requests, want string) {
		t.Helper()
		checkAdmit(t, chain, podOf(requests, ``), podOf(requests, want))
	}

	// The amount does not matter.
	f(`"example.com/device-ek":"0"`, ek)
	f(`"example.com/device-ek":1`, ek)
	f(`"example.com/device-ek":null`, ek)
	f(`"example.com\/device-\u0065k":"1"`, ek)

	// Resources that are not extended.
	f(`"cpu":"1","memory":"1Gi","ephemeral-storage":"1Gi","hugepages-2Mi":"2Mi"`, ``)
	f(`"kubernetes.io/x":"1","node.kubernetes.io/x":"1"`, ``)
	f(`"requests.example.com/x":"1"`, ``)
	f(`"Example.com/x":"1","example.com/x/y":"1","example.com/":"1","/":"1"`, ``)
}

// Only requests of containers and init containers count, and what is missing
// or of another type is not there.
func TestNoRequests(t *testing.T) {
	chain := newChain(t)
	f := func(object string) {
		t.Helper()
		checkAdmit(t, chain, object, object)
	}
	f(`{"spec":{"containers":[{"resources":{"limits":{"example.com/device-ek":"1"}}}]}}`)
	f(`{"spec":{"ephemeralContainers":[` + requestsEk + `]}}`)
	f(`{"spec":{"resources":{"requests":{"example.com/device-ek":"1"}}}}`)
	f(`{"spec":{"overhead":{"example.com/device-ek":"1"}}}`)
	f(`{"spec":{"containers":null,"initContainers":null,"tolerations":null}}`)
	f(`{"spec":{"containers":[null,1,"a",[],{},{"resources":null},{"resources":{"requests":null}}]}}`)
	f(`{"spec":{"containers":{"a":` + requestsEk + `}}}`)
	f(`{"spec":{"containers":[{"resources":{"requests":["example.com/device-ek"]}}],"tolerations":"all"}}`)
	f(`{"spec":"pod"}`)
	f(`{"spec":null}`)
	f(`{}`)
}

func TestMissingTolerations(t *testing.T) {
	chain := newChain(t)
	const want = `{"spec":{"containers":[` + requestsEk + `],"tolerations":[` + ek + `]}}`
	checkAdmit(t, chain, `{"spec":{"containers":[`+requestsEk+`],"tolerations":null}}`, want)
	checkAdmit(t, chain, `{"spec":{"containers":[`+requestsEk+`]}}`, want)
}

// TestMany checks the two ways to add tolerations at the number of requests
// where they meet.
func TestMany(t *testing.T) {
	chain := newChain(t)
	for _, n := range [...]int{fewRequests - 1, fewRequests, fewRequests + 1, 300} {
		requests, want := many(n)
		checkAdmit(t, chain, podOf(requests, ``), podOf(requests, want))
		checkAdmit(t, chain, podOf(requests, tolerationOf("a.io/00001")),
			podOf(requests, tolerationOf("a.io/00001")+`,`+strings.Replace(want, `,`+tolerationOf("a.io/00001"), ``, 1)))
	}
}

// many returns n requests, the last ones first, and their tolerations.
func many(n int) (requests, tolerations string) {
	var r, to []string
	for i := range n {
		r = append(r, fmt.Sprintf(`"a.io/%05d":"1"`, n-1-i))
		to = append(to, tolerationOf(fmt.Sprintf("a.io/%05d", i)))
	}
	return strings.Join(r, `,`), strings.Join(to, `,`)
}

// What cannot be changed is the plugin's failure: no panic, no patch.
func TestAdmitFailure(t *testing.T) {
	chain := newChain(t)
	f := func(tolerations string) {
		t.Helper()
		object := `{"spec":{"containers":[` + requestsEk + `],"tolerations":` + tolerations + `}}`
		if _, outcome := run(t, chain, reviewOf("CREATE", pods, object), nil); outcome != handlers.OutcomeErrored {
			t.Errorf("%s: got %v, want %v", object, outcome, handlers.OutcomeErrored)
		}
	}
	f(`"all"`)
	f(`{}`)
}

func TestHandles(t *testing.T) {
	chain := newChain(t)
	f := func(operation, resource string, want handlers.Outcome) {
		t.Helper()
		body := reviewOf(operation, resource, `{"spec":{"containers":[`+requestsEk+`]}}`)
		if _, outcome := run(t, chain, body, nil); outcome != want {
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
	chain := newChain(b)
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
	f("allowed", handlers.OutcomeAllowed, recording(b, false))
	f("patched", handlers.OutcomePatched, recording(b, true))
}

// recording returns the creation of a pod as it was recorded, or with an
// extended resource requested.
func recording(t testing.TB, extended bool) []byte {
	t.Helper()
	body := corpus.MustRead("pods-create-v1-1.json")
	if !extended {
		return body
	}
	changed := bytes.Replace(body, []byte(`"requests":{`), []byte(`"requests":{"example.com/gpu":"1",`), 1)
	if len(changed) == len(body) {
		t.Fatal("the recording has no requests to add one to")
	}
	return changed
}

func podOf(requests, tolerations string) string {
	return `{"spec":{"containers":[{"resources":{"requests":{` + requests + `}}}],"tolerations":[` + tolerations + `]}}`
}

func reviewOf(operation, resource, object string) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","resource":%s,"operation":%q,"object":%s}}`,
		resource, operation, object)
}

func newChain(t testing.TB) *handlers.Chain {
	t.Helper()
	chain, err := handlertest.NewChain(Plugin(), "")
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
