package admission_test

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

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// TestReinvocation runs the scenarios of KEP-492 (Kubernetes enhancements,
// "admission webhooks"), with plugins in the place of webhooks. In each call, a
// plugin sets its label to the value given for that call; "" changes nothing.
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
		var made []admission.Plugin
		settings := make(map[string]admission.Settings)
		for _, p := range plugins {
			turn := 0
			made = append(made, mutating(p.name, func(_ context.Context, review *codec.Review) admission.Result {
				called = append(called, p.name)
				if turn < len(p.turns) && p.turns[turn] != "" {
					review.Object.SetString(p.turns[turn], "metadata", "labels", p.name)
				}
				turn++
				return admission.Allowed()
			}))
			settings[p.name] = admission.Settings{ReinvocationPolicy: p.policy}
		}
		if _, _, err := run(t, mustSet(t, settings, made...), admission.Mutate, podCreate); err != nil {
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

// TestReinvocationAsksAgain tests a plugin whose selector matches only before
// another plugin changed the object.
func TestReinvocationAsksAgain(t *testing.T) {
	calls := 0
	count := func(context.Context, *codec.Review) admission.Result { calls++; return admission.Allowed() }
	chain := mustSet(t, map[string]admission.Settings{"Counts": {
		ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
		Selector: selector(func(review *codec.Review) (bool, error) {
			return !review.Object.Get("metadata", "labels", "x").Exists(), nil
		}),
	}}, mutating("Counts", count), mutating("Labels", label("x")))
	if _, _, err := run(t, chain, admission.Mutate, podCreate); err != nil || calls != 1 {
		t.Errorf("got %d calls, %v, want one", calls, err)
	}
}

type selector func(*codec.Review) (bool, error)

func (s selector) Matches(_ context.Context, review *codec.Review, _ admission.Attributes) (bool, error) {
	return s(review)
}

func says(matches bool, err error) admission.Selector {
	return selector(func(*codec.Review) (bool, error) { return matches, err })
}

// TestFailurePolicyIgnore tests that the chain continues as if the failed plugin
// had not been called, whatever it changed before.
func TestFailurePolicyIgnore(t *testing.T) {
	f := func(phase admission.Phase, do act, settings admission.Settings, want admission.Outcome, annotation string) {
		t.Helper()
		settings.FailurePolicy = admissionregistrationv1.Ignore
		half := func(ctx context.Context, review *codec.Review) admission.Result {
			if phase == admission.Mutate {
				label("half-done")(ctx, review)
			}
			review.Response.Warn("half-done")
			if err := review.Response.Annotate("half-done", ""); err != nil {
				t.Error(err)
			}
			return do(ctx, review)
		}
		plugin, next, patch := validating, act(allow), ""
		if phase == admission.Mutate {
			plugin, next = mutating, label("next")
			patch = `[{"op":"add","path":"/metadata/labels/next","value":"1"}]`
		}
		chain := mustSet(t, map[string]admission.Settings{"Bad": settings}, plugin("Bad", half), plugin("Next", next))
		var observed []admission.Outcome
		chain.Observe = func(run admission.Run) { observed = append(observed, run.Outcome) }
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
	for _, phase := range [...]admission.Phase{admission.Mutate, admission.Validate} {
		f(phase, func(context.Context, *codec.Review) admission.Result { return admission.Errored(errors.New("no idea")) },
			admission.Settings{}, admission.OutcomeErrored, "no idea")
		f(phase, func(context.Context, *codec.Review) admission.Result { panic("secret") },
			admission.Settings{}, admission.OutcomePanicked, "it panicked, see the log")
		f(phase, func(_ context.Context, review *codec.Review) admission.Result {
			review.Object.Set("nonsense", "metadata", "name")
			return admission.Allowed()
		}, admission.Settings{}, admission.OutcomeErrored, "request.object: cannot edit")
		f(phase, func(ctx context.Context, _ *codec.Review) admission.Result {
			<-ctx.Done()
			return admission.Allowed()
		}, admission.Settings{Timeout: time.Millisecond}, admission.OutcomeErrored, "it took too long")
		f(phase, allow, admission.Settings{Selector: says(false, errors.New("no such namespace"))}, admission.OutcomeErrored,
			"no such namespace")
		f(phase, func(context.Context, *codec.Review) admission.Result { return admission.Denied(errors.New("no")) },
			admission.Settings{Enforcement: []admission.Enforcement{{admission.ActionWarn, says(false, errors.New("no labels"))}}},
			admission.OutcomeErrored, "no labels")
	}
	f(admission.Validate, label("x"), admission.Settings{}, admission.OutcomeErrored, "it changed the object while validating")
}

// TestFailurePolicyIgnoreIsNotForDenials tests that FailurePolicy Ignore does not
// turn a denial into an admission.
func TestFailurePolicyIgnoreIsNotForDenials(t *testing.T) {
	deny := func(context.Context, *codec.Review) admission.Result { return admission.Denied(errors.New("no")) }
	chain := mustSet(t, map[string]admission.Settings{"Denies": {FailurePolicy: admissionregistrationv1.Ignore}},
		validating("Denies", deny))
	if review, outcome, err := run(t, chain, admission.Validate, podCreate); outcome != admission.OutcomeDenied || err != nil ||
		review.Response.Allowed {
		t.Errorf("got %v, %v, want denied", outcome, err)
	}
}

// TestSelectorRefuses tests a selector that fails because the review is invalid.
// No failure policy turns this into an answer, and no enforcement into a warning.
func TestSelectorRefuses(t *testing.T) {
	missing := says(false, &admission.RefusalError{Err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")})
	f := func(about string, settings admission.Settings, do act, want string) {
		t.Helper()
		settings.FailurePolicy = admissionregistrationv1.Ignore
		chain := mustSet(t, map[string]admission.Settings{"P": settings}, mutating("P", do))
		review, outcome, err := run(t, chain, admission.Mutate, podCreate)
		if answer := string(review.AppendResponse(nil)); err != nil || outcome != admission.OutcomeDenied ||
			!strings.Contains(answer, want) {
			t.Errorf("%s: got %v, %v and %s, want it denied with %s", about, outcome, err, answer, want)
		}
	}
	f("selector", admission.Settings{Selector: missing}, allow, `"message":"P: namespaces \"shop\" not found","reason":"NotFound"`)
	f("enforcement", admission.Settings{Enforcement: []admission.Enforcement{{admission.ActionWarn, missing}}},
		func(context.Context, *codec.Review) admission.Result { return admission.Denied(errors.New("no")) }, `"message":"P: no"`)
}

// TestTimeout gives plugins less time than the call has, and more.
func TestTimeout(t *testing.T) {
	f := func(timeout, budget time.Duration, over bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), budget)
		defer cancel()
		wait := func(ctx context.Context, _ *codec.Review) admission.Result {
			if over {
				<-ctx.Done()
			}
			return admission.Allowed()
		}
		chain := mustSet(t, map[string]admission.Settings{"Waits": {Timeout: timeout}}, validating("Waits", wait),
			validating("Next", allow))
		review := decode(t, podCreate)
		_, err := chain.Review(ctx, review, admission.Validate)
		failure, failed := errors.AsType[*admission.FailureError](err)
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

// TestEnforcement tests that the first enforcement whose selector matches decides
// the effect of a denial.
func TestEnforcement(t *testing.T) {
	deny := func(ctx context.Context, review *codec.Review) admission.Result {
		label("half-done")(ctx, review)
		return admission.Denied(admission.Forbidden(review, errors.New("no")))
	}
	is := func(action admission.Action, matches bool) admission.Enforcement {
		return admission.Enforcement{Action: action, Selector: says(matches, nil)}
	}
	f := func(want admission.Outcome, answer string, enforcement ...admission.Enforcement) {
		t.Helper()
		chain := mustSet(t, map[string]admission.Settings{"Denies": {Enforcement: enforcement}}, mutating("Denies", deny),
			mutating("Next", label("next")))
		var observed []admission.Outcome
		chain.Observe = func(run admission.Run) { observed = append(observed, run.Outcome) }
		review, outcome, err := run(t, chain, admission.Mutate, podCreate)
		if err != nil || observed[0] != want || (outcome == admission.OutcomeDenied) != (want == admission.OutcomeDenied) {
			t.Fatalf("got %v, %v, observed %v, want %v", outcome, err, observed, want)
		}
		got := string(review.AppendResponse(nil))
		if !strings.HasSuffix(got, answer) || strings.Contains(string(review.Response.Patch), "half-done") {
			t.Errorf("got %s with patch %s, want %s at its end", got, review.Response.Patch, answer)
		}
	}
	const message = `pods \"web-8d7c59b89-\" is forbidden: no`
	const denied = `"auditAnnotations":{"Denies":"denied: ` + message + `","AdmissionReview":"c2cabb77-c72c-463d-aa23-d78813cacd6b"}}}`
	const warned = `"auditAnnotations":{"Denies":"warned: ` + message + `","Next":"patched"},"warnings":["Denies: ` + message + `"]}}`
	const audited = `"auditAnnotations":{"Denies":"audited: ` + message + `","Next":"patched"}}}`
	f(admission.OutcomeDenied, denied)
	f(admission.OutcomeDenied, denied, is(admission.ActionDeny, true))
	f(admission.OutcomeDenied, denied, is(admission.ActionWarn, false))
	f(admission.OutcomeDenied, denied, is(admission.ActionDeny, true), admission.Enforcement{Action: admission.ActionWarn})
	f(admission.OutcomeWarned, warned, is(admission.ActionDeny, false), admission.Enforcement{Action: admission.ActionWarn})
	f(admission.OutcomeWarned, warned, is(admission.ActionWarn, true), is(admission.ActionDeny, true))
	f(admission.OutcomeAudited, audited, is(admission.ActionAudit, true))
}

// TestSettingsNarrow shows that a plugin gets only reviews that its rules and its
// selector select.
func TestSettingsNarrow(t *testing.T) {
	f := func(want bool, resource string, settings admission.Settings) {
		t.Helper()
		called := false
		plugin := validating("P", func(context.Context, *codec.Review) admission.Result {
			called = true
			return admission.Allowed()
		})
		plugin.Rules = []admission.Rule{admission.CreateUpdate(resource)}
		if _, _, err := run(t, mustSet(t, map[string]admission.Settings{"P": settings}, plugin), admission.Validate,
			podCreate); err != nil || called != want {
			t.Errorf("got called %v, %v, want %v", called, err, want)
		}
	}
	f(true, "pods", admission.Settings{})
	f(true, "pods", admission.Settings{Selector: says(true, nil)})
	f(false, "pods", admission.Settings{Selector: says(false, nil)})
	f(false, "services", admission.Settings{})
	f(false, "services", admission.Settings{Selector: says(true, errors.New("not asked"))})
}

// TestNewChainKeepsHandlers makes a chain from an earlier one.
func TestNewChainKeepsHandlers(t *testing.T) {
	var made []string
	plugin := func(name string) admission.Plugin {
		return admission.Plugin{Name: name, Validates: true, New: func(setup admission.Setup) (admission.Handler, error) {
			made = append(made, name+string(setup.Config))
			return admission.Handler{Validate: allow}, nil
		}}
	}
	table := []admission.Plugin{plugin("A"), plugin("B"), plugin("C")}
	var last *admission.Chain
	f := func(enabled map[string]admission.Enabled, want ...string) {
		t.Helper()
		made = nil
		chain, err := admission.NewChain(table, enabled, nil, last)
		if err != nil || !slices.Equal(made, want) {
			t.Errorf("made %q, %v, want %q", made, err, want)
		}
		last = chain
	}
	config := func(text string) admission.Enabled { return admission.Enabled{Config: []byte(text)} }
	f(map[string]admission.Enabled{"A": {}, "B": config("1")}, "A", "B1")
	f(map[string]admission.Enabled{"A": {Settings: admission.Settings{Timeout: time.Second}}, "B": config("2"), "C": {}}, "B2", "C")
	f(map[string]admission.Enabled{"B": config("2")})
	f(map[string]admission.Enabled{"A": {}, "B": config("2")}, "A")
}
