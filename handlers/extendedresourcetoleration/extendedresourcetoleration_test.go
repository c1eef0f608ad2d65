package extendedresourcetoleration

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

const (
	pods = "v1/pods"

	ek = `{"key":"example.com/device-ek","operator":"Exists","effect":"NoSchedule"}`
	do = `{"key":"example.com/device-do","operator":"Exists","effect":"NoSchedule"}`

	requestsCPU    = `{"resources":{"requests":{"cpu":"2"}}}`
	requestsMemory = `{"resources":{"requests":{"memory":"2048"}}}`
	requestsEk     = `{"resources":{"requests":{"example.com/device-ek":"1"}}}`
	requestsDo     = `{"resources":{"requests":{"example.com/device-do":"2"}}}`
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.Mutates(t, Plugin(), "", requestGPU, "/spec/tolerations", "/spec/tolerations/*")
}

func TestAdmit(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(containers, initContainers, tolerations, want string) {
		t.Helper()
		const pod = `{"spec":{"containers":[%s],"initContainers":[%s],"tolerations":[%s]}}`
		admissiontest.CheckAdmit(t, chain, pods, fmt.Sprintf(pod, containers, initContainers, tolerations),
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

	// A resource that is requested twice gets one toleration. Tolerations are sorted by
	// bytes.
	f(requestsEk+`,`+requestsEk, requestsEk, ``, ek)
	f(`{"resources":{"requests":{"b.io/b":"1","b.io/B":"1","a.io/z":"1"}}}`, ``, ``,
		tolerationOf("a.io/z")+`,`+tolerationOf("b.io/B")+`,`+tolerationOf("b.io/b"))

	// Operator, effect and value of the resource's toleration must be equal; an empty value
	// is the same as none.
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

	// A toleration of the resource loses its seconds, at any position.
	const seconds = `{"key":"example.com/device-ek","operator":"Exists","effect":"NoSchedule","tolerationSeconds":5}`
	f(requestsEk, ``, seconds, ek)
	f(requestsEk, ``, other+`,`+seconds+`,`+wildcard, other+`,`+ek+`,`+wildcard)
	f(requestsEk, ``, ek+`,`+seconds+`,`+seconds, ek+`,`+ek+`,`+ek)
	f(requestsEk+`,`+requestsDo, ``, seconds, ek+`,`+do)
	f(requestsDo, ``, seconds, seconds+`,`+do)
}

func TestRequests(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(requests, want string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, pods, podOf(requests, ``), podOf(requests, want))
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

// TestNoRequests checks that only requests of containers and init containers count, and that
// values of other types are read as missing.
func TestNoRequests(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(object string) {
		t.Helper()
		admissiontest.CheckAdmit(t, chain, pods, object, object)
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
	chain := admissiontest.MustChain(t, Plugin(), "")
	const want = `{"spec":{"containers":[` + requestsEk + `],"tolerations":[` + ek + `]}}`
	admissiontest.CheckAdmit(t, chain, pods, `{"spec":{"containers":[`+requestsEk+`],"tolerations":null}}`, want)
	admissiontest.CheckAdmit(t, chain, pods, `{"spec":{"containers":[`+requestsEk+`]}}`, want)
}

// TestMany has the number of requests that need no memory, one fewer, one more, and many.
func TestMany(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	for _, n := range [...]int{fewRequests - 1, fewRequests, fewRequests + 1, 1_000} {
		requests, want := many(n)
		f := func(tolerations, want string) {
			t.Helper()
			admissiontest.CheckAdmit(t, chain, pods, podOf(requests, tolerations), podOf(requests, want))
		}
		f(``, want)
		const second = `{"key":"a.io/00001","operator":"Exists","effect":"NoSchedule"}`
		f(second, second+`,`+strings.Replace(want, `,`+second, ``, 1))
		f(withSeconds(want), want)
	}
}

// TestTooMany has more tolerations than fit into an object in etcd.
func TestTooMany(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	requests, tolerations := many(20_000)
	f := func(tolerations string, want admission.Outcome) {
		t.Helper()
		body := admissiontest.Body(codec.Create, pods, podOf(requests, tolerations))
		admissiontest.CheckOutcome(t, chain, admission.Mutate, want, body)
	}
	f(``, admission.OutcomePatched)
	f(withSeconds(tolerations), admission.OutcomePatched)
	f(tolerations, admission.OutcomeAllowed)
}

// many returns n requests, in descending order, and their tolerations.
func many(n int) (requests, tolerations string) {
	var r, to []string
	for i := range n {
		r = append(r, fmt.Sprintf(`"a.io/%05d":"1"`, n-1-i))
		to = append(to, tolerationOf(fmt.Sprintf("a.io/%05d", i)))
	}
	return strings.Join(r, `,`), strings.Join(to, `,`)
}

// TestAdmitFailure has values that cannot be changed: the plugin fails, without panic or
// patch.
func TestAdmitFailure(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(tolerations string) {
		t.Helper()
		object := `{"spec":{"containers":[` + requestsEk + `],"tolerations":` + tolerations + `}}`
		body := admissiontest.Body(codec.Create, pods, object)
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeErrored, body)
	}
	f(`"all"`)
	f(`{}`)
}

func TestHandles(t *testing.T) {
	admissiontest.CheckPodsCreateUpdate(t, admissiontest.MustChain(t, Plugin(), ""), `{"spec":{"containers":[`+requestsEk+`]}}`)
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(want admission.Outcome, body []byte) {
		t.Helper()
		admissiontest.NoAllocations(t, chain, admission.Mutate, want, body)
	}

	body := corpus.MustRead("pods-create-v1-1.json")
	f(admission.OutcomeAllowed, body)
	f(admission.OutcomePatched, requestGPU(body))

	requests, tolerations := many(fewRequests)
	f(admission.OutcomePatched, admissiontest.Body(codec.Create, pods, podOf(requests, ``)))
	f(admission.OutcomePatched, admissiontest.Body(codec.Create, pods, podOf(requests, withSeconds(tolerations))))
	f(admission.OutcomeAllowed, admissiontest.Body(codec.Create, pods, podOf(requests, tolerations)))
}

// BenchmarkAdmit has the same pod with ten times the requests, which must not take a hundred
// times as long.
func BenchmarkAdmit(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "")
	f := func(name string, want admission.Outcome, body []byte) {
		b.Run(name, func(b *testing.B) { admissiontest.Benchmark(b, chain, admission.Mutate, want, body) })
	}
	body := corpus.MustRead("pods-create-v1-1.json")
	f("allowed", admission.OutcomeAllowed, body)
	f("patched", admission.OutcomePatched, requestGPU(body))
	for _, n := range [...]int{1_000, 10_000} {
		requests, tolerations := many(n)
		pod := func(has string) []byte { return admissiontest.Body(codec.Create, pods, podOf(requests, has)) }
		f(fmt.Sprintf("added=%d", n), admission.OutcomePatched, pod(``))
		f(fmt.Sprintf("tolerated=%d", n), admission.OutcomeAllowed, pod(tolerations))
		f(fmt.Sprintf("updated=%d", n), admission.OutcomePatched, pod(withSeconds(tolerations)))
	}
}

// requestGPU adds a request for an extended resource to every recorded container with
// requests.
func requestGPU(body []byte) []byte {
	return bytes.ReplaceAll(body, []byte(`"requests":{`), []byte(`"requests":{"example.com/gpu":"1",`))
}

func podOf(requests, tolerations string) string {
	return `{"spec":{"containers":[{"resources":{"requests":{` + requests + `}}}],"tolerations":[` + tolerations + `]}}`
}

func tolerationOf(resource string) string {
	return `{"key":"` + resource + `","operator":"Exists","effect":"NoSchedule"}`
}

func withSeconds(tolerations string) string {
	return strings.ReplaceAll(tolerations, `"NoSchedule"`, `"NoSchedule","tolerationSeconds":5`)
}
