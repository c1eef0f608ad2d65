package validatingadmissionpolicy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// An answered is the answer of the plugin to a request.
type answered struct {
	violations  []string // all messages, in order
	denied      string   // the message of the denial
	code        int32    // the code of the denial
	annotations map[string]string
}

// validate evaluates a policy for Pods, with these fields in its spec, under two bindings:
// one warns of all violations, the other denies.
func validate(t *testing.T, spec string) (got answered) {
	t.Helper()
	policy := documents{
		policy:   fmt.Sprintf(`{%s,%s}`, constraints, spec),
		bindings: map[string]string{"b": `"validationActions":["Warn"]`, "c": denying},
	}
	r := ask(t, policy.chain(t), `{"uid":"1","operation":"CREATE","name":"name","resource":{"group":"","version":"v1",`+
		`"resource":"pods"},"object":{"metadata":{"name":"name","labels":null}}}`)
	for _, warning := range r.Warnings {
		_, message, _ := strings.Cut(warning, "with binding 'b': ")
		got.violations = append(got.violations, message)
	}
	if !r.Allowed {
		got.denied, got.code = messageOf(r), r.Result.Code
	}
	got.annotations = r.AuditAnnotations
	return got
}

// expressionsOf returns a list of objects, each with one of the texts in the field. A text
// may have more fields after a |.
func expressionsOf(field string, texts ...string) string {
	var all []string
	for i, text := range texts {
		text, more, _ := strings.Cut(text, "|")
		quoted, _ := json.Marshal(text)
		name := fmt.Sprintf(`"name":"n%d",`, i)
		if field == "validations" {
			name = ""
		}
		all = append(all, fmt.Sprintf(`{%s"expression":%s%s}`, name, quoted, more))
	}
	return fmt.Sprintf(`%q:[%s]`, field, strings.Join(all, ","))
}

const (
	failPolicy   = `"failurePolicy":"Fail",`
	ignorePolicy = `"failurePolicy":"Ignore",`

	fails       = "object.nope == 1"
	other       = "object.none == 1"
	failsSaying = "expression 'object.nope == 1' resulted in error: no such key: nope"
)

// TestValidateUpstream has the cases of upstream's validator_test.go for validations and
// match conditions. Upstream mocks the results; here they are results of expressions.
func TestValidateUpstream(t *testing.T) {
	f := func(spec string, code int32, violations ...string) {
		t.Helper()
		got := validate(t, spec)
		denied := ""
		if len(violations) > 0 {
			denied = violations[0]
		}
		if !slices.Equal(got.violations, violations) || got.denied != denied || got.code != code {
			t.Errorf("%s\ngot  %q, denied with %d %q\nwant %q, %d", spec, got.violations, got.code, got.denied, violations, code)
		}
	}
	all := func(texts ...string) string { return expressionsOf("validations", texts...) }
	f(all("true"), 0)
	f(all("true", "true"), 0)
	for _, policy := range []string{"", failPolicy} {
		f(policy+all(fails), 422, failsSaying)
		f(policy+all("true", fails), 422, failsSaying)
		f(policy+all(fails, other), 422, failsSaying, strings.ReplaceAll(failsSaying, "nope", "none"))
	}
	f(ignorePolicy+all(fails), 0)
	f(ignorePolicy+all("true", fails), 0)
	f(ignorePolicy+all(fails, other), 0)
	// A violation is not a failure.
	f(ignorePolicy+all("false", fails), 422, "failed expression: false")

	const forbidden, tooLarge = `,"reason":"Forbidden"`, `,"reason":"RequestEntityTooLarge"`
	message := func(text string) string { return fmt.Sprintf(`,"message":%q`, text) }
	f(failPolicy+all("1 == 2"), 422, "failed expression: 1 == 2")
	f(failPolicy+all("1 == 2|"+forbidden), 403, "failed expression: 1 == 2")
	f(failPolicy+all("1 == 2|"+forbidden, "1 == 3|"+tooLarge), 403, "failed expression: 1 == 2", "failed expression: 1 == 3")
	f(failPolicy+all("1 == 2|"+tooLarge, "1 == 3|"+forbidden), 413, "failed expression: 1 == 2", "failed expression: 1 == 3")
	f(failPolicy+all("1 == 2|"+forbidden+message("test")), 403, "test")
	f(failPolicy+all("1 == 2|"+forbidden+message("test1"), "1 == 2|"+forbidden+message("test2")), 403, "test1", "test2")
	// Upstream's errors of the whole evaluation are costs: see testdata/budget.yaml and
	// testdata/budget-messages.yaml.

	conditions := func(texts ...string) string { return expressionsOf("matchConditions", texts...) + "," }
	f(conditions("false")+all("false"), 0)
	f(conditions(fails)+all("false"), 422, failsSaying)
}

