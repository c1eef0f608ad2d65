package alwayspullimages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	admissiontest.Mutates(t, Plugin(), "", nil,
		"/spec/containers/*/imagePullPolicy",
		"/spec/initContainers/*/imagePullPolicy",
		"/spec/ephemeralContainers/*/imagePullPolicy",
		"/spec/volumes/*/image/pullPolicy",
	)
}

// create returns a review of a new Pod with this JSON as its spec.
func create(spec string) []byte {
	return admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"123"},"spec":`+spec+`}`)
}

// TestOddPods has pods that no API server sends: wrong values are read as missing.
func TestOddPods(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	f := func(phase admission.Phase, spec, want string) {
		t.Helper()
		if got := string(admissiontest.Answer(t, chain, phase, create(spec))); got != want {
			t.Errorf("%s %s\ngot  %s\nwant %s", phase, spec, got, want)
		}
	}
	for _, spec := range []string{
		`null`, `[]`, `"spec"`, `{}`, `{"containers":null,"volumes":null}`, `{"containers":{},"volumes":"image"}`,
		`{"volumes":[null,{},{"image":null},{"image":"Always"}]}`,
	} {
		f(admission.Mutate, spec, `{"allowed":true}`)
		f(admission.Validate, spec, `{"allowed":true}`)
	}

	const patch = `{"allowed":true,"patch":[{"op":"%s","path":"/spec/containers/%d/imagePullPolicy","value":"Always"}],` +
		`"patchType":"JSONPatch"}`
	f(admission.Mutate, `{"containers":[null,1,"image",[],{"image":"a"}]}`, fmt.Sprintf(patch, "add", 4))
	f(admission.Mutate, `{"containers":[{"imagePullPolicy":null}]}`, fmt.Sprintf(patch, "replace", 0))
	f(admission.Mutate, `{"containers":[{"imagePullPolicy":1}]}`, fmt.Sprintf(patch, "replace", 0))
}

// TestManyContainers has more messages than a denial collects. It would time out if the cost
// were quadratic, as that of the in-tree plugin's aggregate is.
func TestManyContainers(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	const n = 50_000
	body := create(`{"containers":[` + strings.Repeat(`{"image":"a"},`, n) + `{"image":"a"}]}`)
	got := admissiontest.Answer(t, chain, admission.Validate, body)
	var messages []string
	for length := 0; length <= admission.MessagesBytesMax; length += len(messages[len(messages)-1]) {
		messages = append(messages,
			fmt.Sprintf(`pods "name" is forbidden: spec.containers[%d].imagePullPolicy: Unsupported value: "": supported values: "Always"`,
				len(messages)))
	}
	want := len("AlwaysPullImages: " + aggregate(messages).Error())
	var whole int // the length of the message before it was truncated
	_, note, _ := bytes.Cut(got, []byte("(truncated, "))
	if _, err := fmt.Sscan(string(note), &whole); err != nil || whole != want || len(messages) > n {
		t.Errorf("got a message of %d bytes, %v, want %d, of %d containers", whole, err, want, len(messages))
	}
}

// TestAggregate compares aggregate with the in-tree plugin's.
func TestAggregate(t *testing.T) {
	for n := 1; n < 4; n++ {
		var messages []string
		var errs []error
		for i := range n {
			messages = append(messages, fmt.Sprint("no. ", i))
			errs = append(errs, fmt.Errorf("no. %d", i))
		}
		if got, want := aggregate(messages).Error(), utilerrors.NewAggregate(errs).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "")
	create, update := corpus.MustRead("pods-create-v1-1.json"), corpus.MustRead("pods-update-v1-1.json")
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomePatched, create)
	admissiontest.NoAllocations(t, chain, admission.Mutate, admission.OutcomeAllowed, update)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, update)
	admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, alwaysPulling(t))
}

func BenchmarkMutate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "")
	admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomePatched, corpus.MustRead("pods-create-v1-1.json"))
}

func BenchmarkMutateUpdate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "")
	admissiontest.Benchmark(b, chain, admission.Mutate, admission.OutcomeAllowed, corpus.MustRead("pods-update-v1-1.json"))
}

func BenchmarkValidate(b *testing.B) {
	chain := admissiontest.MustChain(b, Plugin(), "")
	admissiontest.Benchmark(b, chain, admission.Validate, admission.OutcomeAllowed, alwaysPulling(b))
}

// alwaysPulling returns the recorded Pod as the plugin changes it.
func alwaysPulling(t testing.TB) []byte {
	t.Helper()
	body := corpus.MustRead("pods-create-v1-1.json")
	mutated := bytes.ReplaceAll(body, []byte(`"IfNotPresent"`), []byte(`"Always"`))
	if bytes.Equal(mutated, body) || !json.Valid(mutated) {
		t.Fatal("the recording has no policy to replace")
	}
	return mutated
}
