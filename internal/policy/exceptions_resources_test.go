package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const exceptionsPath = "/apis/policies.fastadmit.io/v1/policyexceptions"

// customException returns an exception of an API server.
func customException(name, fields string) string {
	return fmt.Sprintf(`{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyException","metadata":{"name":%q,"uid":%q,"generation":2,`+
		`"resourceVersion":"1"},"spec":{%s,"matchConstraints":{"resourceRules":[{%s}]},"reason":"r","neverExpires":true}}`,
		name, name, fields, ruleFields)
}

// TestExceptionResources takes over the exceptions of an API server, and writes their status. An invalid one, which was
// written while fastadmit did not run, lifts nothing.
func TestExceptionResources(t *testing.T) {
	a := &apiServer{t: t, statuses: make(map[string]string), lists: map[string]string{exceptionsPath: strings.Join([]string{
		customException("good", `"policies":["p0"],"plugins":["Other"]`),
		customException("unknown", `"policies":["p0","p"],"plugins":["None"]`),
		customException("uncompiled", `"plugins":["Bad"],"matchConditions":[{"name":"c","expression":"object."}]`),
		customException("invalid", `"plugins":["Bad"],"policies":["p0","p0"]`), customException("unreadable", `"plugins":1`),
	}, ",")}}
	source := sourceOf(a, 1)
	exceptions := source.Handler().Exceptions
	exceptions.Use([]string{"ValidatingAdmissionPolicy", "Other"})
	review := reviewOf(t, admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"n"}}`))
	if !exceptions.Name("Other") || !exceptions.Name("Bad") {
		t.Error("before they are known, each plugin may have an exception")
	}
	if got := exceptions.Lift(t.Context(), review, "Other"); got != "good" { // waits for them
		t.Errorf("got %q, want good", got)
	}
	if exceptions.Name("Bad") || exceptions.Lift(t.Context(), review, "Bad") != "" {
		t.Error("an invalid exception lifts something")
	}
	for range 2 { // the second time, nothing is written
		source.refresh(t.Context())
		source.resources.writeStatus(t.Context())
	}
	const compiled = "2; Compiled True Compiled: all expressions compile; NamesKnown "
	for name, want := range map[string]string{
		"good":    compiled + "True Evaluated: all policies and plugins that it names are evaluated",
		"unknown": compiled + `False NotEvaluated: not evaluated: plugin "None", policy "p"`,
		"uncompiled": `2; Compiled False Invalid: PolicyException "uncompiled": spec.matchConditions[0].expression: Invalid value: ` +
			`"object.": compilation failed: ERROR: <input>:1:8: Syntax error`,
		"invalid":    `2; Compiled False Invalid: PolicyException "invalid": spec.policies[1]: Duplicate value: "p0"`,
		"unreadable": `2; Compiled False Invalid: cannot be read: json: cannot unmarshal number`,
	} {
		if got := a.status(name); !strings.HasPrefix(got, want) || a.count(name) != 1 {
			t.Errorf("%s: got %s, written %d times, want %s", name, got, a.count(name), want)
		}
	}
}

// TestExceptionsUnanswered stops to write statuses if the API server does not answer.
func TestExceptionsUnanswered(t *testing.T) {
	a := &apiServer{t: t, statuses: make(map[string]string), lists: map[string]string{
		exceptionsPath: customException("a", `"plugins":["A"]`) + "," + customException("b", `"plugins":["A"]`),
	}}
	source := sourceOf(a, 1)
	source.refresh(t.Context())
	source.resources.exceptions.writeStatus(t.Context(), reports{first: true}, unansweredMax)
	if got := a.count("a") + a.count("b"); got != 0 {
		t.Errorf("got %d statuses written", got)
	}
	if _, due := source.resources.exceptions.due("none", nil, reports{first: true}, time.Now()); due {
		t.Error("the status of an exception that is gone is due")
	}
}

// TestWithoutExceptionResources has an API server without the CustomResourceDefinition: there are no exceptions, and policies are
// evaluated.
func TestWithoutExceptionResources(t *testing.T) {
	a := &apiServer{t: t, statuses: make(map[string]string)}
	source := sourceOf(a, 1)
	policies, result := source.Begin(t.Context(), new(Dispatch),
		reviewOf(t, admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{}}`)))
	if policies == nil || result.Err != nil {
		t.Fatalf("got %+v", result)
	}
	if source.Handler().Exceptions.Name("Other") {
		t.Error("there is an exception")
	}
	mutating, err := NewSource(MutatingKind, admission.Setup{Cluster: viewOf(t, staticConfig)},
		func(*admissionregistrationv1.MutatingAdmissionPolicy, bool) (string, error) { return "", nil })
	if err != nil || mutating.Handler().Exceptions != nil {
		t.Errorf("got %v, want no exceptions of the plugin for mutations", err)
	}
}
