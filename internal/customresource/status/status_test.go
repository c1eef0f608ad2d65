package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/cluster"
)

const past = "2026-01-02T03:04:05Z"

func objectOf(t *testing.T, text string) *cluster.JSON {
	t.Helper()
	object, err := cluster.NewJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// policyWith returns a policy with a status.
func policyWith(t *testing.T, status string) *cluster.JSON {
	t.Helper()
	return objectOf(t, `{"apiVersion":"policies.fastadmit.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"p",`+
		`"generation":3},"spec":{"a":[1]},"status":`+status+`}`)
}

func ready(status metav1.ConditionStatus, message string) *Status {
	return &Status{ObservedGeneration: 3, Conditions: []metav1.Condition{
		{Type: "Ready", Status: status, Reason: "Known", Message: message, ObservedGeneration: 3},
	}}
}

// TestOf reads the status of an object; an unreadable one is empty.
func TestOf(t *testing.T) {
	f := func(status, want string) {
		t.Helper()
		if got := Of(policyWith(t, status)).Says(); got != want {
			t.Errorf("%s: got %s, want %s", status, got, want)
		}
	}
	f(`{"observedGeneration":2,"conditions":[{"type":"A","status":"True","reason":"R","message":"m","observedGeneration":1}]}`,
		`2 "A" "True" "R" "m" 1`)
	f(`{"observedGeneration":2,"typeChecking":{}}`, `2 []`)
	f(`{"typeChecking":{"expressionWarnings":[{"fieldRef":"spec","warning":"w"}]}}`, `0 [{"spec" "w"}]`)
	f(`{"observedGeneration":2,"conditions":1}`, "0")
	f("null", "0")
	has := Of(policyWith(t, `{"conditions":[{"type":"A","reason":"R"},{"type":"B","reason":"S"}]}`))
	if b := has.Condition("B"); b == nil || b.Reason != "S" || has.Condition("C") != nil {
		t.Errorf("got %v and %v", b, has.Condition("C"))
	}
}

// TestMessage checks that long messages are cut.
func TestMessage(t *testing.T) {
	for n, want := range map[int]int{1: 1, messageBytesMax - 1: messageBytesMax - 1, messageBytesMax: messageBytesMax, messageBytesMax +
		1: messageBytesMax} {
		if got := Message(errors.New(strings.Repeat("x", n))); len(got) > messageBytesMax || want == n && got != strings.Repeat("x", n) {
			t.Errorf("%d bytes: got %d, want %d", n, len(got), want)
		}
	}
}

// TestDue checks that a status is due if the object does not have it yet, and only once.
func TestDue(t *testing.T) {
	says := policyWith(t, `{"observedGeneration":3,"conditions":[{"type":"Ready","status":"True","reason":"Known","message":"m",`+
		`"observedGeneration":3}]}`)
	saysNothing, unreadable := policyWith(t, "{}"), policyWith(t, `{"conditions":1}`)
	var w Writer
	f := func(what string, object *cluster.JSON, again, want bool) Change {
		t.Helper()
		change, due := w.Due(object, ready(metav1.ConditionTrue, "m"), again)
		if due != want || due != (change.object != nil) {
			t.Errorf("%s: got %v, %v, want %v", what, due, change.object, want)
		}
		return change
	}
	f("what the object says", says, false, false)
	f("what another process removed", saysNothing, false, false)
	f("what is to be said again", saysNothing, true, true)
	f("what is said again meanwhile", says, true, false)
	w = Writer{}
	f("a status that nobody can read", unreadable, false, false)
	w = Writer{}
	f("what nothing says", saysNothing, false, true)
	w.wrote(f("what was not written", saysNothing, false, true))
	f("what was written", saysNothing, false, false)
	if _, due := w.Due(saysNothing, ready(metav1.ConditionTrue, "other"), false); !due {
		t.Error("something else is not written")
	}
}

// TestWrite checks that only the status of an object changes, and not the times of unchanged
// conditions.
func TestWrite(t *testing.T) {
	statuses := []cluster.Need{cluster.ValidatingAdmissionPolicies.Watched(), cluster.ValidatingAdmissionPolicies.CalledStatus("update")}
	state, err := cluster.New(cluster.Options{Embedded: true, Kinds: cluster.KindsOf(statuses...)})
	if err == nil {
		err = state.Follow(t.Context(), statuses...)
	}
	if err != nil {
		t.Fatal(err)
	}
	objects := cluster.ValidatingAdmissionPolicies.In(state.View(statuses...))
	before := policyWith(t, `{"conditions":[{"type":"Other","status":"True","lastTransitionTime":"2025-01-01T00:00:00Z"},`+
		`{"type":"Ready","status":"True","reason":"Old","lastTransitionTime":"`+past+
		`"},{"type":"Last","status":"True","lastTransitionTime":"2025-01-01T00:00:00Z"}]}`)
	text, err := before.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if put, err := state.NewPutter().Put(text); !put || err != nil {
		t.Fatal(put, err)
	}
	f := func(now *Status, kept bool) {
		t.Helper()
		stored, ok := objects.Cached("", "p")
		if !ok {
			t.Fatal("the policy is not there")
		}
		began := time.Now().Truncate(time.Second)
		change, due := new(Writer).Due(stored, now, false)
		if !due {
			t.Fatal("nothing is due")
		}
		if err := change.Write(t.Context(), objects); err != nil {
			t.Fatal(err)
		}
		stored, _ = objects.Cached("", "p")
		got := Of(stored)
		if got.Says() != now.Says() {
			t.Errorf("got %s, want %s", got.Says(), now.Says())
		}
		at := got.Conditions[0].LastTransitionTime
		if kept != (at.UTC().Format(time.RFC3339) == past) || !kept && at.Time.Before(began) {
			t.Errorf("got a change at %v, want that of before: %v", at, kept)
		}
		text, err := stored.MarshalJSON()
		var o struct {
			Spec struct{ A []int }
		}
		if err != nil || json.Unmarshal(text, &o) != nil || fmt.Sprint(o.Spec.A) != "[1]" || stored.GetName() != "p" {
			t.Errorf("got %s", text)
		}
	}
	f(ready(metav1.ConditionTrue, "another message"), true)
	withTypes := ready(metav1.ConditionTrue, "another message")
	withTypes.TypeChecking = new(admissionregistrationv1.TypeChecking)
	f(withTypes, true)
	f(ready(metav1.ConditionFalse, "another message"), false)

	gone := objectOf(t, strings.Replace(string(text), `"name":"p"`, `"name":"gone"`, 1))
	change, _ := new(Writer).Due(gone, ready(metav1.ConditionTrue, "m"), false)
	if err := change.Write(t.Context(), objects); err == nil {
		t.Error("got no error for an object that is gone")
	}
}
