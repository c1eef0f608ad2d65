package admission_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// explainedBy reviews a recording with a chain and returns the explanations, one a line.
func explainedBy(t *testing.T, chain *admission.Chain, phase admission.Phase, recording string) (lines []string) {
	t.Helper()
	var all []*admission.Explanation
	chain.Explain = func(x *admission.Explanation) { all = append(all, x) }
	_, _, _ = run(t, chain, phase, recording)
	for _, x := range all { // after the review, of which they are no views
		line := fmt.Sprintf("%s %s %d: %s: %s %s", x.Phase, x.Plugin, x.Round, x.Why, x.Outcome, x.Message)
		for _, c := range x.Changes {
			line += fmt.Sprintf(" [%s %s %s>%s]", c.Operation, c.Path, c.Old, c.New)
		}
		if x.Undone {
			line += " undone"
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// explains is a Selector that explains itself.
type explains struct{ admission.Selector }

func (explains) Explain(context.Context, *codec.Review, admission.Attributes) string {
	return "a selector decided"
}

func TestExplain(t *testing.T) {
	services := mutating("Services", allow)
	services.Rules = []admission.Rule{
		admission.CreateUpdate("services"), admission.NewRule("apps", "v1", "deployments/scale", codec.Update),
		{
			Operations: []codec.Operation{"*"}, Groups: []string{"", "apps"}, Versions: []string{"v1", "v2"},
			Resources: []string{"a", "b"}, Scope: "Cluster",
		},
		admission.Any(), admission.Any(),
	}
	services.Rules[3].Operations, services.Rules[4].Operations = []codec.Operation{codec.Delete}, nil
	twice := func(_ context.Context, review *codec.Review) admission.Result {
		review.Object.SetString(strings.Repeat("1", review.Object.Changes()+1), "metadata", "labels", "n")
		return admission.Allowed()
	}
	failing := func(ctx context.Context, review *codec.Review) admission.Result {
		label("half-done")(ctx, review)
		return admission.Errored(errors.New("no answer"))
	}
	denying := func(ctx context.Context, review *codec.Review) admission.Result {
		return admission.Denied(admission.Forbidden(review, errors.New("no")))
	}
	chain := mustSet(t,
		map[string]admission.Settings{
			"Twice":   {ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy},
			"Ignored": {FailurePolicy: admissionregistrationv1.Ignore},
			"Left":    {Selector: explains{says(false, nil)}},
		},
		services, mutating("Twice", twice), mutating("Left", allow), mutating("Ignored", failing), validating("Validates", allow),
		mutating("Labels", label("b")))
	const every = "its rule * of */* */* selects CREATE of v1 pods"
	want := []string{
		"mutate Services 1: none of its rules selects CREATE of v1 pods; they are: CREATE,UPDATE of v1 services; " +
			"UPDATE of apps/v1 deployments/scale; * of core,apps/v1,v2 a,b (Cluster); 2 more:",
		"mutate Twice 1: " + every + `: patched  [add /metadata/labels/n >"1"]`,
		"mutate Left 1: " + every + "; a selector decided:",
		"mutate Ignored 1: " + every + `: errored no answer [add /metadata/labels/half-done >"1"] undone`,
		"mutate Labels 1: " + every + `: patched  [add /metadata/labels/b >"1"]`,
		"mutate Twice 2: " + every + `: patched  [replace /metadata/labels/n "1">"111"]`,
	}
	if got := explainedBy(t, chain, admission.Mutate, podCreate); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	chain = mustSet(t, map[string]admission.Settings{"Warned": {Enforcement: []admission.Enforcement{{Action: admission.ActionWarn}}}},
		validating("Warned", denying), validating("Denied", denying), mutating("Mutates", allow), validating("After", allow))
	message := `pods "web-8d7c59b89-" is forbidden: no`
	want = []string{
		"validate Warned 1: " + every + ": warned " + message, "validate Denied 1: " + every + ": denied " + message,
		"validate After 1: the review ended before: Denied denied:",
	}
	if got := explainedBy(t, chain, admission.Validate, podCreate); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	chain = mustSet(t, nil, validating("Fails", failing), validating("After", allow))
	want = []string{
		"validate Fails 1: its rule * of */* */* selects CONNECT of v1 pods/exec: errored no answer " +
			"[add /metadata >{\"labels\":{\"half-done\":\"1\"}}] undone",
		"validate After 1: the review ended before: Fails errored:",
	}
	if got := explainedBy(t, chain, admission.Validate, podConnect); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// reviewOf decodes a review of an object.
func reviewOf(t *testing.T, resource, kind, object string) *codec.Review {
	t.Helper()
	review := codec.Acquire()
	t.Cleanup(review.Release)
	body := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE",`+
		`"kind":{"group":"","version":"v1","kind":%q},"resource":{"group":"","version":"v1","resource":%q},`+
		`"object":%s}}`, kind, resource, object)
	if err := review.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	return review
}

func TestChanges(t *testing.T) {
	f := func(resource, kind, before, after string, want ...string) {
		t.Helper()
		var got []string
		for _, c := range admission.Changes(reviewOf(t, resource, kind, before), []byte(before), []byte(after)) {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.Operation, c.Path, c.Old, c.New)))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s to %s: got %q, want %q", before, after, got, want)
		}
	}
	hidden := admission.HiddenValue
	f("pods", "Pod", `{"a":1}`, `{"a":1}`)
	f("pods", "Pod", `{"a":1,"b":{"c":"x","d":[1]}}`, `{"a":"2","b":{"c/~":null,"d":{}}}`,
		`replace /a 1 "2"`, `add /b/c~1~0  null`, `replace /b/d [1] {}`, `remove /b/c "x"`)
	f("pods", "Pod", `{"l":[1,2,3]}`, `{"l":[1,3]}`, "remove /l/1 2")
	f("pods", "Pod", `{"l":[1,3]}`, `{"l":[0,1,3,4]}`, "replace /l/0 1 0", "replace /l/1 3 1", "add /l/2  3", "add /l/3  4")
	f("pods", "Pod", `{"l":[{"a":1},2]}`, `{"l":[{"a":2},2,5]}`, "replace /l/0/a 1 2", "add /l/2  5")
	f("pods", "Pod", `null`, `{}`, "replace  null {}")
	f("secrets", "Secret", `{"data":{"p":"x"},"type":"a","metadata":{"labels":{"l":"1"}}}`,
		`{"data":{"p":"y","q":"z"},"type":"b","metadata":{}}`,
		"replace /data/p "+hidden+" "+hidden, "add /data/q  "+hidden, `replace /type "a" "b"`, `remove /metadata/labels {"l":"1"}`)
	f("secrets", "Secret", `{"data":{"p":"x"}}`, `{}`, "remove /data "+hidden)
	f("secrets", "Secret", `{}`, `{"metadata":{"annotations":{"a":"b"}}}`, "add /metadata  "+hidden)
	f("serviceaccounts", "TokenRequest", `{"status":{"token":"x"}}`, `{"status":{"token":"y"}}`, "replace /status/token "+hidden+" "+hidden)
	long := strings.Repeat("a", 1000)
	f("pods", "Pod", `{"a":"`+long+`"}`, `{}`, `remove /a "`+long[:271]+`... (truncated, 1002 bytes)`)
	deep := strings.Repeat(`{"a":`, 100) + "%s" + strings.Repeat("}", 100)
	if got := admission.Changes(reviewOf(t, "pods", "Pod", "{}"), fmt.Appendf(nil, deep, "1"), fmt.Appendf(nil, deep, "2")); len(got) != 1 {
		t.Errorf("a deep object: got %v, want one change", got)
	}
	many := "[" + strings.Repeat("1,", 5000) + "1]"
	pod := reviewOf(t, "pods", "Pod", "{}")
	got := admission.Changes(pod, []byte(`{"l":`+many+`}`), []byte(`{"l":`+strings.ReplaceAll(many, "1", "2")+`}`))
	if len(got) != admission.ExplainedMax {
		t.Errorf("got %d changes, want %d", len(got), admission.ExplainedMax)
	}
	if got := admission.Changes(reviewOf(t, "pods", "Pod", "{}"), []byte(`{`), []byte(`{}`)); got != nil {
		t.Errorf("no JSON: got %v, want none", got)
	}
}
