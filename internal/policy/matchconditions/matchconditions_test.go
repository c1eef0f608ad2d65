package matchconditions_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/alwaysdeny"
	"github.com/fastadmit/fastadmit/internal/policy/matchconditions"
)

// newAccess checks permissions in a cluster in which everybody may read, and do
// nothing else.
func newAccess(t testing.TB) *atomic.Pointer[cluster.Access] {
	t.Helper()
	state, err := cluster.New(cluster.Options{Embedded: true,
		Authorize: func(_ context.Context, review *authorizationv1.SubjectAccessReview) {
			a := review.Spec.ResourceAttributes
			review.Status.Allowed = a != nil && a.Verb == "get"
		}})
	if err != nil {
		t.Fatal(err)
	}
	need := cluster.SubjectAccessReviews.Called("create")
	if err := state.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	access := new(atomic.Pointer[cluster.Access])
	access.Store(cluster.AccessIn(state.View(need)))
	return access
}

func conditions(expressions ...string) (all []admissionregistrationv1.MatchCondition) {
	for i, expression := range expressions {
		all = append(all, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: expression})
	}
	return all
}

// TestChain has a plugin that denies all reviews. It gets only those for which
// the conditions are true.
func TestChain(t *testing.T) {
	access := newAccess(t)
	long := strings.Repeat("x", 20_000)
	body := admissiontest.UpdateBody("v1/pods", `{"metadata":{"labels":{"team":"a"},"annotations":{"long":"`+long+`"}},
		"spec":{"containers":[{"name":"c"}]}}`, `{"metadata":{}}`)
	plugin := alwaysdeny.Plugin()
	f := func(policy admissionregistrationv1.FailurePolicyType, want admission.Outcome, message string, expressions ...string) {
		t.Helper()
		compiled, errs := matchconditions.Compile(conditions(expressions...), policy, access, false, nil)
		if errs != nil {
			t.Fatal(errs)
		}
		settings := admission.Settings{Selector: compiled, FailurePolicy: policy}
		chain, err := admission.NewChain([]admission.Plugin{plugin},
			map[string]admission.Enabled{plugin.Name: {Settings: settings}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(body); err != nil {
			t.Fatal(err)
		}
		outcome, err := chain.Review(t.Context(), review, admission.Validate)
		if got := review.Response.Status.Message; outcome != want || err != nil || !strings.Contains(got, message) {
			t.Errorf("%q, %s: got %s, %v, %q, want %s, %q", expressions, policy, outcome, err, got, want, message)
		}
	}
	const fail, ignore, denied = admissionregistrationv1.Fail, admissionregistrationv1.Ignore, "AlwaysDeny"
	f(fail, admission.OutcomeDenied, denied, "true")
	f(fail, admission.OutcomeAllowed, "", "false")
	f(fail, admission.OutcomeDenied, denied, "object.metadata.labels.team == 'a'", "oldObject != null", "request.operation == 'UPDATE'")
	f(fail, admission.OutcomeAllowed, "", "object.metadata.labels.team == 'a'", "request.namespace != 'namespace'")
	f(fail, admission.OutcomeDenied, denied, "authorizer.group('').resource('pods').check('get').allowed()")
	f(fail, admission.OutcomeAllowed, "", "authorizer.group('').resource('pods').check('delete').allowed()")
	f(fail, admission.OutcomeDenied, denied, "authorizer.requestResource.check('get').allowed()")

	const missing = "object.spec.missing == 1"
	f(fail, admission.OutcomeDenied,
		`pods "name" is forbidden: expression 'object.spec.missing == 1' resulted in error: no such key: missing`, missing)
	f("", admission.OutcomeDenied, "no such key", "true", missing)
	f(ignore, admission.OutcomeAllowed, "", missing)
	f(ignore, admission.OutcomeAllowed, "", "true", missing)
	f(fail, admission.OutcomeAllowed, "", missing, "false")
	f(fail, admission.OutcomeAllowed, "", "false", missing)

	// The product of both lengths, by which contains is charged, exceeds the limit, although the call is cheap.
	const costly = "object.metadata.annotations.long.contains(object.metadata.annotations.long)"
	f(fail, admission.OutcomeDenied, "running out of cost budget", costly)
	f(ignore, admission.OutcomeAllowed, "", costly)
}

// TestErrorsAreCounted counts conditions that cannot be evaluated, whatever the failure policy, and no others.
func TestErrorsAreCounted(t *testing.T) {
	body := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{},"spec":{"text":"`+strings.Repeat("a", 8<<10)+`","long":"`+
		strings.Repeat("a", 20_000)+`","list":[`+
		strings.TrimPrefix(strings.Repeat(`,"a"`, 500), ",")+`]}}`)
	set := metrics.NewSet()
	for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore} {
		for _, expression := range []string{
			"object.spec.missing == 1", "false", "object.spec.long.contains(object.spec.long)",
			"object.spec.list.map(x, object.spec.text.replace('a', object.spec.text.substring(0, 900))).size() > 0",
		} {
			compiled, errs := matchconditions.Compile(conditions(expression), policy, new(atomic.Pointer[cluster.Access]), false, nil)
			if errs != nil {
				t.Fatal(errs)
			}
			compiled.CountErrors("P", set)
			review := codec.Acquire()
			if err := review.Decode(body); err != nil {
				t.Fatal(err)
			}
			_, _ = compiled.Matches(t.Context(), review, admission.Attributes{})
			review.Release()
		}
	}
	var text strings.Builder
	set.WritePrometheus(&text)
	const series = `fastadmit_match_condition_errors_total{plugin="P",error_type="`
	want := series + "invalid_error\"} 2\n" + series + "out_of_budget\"} 2\n" + series + "out_of_memory\"} 2\n"
	if text.String() != want {
		t.Errorf("got\n%swant\n%s", &text, want)
	}
}

func TestCompile(t *testing.T) {
	f := func(usesAuthorizer bool, want string, expressions ...string) {
		t.Helper()
		compiled, errs := matchconditions.Compile(conditions(expressions...), "", nil, false,
			field.NewPath("plugins").Index(0).Child("matchConditions"))
		got := ""
		if len(errs) > 0 {
			got = errs.ToAggregate().Error()
		}
		if compiled.UsesAuthorizer() != usesAuthorizer || !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%q: got %v, %s, want %v, %s", expressions, compiled.UsesAuthorizer(), got, usesAuthorizer, want)
		}
	}
	f(false, "", "true", "object.x == 1")
	f(true, "", "true", "authorizer.path('/x').check('get').allowed()")
	f(false, "plugins[0].matchConditions[1].expression: Invalid value: \"object.\": compilation failed: ERROR: <input>:1:8: Syntax error",
		"true", "object.")
	f(true, "Syntax error", "authorizer.path('/x').check('get').allowed()", "object.")
	f(false, "must evaluate to bool", "'a'")
	f(false, "undeclared reference to 'params'", "params.x")
	f(false, "undefined field 'x'", "variables.x")
}
