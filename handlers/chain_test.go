package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// act is what a test plugin does to a review.
type act func(ctx context.Context, review *codec.Review) handlers.Result

func mutating(name string, do act) handlers.Plugin {
	return handlers.Plugin{
		Name: name, Rules: []handlers.Rule{handlers.Any()}, Mutates: true,
		New: func([]byte) (handlers.Handler, error) { return handlers.Handler{Admit: do}, nil },
	}
}

func validating(name string, do act) handlers.Plugin {
	return handlers.Plugin{
		Name: name, Rules: []handlers.Rule{handlers.Any()}, Validates: true,
		New: func([]byte) (handlers.Handler, error) { return handlers.Handler{Validate: do}, nil },
	}
}

func allow(context.Context, *codec.Review) handlers.Result { return handlers.Allowed() }

func label(key string) act {
	return func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.EnsureObject("metadata", "labels")
		review.Object.SetString("1", "metadata", "labels", key)
		return handlers.Allowed()
	}
}

func mustChain(t *testing.T, plugins ...handlers.Plugin) *handlers.Chain {
	t.Helper()
	chain, err := handlers.NewChain(plugins,
		func(string) bool { return true }, func(string) ([]byte, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// run reviews a recording and returns the review, which is released when the
// test ends.
func run(t *testing.T, chain *handlers.Chain, phase handlers.Phase, recording string) (*codec.Review, handlers.Outcome, error) {
	t.Helper()
	review := codec.Acquire()
	t.Cleanup(review.Release)
	if err := review.Decode(corpus.MustRead(recording)); err != nil {
		t.Fatal(err)
	}
	outcome, err := chain.Review(context.Background(), review, phase, handlers.All)
	return review, outcome, err
}

const (
	podCreate  = "pods-create-v1-1.json"
	podDelete  = "pods-delete-v1-1.json"
	podConnect = "pods-exec-connect-v1-1.json"
)

func TestChainSeesFormerChanges(t *testing.T) {
	var seen string
	chain := mustChain(t,
		mutating("First", label("a/b~c")),
		mutating("Second", func(_ context.Context, review *codec.Review) handlers.Result {
			seen = review.Object.Get("metadata", "labels", "a/b~c").String()
			return handlers.Allowed()
		}),
	)
	review, outcome, err := run(t, chain, handlers.Mutate, podCreate)
	if err != nil || outcome != handlers.OutcomePatched || !review.Response.Allowed {
		t.Fatalf("got %v, %v, want patched", outcome, err)
	}
	if seen != "1" {
		t.Errorf("the second plugin read %q, want what the first wrote", seen)
	}
	want := `[{"op":"add","path":"/metadata/labels/a~1b~0c","value":"1"}]`
	if got := string(review.Response.Patch); got != want {
		t.Errorf("got patch %s, want %s", got, want)
	}
}

func TestChainChangesThatCancelOut(t *testing.T) {
	chain := mustChain(t,
		mutating("First", label("x")),
		mutating("Second", func(_ context.Context, review *codec.Review) handlers.Result {
			review.Object.Remove("metadata", "labels", "x")
			return handlers.Allowed()
		}),
	)
	review, outcome, err := run(t, chain, handlers.Mutate, podCreate)
	if err != nil || outcome != handlers.OutcomeAllowed || len(review.Response.Patch) > 0 {
		t.Errorf("got %v, %v, patch %s, want allowed without one", outcome, err, review.Response.Patch)
	}
}

// TestChainFailures shows what becomes of plugins that deny, fail, panic or
// break their contract: none of it reaches the plugins behind them, and all of
// it closes the door with the message that is shown here.
func TestChainFailures(t *testing.T) {
	f := func(phase handlers.Phase, recording string, do act, want handlers.Outcome, code int32, message string) {
		t.Helper()
		reached := false
		plugin := validating
		if phase == handlers.Mutate {
			plugin = mutating
		}
		chain := mustChain(t, plugin("Bad", do), plugin("Next", func(context.Context, *codec.Review) handlers.Result {
			reached = true
			return handlers.Allowed()
		}))
		var observed []handlers.Outcome
		chain.Observe = func(run handlers.Run) { observed = append(observed, run.Outcome) }
		review, outcome, err := run(t, chain, phase, recording)
		if err != nil || outcome != want || reached || len(observed) != 1 || observed[0] != want {
			t.Fatalf("got %v, %v, next reached %v, observed %v, want %v alone", outcome, err, reached, observed, want)
		}
		status := review.Response.Status
		if review.Response.Allowed || status.Code != code || !strings.Contains(status.Message, message) {
			t.Errorf("got allowed %v, status %+v, want %d with %q", review.Response.Allowed, status, code, message)
		}
		if len(review.Response.Patch) > 0 {
			t.Errorf("got patch %s with a denial", review.Response.Patch)
		}
	}
	deny := func(_ context.Context, review *codec.Review) handlers.Result {
		return handlers.Denied(handlers.Forbidden(review, errors.New("no")))
	}
	fail := func(context.Context, *codec.Review) handlers.Result { return handlers.Errored(errors.New("no idea")) }
	explode := func(context.Context, *codec.Review) handlers.Result { panic("secret") }
	misuse := func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.Set(`1`, "metadata", "name", "x")
		return handlers.Allowed()
	}
	invalid := func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.Set(`{`, "metadata", "name")
		return handlers.Allowed()
	}

	f(handlers.Mutate, podCreate, deny, handlers.OutcomeDenied, 403, `pods "web-8d7c59b89-" is forbidden: no`)
	f(handlers.Validate, podCreate, deny, handlers.OutcomeDenied, 403, `is forbidden: no`)
	f(handlers.Mutate, podCreate, fail, handlers.OutcomeErrored, 500, "admission plugin Bad failed: no idea")
	f(handlers.Validate, podCreate, fail, handlers.OutcomeErrored, 500, "admission plugin Bad failed: no idea")
	f(handlers.Mutate, podCreate, explode, handlers.OutcomePanicked, 500, "admission plugin Bad failed: it panicked")
	f(handlers.Validate, podCreate, explode, handlers.OutcomePanicked, 500, "admission plugin Bad failed: it panicked")
	f(handlers.Mutate, podCreate, misuse, handlers.OutcomeErrored, 500, `cannot edit "/metadata/name"`)
	f(handlers.Mutate, podCreate, invalid, handlers.OutcomeErrored, 500, "not valid JSON")
	f(handlers.Validate, podCreate, label("x"), handlers.OutcomeErrored, 500, "changed the object while validating")
	f(handlers.Mutate, podConnect, func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.SetString("sh", "container")
		return handlers.Allowed()
	}, handlers.OutcomeErrored, 500, "changed the object of a CONNECT request")
	f(handlers.Mutate, podDelete, label("x"), handlers.OutcomeErrored, 500, "there is no document")
}

