package handlers_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// TestReinvocation has the scenarios of KEP-492 (Kubernetes enhancements,
// "admission webhooks"), with plugins in the place of webhooks. Each plugin
// sets its label to what its turn says; "" changes nothing.
func TestReinvocation(t *testing.T) {
	const never, ifNeeded = admissionregistrationv1.NeverReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy
	type plugin struct {
		name   string
		policy admissionregistrationv1.ReinvocationPolicyType
		turns  []string
	}
	f := func(scenario, order string, plugins ...plugin) {
		t.Helper()
		var called []string
		var made []handlers.Plugin
		settings := make(map[string]handlers.Settings)
		for _, p := range plugins {
			turn := 0
			made = append(made, mutating(p.name, func(_ context.Context, review *codec.Review) handlers.Result {
				called = append(called, p.name)
				if turn < len(p.turns) && p.turns[turn] != "" {
					review.Object.SetString(p.turns[turn], "metadata", "labels", p.name)
				}
				turn++
				return handlers.Allowed()
			}))
			settings[p.name] = handlers.Settings{ReinvocationPolicy: p.policy}
		}
		if _, _, err := run(t, mustSet(t, settings, made...), handlers.Mutate, podCreate); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(called, " "); got != order {
			t.Errorf("%s: got calls %q, want %q", scenario, got, order)
		}
	}
	f("No reinvocation", "in-tree A",
		plugin{"in-tree", ifNeeded, []string{"1"}}, plugin{"A", ifNeeded, nil})
	f("In-tree reinvocation only", "in-tree A in-tree",
		plugin{"in-tree", ifNeeded, []string{"1"}}, plugin{"A", ifNeeded, []string{"1"}})
	f("Full reinvocation", "in-tree A in-tree A",
		plugin{"in-tree", ifNeeded, []string{"1", "2"}}, plugin{"A", ifNeeded, []string{"1", "2"}})
	f("Multiple webhooks, partial reinvocation", "in-tree A B in-tree A",
		plugin{"in-tree", ifNeeded, []string{"1"}}, plugin{"A", ifNeeded, []string{"1"}}, plugin{"B", ifNeeded, []string{"1"}})
	f("Multiple webhooks, full reinvocation", "in-tree A B in-tree A B",
		plugin{"in-tree", ifNeeded, []string{"1"}}, plugin{"A", ifNeeded, []string{"1", "2"}}, plugin{"B", ifNeeded, []string{"1", "2"}})

	f("Never", "in-tree A B A",
		plugin{"in-tree", never, []string{"1"}}, plugin{"A", ifNeeded, []string{"1"}}, plugin{"B", never, []string{"1"}})
	f("by default", "A B", plugin{"A", "", nil}, plugin{"B", "", []string{"1"}})
}

// TestReinvocationAsksAgain has a plugin whose selector matches only before
// another one changed the object.
func TestReinvocationAsksAgain(t *testing.T) {
	calls := 0
	count := func(context.Context, *codec.Review) handlers.Result { calls++; return handlers.Allowed() }
	chain := mustSet(t, map[string]handlers.Settings{"Counts": {
		ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
		Selector: selector(func(review *codec.Review) (bool, error) {
			return !review.Object.Get("metadata", "labels", "x").Exists(), nil
		}),
	}}, mutating("Counts", count), mutating("Labels", label("x")))
	if _, _, err := run(t, chain, handlers.Mutate, podCreate); err != nil || calls != 1 {
		t.Errorf("got %d calls, %v, want one", calls, err)
	}
}

type selector func(*codec.Review) (bool, error)

func (s selector) Matches(_ context.Context, review *codec.Review, _ handlers.Attributes) (bool, error) {
	return s(review)
}

func says(matches bool, err error) handlers.Selector {
	return selector(func(*codec.Review) (bool, error) { return matches, err })
}

