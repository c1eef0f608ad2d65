package admissiontest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// failures is a testing.TB that records failures and does not fail.
type failures struct {
	testing.TB
	messages []string
}

func (f *failures) Errorf(format string, args ...any) {
	f.messages = append(f.messages, fmt.Sprintf(format, args...))
}

// check checks that each of the texts is in one message. Fatalf ends the goroutine,
// as that of a test does.
func (f *failures) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

func (f *failures) check(t *testing.T, want ...string) {
	t.Helper()
	ok := len(f.messages) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.Contains(f.messages[i], want[i])
	}
	if !ok {
		t.Errorf("got failures %q, want %q", f.messages, want)
	}
}

func chainOf(t *testing.T, admit func(*codec.Review)) *admission.Chain {
	return MustChain(t, admission.Plugin{
		Name: "Test", Rules: []admission.Rule{admission.Any()}, Mutates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: func(_ context.Context, review *codec.Review) admission.Result {
				admit(review)
				return admission.Allowed()
			}}, nil
		},
	}, "")
}

func TestBody(t *testing.T) {
	review := codec.Acquire()
	defer review.Release()
	f := func(body []byte, want ...any) {
		t.Helper()
		if err := review.Decode(body); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(review.Operation(), review.Resource(),
			review.Object.Root().JSON(), review.OldObject.Root().JSON())
		if want := fmt.Sprint(want...); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	f(Body(codec.Create, "v1/pods", `{"a":1}`), codec.Create,
		codec.GroupVersionResource{Version: "v1", Resource: "pods"}, `{"a":1}`, ``)
	f(UpdateBody("apps/v1/deployments", `{}`, `{"b":2}`), codec.Update,
		codec.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, `{}`, `{"b":2}`)
}

func TestCheckAdmit(t *testing.T) {
	f := func(chain *admission.Chain, want ...string) {
		t.Helper()
		failed := &failures{TB: t}
		CheckAdmit(failed, chain, "v1/pods", `{"n":[]}`, `{"n":[1]}`)
		failed.check(t, want...)
	}
	f(chainOf(t, func(review *codec.Review) { review.Object.Set(`[1]`, "n") }))
	f(chainOf(t, func(review *codec.Review) { review.Object.Append(`1`, "n") }), "mutating twice is not mutating once")
	f(chainOf(t, func(*codec.Review) {}), "-\"n\":\n-- 1\n+\"n\": []\n")
	f(chainOf(t, func(review *codec.Review) { review.Object.Set(`[2]`, "n") }),
		" \"n\":\n-- 1\n+- 2\n", "mutating twice is not mutating once")
}

func TestCheckOutcome(t *testing.T) {
	chain, failed := chainOf(t, func(*codec.Review) {}), &failures{TB: t}
	CheckOutcome(failed, chain, admission.Mutate, admission.OutcomeAllowed, Body(codec.Create, "v1/pods", `{}`))
	failed.check(t)
	CheckOutcome(failed, chain, admission.Mutate, admission.OutcomePatched, Body(codec.Create, "v1/pods", `{}`))
	failed.check(t, "want patched")
}

func TestNoAllocations(t *testing.T) {
	var made *int
	chain, failed := chainOf(t, func(*codec.Review) { made = new(int) }), &failures{TB: t}
	NoAllocations(failed, chain, admission.Mutate, admission.OutcomeAllowed, Body(codec.Create, "v1/pods", `{}`))
	failed.check(t, "got 1 allocations, want 0")
	_ = made
}

func TestCheckOwned(t *testing.T) {
	f := func(keep func(review *codec.Review) any, want ...string) {
		t.Helper()
		failed := &failures{TB: t}
		CheckOwned(failed, Body(codec.Create, "v1/pods", `{"metadata":{"name":"pod"}}`), keep)
		failed.check(t, want...)
	}
	type item struct {
		name string
		next *item
		all  map[string][]any
	}
	f(func(review *codec.Review) any {
		i := &item{name: strings.Clone(review.Namespace())}
		i.next = i
		return i
	})
	f(func(review *codec.Review) any { return item{next: &item{name: review.Namespace()}} }, "the value.next.name is a view")
	f(func(review *codec.Review) any {
		return map[string]int{review.Object.Get("metadata", "name").String(): 1}
	}, "a key of the value is a view")
	f(func(review *codec.Review) any { return item{all: map[string][]any{"k": {1, review.Name()}}} }, "the value.all[k][1] is a view")
}

// TestGoldenCases runs golden cases whose plugin fails. A case passes only if it
// expects the failure.
func TestGoldenCases(t *testing.T) {
	f := func(result admission.Result, c Case, want ...string) {
		t.Helper()
		chain := MustChain(t, admission.Plugin{
			Name: "Test", Rules: []admission.Rule{admission.Any()}, Validates: true,
			New: func(admission.Setup) (admission.Handler, error) {
				return admission.Handler{Validate: func(context.Context, *codec.Review) admission.Result { return result }}, nil
			},
		}, "")
		c.Phase, c.Request = "validate", []byte(`{"operation":"CREATE","object":{}}`)
		failed := &failures{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.check(failed, chain)
		}()
		<-done
		failed.check(t, want...)
	}
	broken := admission.Errored(errors.New("broken"))
	// The response that a test gets if nobody set Allowed.
	response := []byte(`{"allowed":false,"status":{"metadata":{},"status":"Failure","code":0}}`)
	f(admission.Allowed(), Case{Response: []byte(`{"allowed":true}`)})
	f(admission.Allowed(), Case{Response: response},
		"-allowed: false\n-status:\n-  code: 0\n-  metadata: {}\n-  status: Failure\n+allowed: true\n")
	f(admission.Allowed(), Case{}, "response: got none, want one; go test -update writes it")
	f(admission.Allowed(), Case{Failure: "broken"}, "got failure <nil>, want one with")
	f(broken, Case{Response: response}, "got failure admission plugin Test failed: broken, want an answer")
	f(broken, Case{Failure: "broken"})
	f(broken, Case{Failure: "other"}, `want one with "other"`)
	f(admission.Result{Denial: &codec.Status{Message: "no"}}, Case{Response: response}, "got failure")
}