func TestPanicKeepsItsSecrets(t *testing.T) {
	chain := mustChain(t, validating("Bad", func(context.Context, *codec.Review) handlers.Result { panic("secret") }))
	var panicked *handlers.PanicError
	chain.Observe = func(run handlers.Run) { errors.As(run.Err, &panicked) }
	review, _, _ := run(t, chain, handlers.Validate, podCreate)
	if strings.Contains(string(review.AppendResponse(nil)), "secret") {
		t.Errorf("the answer tells what the panic said: %s", review.AppendResponse(nil))
	}
	if panicked == nil || panicked.Value != "secret" || !strings.Contains(string(panicked.Stack), "TestPanicKeepsItsSecrets") {
		t.Errorf("the observer got %v, want the panic and its stack", panicked)
	}
}

func TestBrokenReviewIsNobodysDecision(t *testing.T) {
	chain := mustChain(t, validating("Reads", func(_ context.Context, review *codec.Review) handlers.Result {
		review.Object.Get("spec", "hostNetwork")
		return handlers.Allowed()
	}))
	review := codec.Acquire()
	defer review.Release()
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE","object":{"spec":{"x" 1}}}}`
	if err := review.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	_, err := chain.Review(context.Background(), review, handlers.Validate, handlers.All)
	var syntax *codec.SyntaxError
	if !errors.As(err, &syntax) || !strings.Contains(err.Error(), "request.object: invalid JSON at byte 13") {
		t.Errorf("got error %v, want the place that is not JSON", err)
	}
}

func TestPluginIsNotStartedTooLate(t *testing.T) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	chain := mustChain(t, validating("Late", func(context.Context, *codec.Review) handlers.Result {
		t.Error("the plugin was started")
		return handlers.Allowed()
	}))
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(corpus.MustRead(podCreate)); err != nil {
		t.Fatal(err)
	}
	outcome, err := chain.Review(ctx, review, handlers.Validate, handlers.All)
	if outcome != handlers.OutcomeErrored || err != nil || !strings.Contains(review.Response.Status.Message, "not started") {
		t.Errorf("got %v, %v, %q, want the plugin's failure", outcome, err, review.Response.Status.Message)
	}
}

func TestOnlyOnePlugin(t *testing.T) {
	deny := func(context.Context, *codec.Review) handlers.Result { return handlers.Denied(errors.New("no")) }
	chain := mustChain(t, validating("Deny", deny), validating("Allow", allow))
	f := func(only int, want handlers.Outcome) {
		t.Helper()
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(corpus.MustRead(podCreate)); err != nil {
			t.Fatal(err)
		}
		if got, err := chain.Review(context.Background(), review, handlers.Validate, only); got != want || err != nil {
			t.Errorf("plugin %d: got %v, %v, want %v", only, got, err, want)
		}
	}
	f(chain.Place("Deny"), handlers.OutcomeDenied)
	f(chain.Place("Allow"), handlers.OutcomeAllowed)
	f(handlers.All, handlers.OutcomeDenied)
	if got := chain.Place("Nobody"); got != -1 {
		t.Errorf("got place %d for a plugin that is not there, want -1", got)
	}
}

func TestDeniedWithoutStatus(t *testing.T) {
	got := handlers.Denied(fmt.Errorf("wrapped: %w", errors.New("plain"))).Denial
	if got.Code != 500 || got.Reason != "" || got.Message != "wrapped: plain" {
		t.Errorf("got %+v, want code 500, no reason and the text", got)
	}
}

func TestNewChainJoinsErrors(t *testing.T) {
	bad := func(name, message string) handlers.Plugin {
		return handlers.Plugin{Name: name, New: func([]byte) (handlers.Handler, error) {
			return handlers.Handler{}, errors.New(message)
		}}
	}
	liar := mutating("Liar", allow)
	liar.Validates = true
	_, err := handlers.NewChain([]handlers.Plugin{bad("One", "first"), bad("Off", "never"), bad("Two", "second"), liar},
		func(name string) bool { return name != "Off" }, func(string) ([]byte, error) { return nil, nil })
	if err == nil {
		t.Fatal("got no error")
	}
	for _, want := range []string{"plugin One: first", "plugin Two: second", "plugin Liar: its handler"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "never") {
		t.Errorf("got %q, which is about a plugin that is not enabled", err)
	}
}