// TestFailurePolicyIgnore goes on as if the plugin had not been called,
// whatever it had done by then.
func TestFailurePolicyIgnore(t *testing.T) {
	f := func(phase handlers.Phase, do act, settings handlers.Settings, want handlers.Outcome, annotation string) {
		t.Helper()
		settings.FailurePolicy = admissionregistrationv1.Ignore
		half := func(ctx context.Context, review *codec.Review) handlers.Result {
			if phase == handlers.Mutate {
				label("half-done")(ctx, review)
			}
			review.Response.Warn("half-done")
			if err := review.Response.Annotate("half-done", ""); err != nil {
				t.Error(err)
			}
			return do(ctx, review)
		}
		plugin, next, patch := validating, act(allow), ""
		if phase == handlers.Mutate {
			plugin, next = mutating, label("next")
			patch = `[{"op":"add","path":"/metadata/labels/next","value":"1"}]`
		}
		chain := mustSet(t, map[string]handlers.Settings{"Bad": settings}, plugin("Bad", half), plugin("Next", next))
		var observed []handlers.Outcome
		chain.Observe = func(run handlers.Run) { observed = append(observed, run.Outcome) }
		review, _, err := run(t, chain, phase, podCreate)
		if err != nil || !review.Response.Allowed || len(observed) != 2 || observed[0] != want {
			t.Fatalf("got %v, allowed %v, observed %v, want %v and the next one", err, review.Response.Allowed, observed, want)
		}
		answer := string(review.AppendResponse(nil))
		if string(review.Response.Patch) != patch || strings.Contains(answer, "half-done") ||
			!strings.Contains(answer, `"Bad":"ignored: admission plugin Bad failed: `+annotation) {
			t.Errorf("got patch %s and %s, want patch %s and %q in it", review.Response.Patch, answer, patch, annotation)
		}
	}
	for _, phase := range [...]handlers.Phase{handlers.Mutate, handlers.Validate} {
		f(phase, func(context.Context, *codec.Review) handlers.Result { return handlers.Errored(errors.New("no idea")) },
			handlers.Settings{}, handlers.OutcomeErrored, "no idea")
		f(phase, func(context.Context, *codec.Review) handlers.Result { panic("secret") },
			handlers.Settings{}, handlers.OutcomePanicked, "it panicked, see the log")
		f(phase, func(_ context.Context, review *codec.Review) handlers.Result {
			review.Object.Set("nonsense", "metadata", "name")
			return handlers.Allowed()
		}, handlers.Settings{}, handlers.OutcomeErrored, "request.object: cannot edit")
		f(phase, func(ctx context.Context, _ *codec.Review) handlers.Result {
			<-ctx.Done()
			return handlers.Allowed()
		}, handlers.Settings{Timeout: time.Millisecond}, handlers.OutcomeErrored, "it took too long")
		f(phase, allow, handlers.Settings{Selector: says(false, errors.New("no such namespace"))}, handlers.OutcomeErrored, "no such namespace")
		f(phase, func(context.Context, *codec.Review) handlers.Result { return handlers.Denied(errors.New("no")) },
			handlers.Settings{Enforcement: []handlers.Enforcement{{handlers.ActionWarn, says(false, errors.New("no labels"))}}},
			handlers.OutcomeErrored, "no labels")
	}
	f(handlers.Validate, label("x"), handlers.Settings{}, handlers.OutcomeErrored, "it changed the object while validating")
}

// TestFailurePolicyIgnoreIsNotForDenials keeps the door closed.
func TestFailurePolicyIgnoreIsNotForDenials(t *testing.T) {
	deny := func(context.Context, *codec.Review) handlers.Result { return handlers.Denied(errors.New("no")) }
	chain := mustSet(t, map[string]handlers.Settings{"Denies": {FailurePolicy: admissionregistrationv1.Ignore}}, validating("Denies", deny))
	if review, outcome, err := run(t, chain, handlers.Validate, podCreate); outcome != handlers.OutcomeDenied || err != nil || review.Response.Allowed {
		t.Errorf("got %v, %v, want denied", outcome, err)
	}
}

