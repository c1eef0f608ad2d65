package alwayspullimages

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/handlertest"
)

func TestGolden(t *testing.T) { handlertest.Run(t, Plugin()) }

func TestMutates(t *testing.T) {
	handlertest.Mutates(t, Plugin(), "",
		"/spec/containers/*/imagePullPolicy",
		"/spec/initContainers/*/imagePullPolicy",
		"/spec/ephemeralContainers/*/imagePullPolicy",
		"/spec/volumes/*/image/pullPolicy",
	)
}

// create returns a review of a new Pod with that JSON as its spec.
func create(spec string) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",` +
		`"resource":{"group":"","version":"v1","resource":"pods"},"name":"123","namespace":"test",` +
		`"operation":"CREATE","object":{"metadata":{"name":"123"},"spec":` + spec + `}}}`)
}

// TestOddPods has what no API server sends: it is read as missing.
func TestOddPods(t *testing.T) {
	chain, err := handlertest.NewChain(Plugin(), "")
	if err != nil {
		t.Fatal(err)
	}
	f := func(phase handlers.Phase, spec, want string) {
		t.Helper()
		if got := string(handlertest.Answer(t, chain, phase, create(spec))); got != want {
			t.Errorf("%s %s\ngot  %s\nwant %s", phase, spec, got, want)
		}
	}
	for _, spec := range []string{
		`null`, `[]`, `"spec"`, `{}`, `{"containers":null,"volumes":null}`, `{"containers":{},"volumes":"image"}`,
		`{"volumes":[null,{},{"image":null},{"image":"Always"}]}`,
	} {
		f(handlers.Mutate, spec, `{"allowed":true}`)
		f(handlers.Validate, spec, `{"allowed":true}`)
	}

	const patch = `{"allowed":true,"patch":[{"op":"%s","path":"/spec/containers/%d/imagePullPolicy","value":"Always"}],` +
		`"patchType":"JSONPatch"}`
	f(handlers.Mutate, `{"containers":[null,1,"image",[],{"image":"a"}]}`, fmt.Sprintf(patch, "add", 4))
	f(handlers.Mutate, `{"containers":[{"imagePullPolicy":null}]}`, fmt.Sprintf(patch, "replace", 0))
	f(handlers.Mutate, `{"containers":[{"imagePullPolicy":1}]}`, fmt.Sprintf(patch, "replace", 0))
}

// TestManyContainers would not end in time if the cost were quadratic, as that
// of the in-tree plugin's aggregate is.
func TestManyContainers(t *testing.T) {
	chain, err := handlertest.NewChain(Plugin(), "")
	if err != nil {
		t.Fatal(err)
	}
	const n = 50_000
	body := create(`{"containers":[` + strings.Repeat(`{"image":"a"},`, n) + `{"image":"a"}]}`)
	got := handlertest.Answer(t, chain, handlers.Validate, body)
	if denials := bytes.Count(got, []byte("Unsupported value")); denials != n+1 {
		t.Errorf("got %d containers denied, want %d", denials, n+1)
	}
}

// TestAggregate compares with what the in-tree plugin uses.
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

func BenchmarkMutate(b *testing.B) {
	benchmark(b, handlers.Mutate, corpus.MustRead("pods-create-v1-1.json"))
}

func BenchmarkMutateUpdate(b *testing.B) {
	benchmark(b, handlers.Mutate, corpus.MustRead("pods-update-v1-1.json"))
}

func BenchmarkValidate(b *testing.B) { benchmark(b, handlers.Validate, alwaysPulling(b)) }

// alwaysPulling returns the recorded Pod as the plugin leaves it.
func alwaysPulling(tb testing.TB) []byte {
	body := corpus.MustRead("pods-create-v1-1.json")
	mutated := bytes.ReplaceAll(body, []byte(`"IfNotPresent"`), []byte(`"Always"`))
	if bytes.Equal(mutated, body) || !json.Valid(mutated) {
		tb.Fatal("the recording has no policy to replace")
	}
	return mutated
}

func benchmark(b *testing.B, phase handlers.Phase, body []byte) {
	chain, err := handlertest.NewChain(Plugin(), "")
	if err != nil {
		b.Fatal(err)
	}
	var dst []byte
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		dst = answer(b, chain, phase, body, dst[:0])
	}
}

func answer(b *testing.B, chain *handlers.Chain, phase handlers.Phase, body, dst []byte) []byte {
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		b.Fatal(err)
	}
	if _, err := chain.Review(context.Background(), review, phase, handlers.All); err != nil {
		b.Fatal(err)
	}
	return review.AppendResponse(dst)
}