// TestDifferences pins the errors of expressions that differ from in-tree. The README lists
// them.
func TestDifferences(t *testing.T) {
	f := func(expression, want string) {
		t.Helper()
		if got := validate(t, expressionsOf("validations", expression)); got.denied != want || got.code != 422 {
			t.Errorf("%s\ngot  %d %q\nwant 422 %q", expression, got.code, got.denied, want)
		}
	}
	// In-tree, the Go type of null is <nil>.
	f("object[object.metadata.labels] == 1",
		"expression 'object[object.metadata.labels] == 1' resulted in error: invalid qualifier type: types.Null")
}

// TestMessagesUpstream has the cases of validator_test.go for messageExpressions.
func TestMessagesUpstream(t *testing.T) {
	f := func(want string, messageExpressions ...string) {
		t.Helper()
		var all []string
		for _, text := range messageExpressions {
			if text != "" {
				quoted, _ := json.Marshal(text)
				text = `,"messageExpression":` + string(quoted)
			}
			all = append(all, `false|,"reason":"Forbidden","message":"not replaced"`+text)
		}
		got := validate(t, expressionsOf("validations", all...))
		if text := strings.Join(got.violations, "; "); text != want ||
			got.code != 403 && !strings.Contains(want, "failed messageExpression") {
			t.Errorf("%.200q\ngot  %d %.200q\nwant %.200q", messageExpressions, got.code, text, want)
		}
	}
	f("evaluated message", "'evaluated message'")
	f("not replaced; evaluated message", "", "'evaluated message'")
	f("evaluated message; not replaced", "'evaluated message'", "string(object.nope)")
	f("not replaced", "string(object.nope)")
	f("not replaced", "' '")
	f("not replaced", "'a\\nb'")
	f("evaluated message", "' evaluated message\\n'")
	f("not replaced", fmt.Sprintf("%q", strings.Repeat("x", celconfig.MaxEvaluatedMessageExpressionSizeBytes+1)))
	got := validate(t, expressionsOf("validations", `false|,"messageExpression":"'evaluated message'"`))
	if want := []string{"evaluated message"}; !slices.Equal(got.violations, want) { // without a message
		t.Errorf("got %q, want %q", got.violations, want)
	}
}

// TestAuditAnnotationsUpstream has the cases of validator_test.go for audit annotations, and
// those of matcher_test.go (package matchconditions) for conditions.
func TestAuditAnnotationsUpstream(t *testing.T) {
	f := func(spec, annotation, denied string) {
		t.Helper()
		got := validate(t, spec)
		if got.annotations["p.key"] != annotation || got.denied != denied {
			t.Errorf("%s\ngot  %q, denied %q\nwant %q, %q", spec, got.annotations, got.denied, annotation, denied)
		}
	}
	annotations := func(expressions ...string) string {
		var all []string
		for i, text := range expressions {
			quoted, _ := json.Marshal(text)
			all = append(all, fmt.Sprintf(`{"key":%q,"valueExpression":%s}`, "key"+strings.Repeat("x", len(expressions)-1-i), quoted))
		}
		return `"auditAnnotations":[` + strings.Join(all, ",") + `]`
	}
	validations := expressionsOf("validations", "true") + ","
	f(failPolicy+annotations("'string value'"), "string value", "")
	f(failPolicy+validations+annotations("'string value'"), "string value", "")
	f(failPolicy+annotations("null", "'string value'"), "string value", "")
	f(failPolicy+annotations("'string value'", "null"), "", "")
	f(failPolicy+annotations("string(object.nope)"), "", "expression 'string(object.nope)' resulted in error: no such key: nope")
	f(ignorePolicy+annotations("string(object.nope)"), "", "")
}

// TestMatchConditionsUpstream has the cases of upstream's matchconditions/matcher_test.go.
func TestMatchConditionsUpstream(t *testing.T) {
	const matches, misses = "failed expression: false", ""
	f := func(policy, want string, conditions ...string) {
		t.Helper()
		spec := policy + expressionsOf("validations", "false")
		if conditions != nil {
			spec += "," + expressionsOf("matchConditions", conditions...)
		}
		if got := validate(t, spec); got.denied != want {
			t.Errorf("%s\ngot  %q\nwant %q", spec, got.denied, want)
		}
	}
	f("", matches, "true")
	f("", matches, "true", "true")
	f("", matches)
	f("", misses, "false")
	f("", misses, "false", "false")
	f("", misses, "false", "true")
	f("", misses, "true", "false")
	f("", misses, "true", "false", "true")
	two := "[" + failsSaying + ", " + strings.ReplaceAll(failsSaying, "nope", "none") + "]"
	for _, policy := range []string{"", failPolicy} {
		f(policy, failsSaying, fails)
		f(policy, misses, "true", fails, "false")
		f(policy, misses, "false", fails)
		f(policy, failsSaying, "true", fails)
		f(policy, two, "true", fails, other)
	}
	f(ignorePolicy, misses, fails)
	f(ignorePolicy, misses, "true", fails, fails)
}