// TestSelectorRefuses has a selector that cannot match because of what the review
// says: no failure policy makes an answer of that, and no enforcement a warning.
func TestSelectorRefuses(t *testing.T) {
	missing := says(false, &handlers.RefusalError{Err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")})
	f := func(about string, settings handlers.Settings, do act, want string) {
		t.Helper()
		settings.FailurePolicy = admissionregistrationv1.Ignore
		chain := mustSet(t, map[string]handlers.Settings{"P": settings}, mutating("P", do))
		review, outcome, err := run(t, chain, handlers.Mutate, podCreate)
		if answer := string(review.AppendResponse(nil)); err != nil || outcome != handlers.OutcomeDenied || !strings.Contains(answer, want) {
			t.Errorf("%s: got %v, %v and %s, want it denied with %s", about, outcome, err, answer, want)
		}
	}
	f("selector", handlers.Settings{Selector: missing}, allow, `"message":"P: namespaces \"shop\" not found","reason":"NotFound"`)
	f("enforcement", handlers.Settings{Enforcement: []handlers.Enforcement{{handlers.ActionWarn, missing}}},
		func(context.Context, *codec.Review) handlers.Result { return handlers.Denied(errors.New("no")) }, `"message":"P: no"`)
}

// TestTimeout gives one plugin less time than the call has, and more.
func TestTimeout(t *testing.T) {
	f := func(timeout, budget time.Duration, over bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		wait := func(ctx context.Context, _ *codec.Review) handlers.Result {
			if over {
				<-ctx.Done()
			}
			return handlers.Allowed()
		}
		chain := mustSet(t, map[string]handlers.Settings{"Waits": {Timeout: timeout}}, validating("Waits", wait), validating("Next", allow))
		review := decode(t, podCreate)
		_, err := chain.Review(ctx, review, handlers.Validate)
		failure, failed := errors.AsType[*handlers.FailureError](err)
		if failed != over || failed && (failure.Plugin != "Waits" || !errors.Is(err, context.DeadlineExceeded)) {
			t.Errorf("timeout %s of %s: got %v, want it to fail: %v", timeout, budget, err, over)
		}
	}
	f(time.Millisecond, time.Hour, true)
	f(time.Hour, time.Millisecond, true)
	f(0, time.Millisecond, true)
	f(time.Hour, time.Hour, false)
	f(0, time.Hour, false)
}

// TestEnforcement makes of one denial what the first enforcement that matches
// says.
func TestEnforcement(t *testing.T) {
	deny := func(ctx context.Context, review *codec.Review) handlers.Result {
		label("half-done")(ctx, review)
		return handlers.Denied(handlers.Forbidden(review, errors.New("no")))
	}
	is := func(action handlers.Action, matches bool) handlers.Enforcement {
		return handlers.Enforcement{Action: action, Selector: says(matches, nil)}
	}
	f := func(want handlers.Outcome, answer string, enforcement ...handlers.Enforcement) {
		t.Helper()
		chain := mustSet(t, map[string]handlers.Settings{"Denies": {Enforcement: enforcement}}, mutating("Denies", deny), mutating("Next", label("next")))
		var observed []handlers.Outcome
		chain.Observe = func(run handlers.Run) { observed = append(observed, run.Outcome) }
		review, outcome, err := run(t, chain, handlers.Mutate, podCreate)
		if err != nil || observed[0] != want || (outcome == handlers.OutcomeDenied) != (want == handlers.OutcomeDenied) {
			t.Fatalf("got %v, %v, observed %v, want %v", outcome, err, observed, want)
		}
		got := string(review.AppendResponse(nil))
		if !strings.HasSuffix(got, answer) || strings.Contains(string(review.Response.Patch), "half-done") {
			t.Errorf("got %s with patch %s, want %s at its end", got, review.Response.Patch, answer)
		}
	}
	const message = `pods \"web-8d7c59b89-\" is forbidden: no`
	const denied = `"auditAnnotations":{"Denies":"denied: ` + message + `"}}}`
	const warned = `"auditAnnotations":{"Denies":"warned: ` + message + `","Next":"patched"},"warnings":["Denies: ` + message + `"]}}`
	const audited = `"auditAnnotations":{"Denies":"audited: ` + message + `","Next":"patched"}}}`
	f(handlers.OutcomeDenied, denied)
	f(handlers.OutcomeDenied, denied, is(handlers.ActionDeny, true))
	f(handlers.OutcomeDenied, denied, is(handlers.ActionWarn, false))
	f(handlers.OutcomeDenied, denied, is(handlers.ActionDeny, true), handlers.Enforcement{Action: handlers.ActionWarn})
	f(handlers.OutcomeWarned, warned, is(handlers.ActionDeny, false), handlers.Enforcement{Action: handlers.ActionWarn})
	f(handlers.OutcomeWarned, warned, is(handlers.ActionWarn, true), is(handlers.ActionDeny, true))
	f(handlers.OutcomeAudited, audited, is(handlers.ActionAudit, true))
}

// TestSettingsNarrow shows that a plugin gets what both its rules and the
// selector select.
func TestSettingsNarrow(t *testing.T) {
	f := func(want bool, resource string, settings handlers.Settings) {
		t.Helper()
		called := false
		plugin := validating("P", func(context.Context, *codec.Review) handlers.Result {
			called = true
			return handlers.Allowed()
		})
		plugin.Rules = []handlers.Rule{handlers.CreateUpdate(resource)}
		if _, _, err := run(t, mustSet(t, map[string]handlers.Settings{"P": settings}, plugin), handlers.Validate, podCreate); err != nil || called != want {
			t.Errorf("got called %v, %v, want %v", called, err, want)
		}
	}
	f(true, "pods", handlers.Settings{})
	f(true, "pods", handlers.Settings{Selector: says(true, nil)})
	f(false, "pods", handlers.Settings{Selector: says(false, nil)})
	f(false, "services", handlers.Settings{})
	f(false, "services", handlers.Settings{Selector: says(true, errors.New("not asked"))})
}

// TestNewChainKeepsHandlers makes a chain from the one before.
func TestNewChainKeepsHandlers(t *testing.T) {
	var made []string
	plugin := func(name string) handlers.Plugin {
		return handlers.Plugin{Name: name, Validates: true, New: func(setup handlers.Setup) (handlers.Handler, error) {
			made = append(made, name+string(setup.Config))
			return handlers.Handler{Validate: allow}, nil
		}}
	}
	table := []handlers.Plugin{plugin("A"), plugin("B"), plugin("C")}
	var last *handlers.Chain
	f := func(enabled map[string]handlers.Enabled, want ...string) {
		t.Helper()
		made = nil
		chain, err := handlers.NewChain(table, enabled, nil, last)
		if err != nil || !slices.Equal(made, want) {
			t.Errorf("made %q, %v, want %q", made, err, want)
		}
		last = chain
	}
	config := func(text string) handlers.Enabled { return handlers.Enabled{Config: []byte(text)} }
	f(map[string]handlers.Enabled{"A": {}, "B": config("1")}, "A", "B1")
	f(map[string]handlers.Enabled{"A": {Settings: handlers.Settings{Timeout: time.Second}}, "B": config("2"), "C": {}}, "B2", "C")
	f(map[string]handlers.Enabled{"B": config("2")})
	f(map[string]handlers.Enabled{"A": {}, "B": config("2")}, "A")
}
