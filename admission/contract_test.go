package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// breaches are breaches of the contract in one phase, with the failure that each causes.
func breaches(phase admission.Phase) map[string]act {
	result := func(r admission.Result) act {
		return func(context.Context, *codec.Review) admission.Result { return r }
	}
	status := func(code int32, message string) act {
		return result(admission.Result{Denial: &codec.Status{Code: code, Message: message}})
	}
	all := map[string]act{
		"it failed and did not say why": result(admission.Errored(nil)),
		"it both failed and denied, want one: no idea": result(
			admission.Result{Err: errors.New("no idea"), Denial: &codec.Status{Code: 403, Message: "no"}}),
		`it denied with code 0 and message "no", want a code from`:   status(0, "no"),
		`it denied with code 399 and message "no", want a code from`: status(399, "no"),
		`it denied with code 600 and message "no", want a code from`: status(600, "no"),
	}
	if phase == admission.Validate {
		all["it changed the object while validating"] = label("bad")
	}
	return all
}

// TestContractBreaches tests plugins that break their contract. The call fails or, if
// failures are ignored, the next plugins see no trace of the breach.
func TestContractBreaches(t *testing.T) {
	for _, phase := range [...]admission.Phase{admission.Mutate, admission.Validate} {
		for message, do := range breaches(phase) {
			review, outcome, _, err := runBefore(t, phase, podCreate, do)
			if _, failed := errors.AsType[*admission.FailureError](err); !failed || outcome != admission.OutcomeErrored ||
				!strings.Contains(err.Error(), message) {
				t.Errorf("%s: got %v, %v, want the failure %q", phase, outcome, err, message)
			}
			if review.Response.Allowed || review.Response.Status.Code != 0 || len(review.Response.Patch) > 0 {
				t.Errorf("%s, %s: got the answer %+v", phase, message, review.Response)
			}

			plugin, reached := validating, false
			if phase == admission.Mutate {
				plugin = mutating
			}
			chain := mustSet(t, map[string]admission.Settings{"Bad": {FailurePolicy: admissionregistrationv1.Ignore}}, plugin("Bad", do),
				plugin("Next", func(_ context.Context, review *codec.Review) admission.Result {
					if reached = true; review.Object.Get("metadata", "labels", "bad").Exists() {
						t.Errorf("%s, %s: the next plugin sees the change", phase, message)
					}
					return admission.Allowed()
				}))
			review, outcome, err = run(t, chain, phase, podCreate)
			answer := string(review.AppendResponse(nil))
			if err != nil || outcome != admission.OutcomeAllowed || !reached || !review.Response.Allowed ||
				strings.Contains(answer, `"patch"`) {
				t.Errorf("%s, %s, ignored: got %v, %v, %s", phase, message, outcome, err, answer)
			}
			if !strings.Contains(answer, `"Bad":"ignored: admission plugin Bad failed: it `) {
				t.Errorf("%s, %s, ignored: got %s, want an annotation that says so", phase, message, answer)
			}
		}
	}
}

// TestChangeOfDeletion tests a plugin that changes the object of a request that has none.
// Only a forged review leads to this.
func TestChangeOfDeletion(t *testing.T) {
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(admissiontest.Body(codec.Delete, "v1/pods", `{"metadata":{"name":"p"}}`)); err != nil {
		t.Fatal(err)
	}
	outcome, err := mustChain(t, mutating("Bad", label("bad"))).Review(t.Context(), review, admission.Mutate)
	if outcome != admission.OutcomeErrored || err == nil || !strings.Contains(err.Error(), "it changed the object of a DELETE request") {
		t.Errorf("got %v, %v, want a failure", outcome, err)
	}
}

// TestContractCodes tests the lowest and the highest code of a denial.
func TestContractCodes(t *testing.T) {
	for _, code := range []int32{400, 599} {
		review, outcome, _, err := runBefore(t, admission.Validate, podCreate, func(context.Context, *codec.Review) admission.Result {
			return admission.Result{Denial: &codec.Status{Code: code, Message: "no"}}
		})
		if err != nil || outcome != admission.OutcomeDenied || review.Response.Status.Code != code || review.Response.DeniedBy != "Bad" {
			t.Errorf("%d: got %v, %v, %+v", code, outcome, err, review.Response)
		}
	}
}

func TestDenialWithoutMessage(t *testing.T) {
	if got, _, _ := denial(t, &codec.Status{Code: 403}); got.Message != "Bad: denied without explanation" {
		t.Errorf("got message %q", got.Message)
	}
}

// denial is the part of a response that says that the request was denied.
func denial(t *testing.T, denied *codec.Status) (status codec.Status, annotation string, written int) {
	t.Helper()
	before := fmt.Sprintf("%+v", denied)
	review, outcome, _, err := runBefore(t, admission.Validate, podCreate, func(context.Context, *codec.Review) admission.Result {
		return admission.Result{Denial: denied}
	})
	if err != nil || outcome != admission.OutcomeDenied {
		t.Fatalf("got %v, %v", outcome, err)
	}
	if fmt.Sprintf("%+v", denied) != before {
		t.Error("the status of the plugin was changed")
	}
	var answer struct {
		Response struct {
			Status           json.RawMessage
			AuditAnnotations map[string]string
		}
	}
	if err := json.Unmarshal(review.AppendResponse(nil), &answer); err != nil {
		t.Fatal(err)
	}
	return review.Response.Status, answer.Response.AuditAnnotations["Bad"], len(answer.Response.Status)
}

// TestInvalidKeepsItsCauses denies with statuses that kubectl takes for those of an invalid
// object. kubectl shows only their causes, and prints "* : Bad" for a cause that has only
// the plugin's name: the message would be lost.
func TestInvalidKeepsItsCauses(t *testing.T) {
	wrong := []codec.Cause{{Type: "FieldValueInvalid", Message: "Invalid value", Field: "spec.nodeName"}}
	ours := []codec.Cause{
		{Type: admission.CauseAdmissionReview, Message: "c2cabb77-c72c-463d-aa23-d78813cacd6b"},
		{Type: admission.CauseAdmissionPlugin, Message: "Bad"},
	}
	f := func(reason string, code int32, isInvalid bool) {
		t.Helper()
		for _, causes := range [][]codec.Cause{nil, wrong} {
			want := causes
			if !isInvalid {
				want = append(slices.Clone(causes), ours...)
			}
			got, _, _ := denial(t, &codec.Status{Code: code, Reason: reason, Message: "no", Details: codec.Details{Causes: causes}})
			if !slices.Equal(got.Details.Causes, want) || got.Message != "Bad: no" {
				t.Errorf("%d %s: got %q with causes %v, want %v", code, reason, got.Message, got.Details.Causes, want)
			}
			asSent := &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReason(got.Reason), Code: got.Code}}
			if apierrors.IsInvalid(asSent) != isInvalid { // as kubectl checks it
				t.Errorf("%d %s is answered as %d %s", code, reason, got.Code, got.Reason)
			}
		}
	}
	f("Invalid", 422, true)
	f("Invalid", 400, true)
	f("", 422, true)
	f("Unheard", 422, true)
	f("Forbidden", 422, false)
	f("", 421, false)
	f("", 423, false)
	f("Forbidden", 403, false)
}

// TestDenialsAreTruncated tests messages and details around their limits, with plain
// characters and with characters that JSON writes as six bytes.
func TestDenialsAreTruncated(t *testing.T) {
	f := func(character string, n int, wantMessage, wantAnnotation bool) {
		t.Helper()
		message := strings.Repeat(character, n)
		status, annotation, _ := denial(t, &codec.Status{Code: 403, Message: message})
		if whole := status.Message == "Bad: "+message; whole != wantMessage ||
			!whole && !strings.HasSuffix(status.Message, fmt.Sprintf("(truncated, %d bytes)", len("Bad: "+message))) {
			t.Errorf("%q, %d: the message has %d bytes and ends in %q", character, n, len(status.Message),
				status.Message[len(status.Message)-40:])
		}
		if whole := annotation == "denied: "+message; whole != wantAnnotation ||
			!whole && !strings.HasSuffix(annotation, fmt.Sprintf("(truncated, %d bytes)", len("denied: "+message))) {
			t.Errorf("%q, %d: the annotation has %d bytes and ends in %q", character, n, len(annotation), annotation[len(annotation)-40:])
		}
		if got := codec.JSONLen(status.Message); got > codec.MessageBytesMax {
			t.Errorf("%q, %d: the message has %d bytes as JSON", character, n, got)
		}
	}
	bound := codec.MessageBytesMax
	f("a", bound-len("denied: "), true, true)
	f("a", bound-len("denied: ")+1, true, false)
	f("a", bound-len("Bad: "), true, false)
	f("a", bound-len("Bad: ")+1, false, false)
	f("\x00", (bound-len("denied: "))/6, true, true)
	f("\x00", (bound-len("denied: "))/6+1, false, false)
	f("é", 1<<19, false, false)

	long := strings.Repeat("a", 1<<20)
	causes := slices.Repeat([]codec.Cause{{Type: "FieldValueInvalid", Message: "Invalid value", Field: "spec.containers[0].image"}},
		20_000)
	all := codec.Status{Code: 403, Message: long, Reason: long,
		Details: codec.Details{Name: long, Group: long, Kind: long, UID: long, Causes: causes}}
	for _, status := range []codec.Status{
		all,
		{Code: 422, Message: "no", Reason: "Invalid", Details: codec.Details{Causes: causes}},
		{Code: 403, Message: "no",
			Details: codec.Details{Causes: []codec.Cause{{Type: long, Message: long, Field: long}, {Message: long}}}},
		{Code: 403, Message: "no", Details: codec.Details{Name: long}},
	} {
		got, _, written := denial(t, &status)
		if most := codec.MessageBytesMax + codec.DetailsBytesMax + 1000; written > most {
			t.Errorf("%.20s, %d causes: got %d bytes, want at most %d", status.Message, len(status.Details.Causes), written, most)
		}
		last := got.Details.Causes[len(got.Details.Causes)-1]
		if isInvalid := status.Reason == "Invalid"; (last.Message == "Bad") == isInvalid {
			t.Errorf("%.20s: the last cause is %v, want the plugin: %v", status.Message, last, !isInvalid)
		}
	}

	few := causes[:150]
	got, _, _ := denial(t, &codec.Status{Code: 422, Message: "no", Reason: "Invalid", Details: codec.Details{Name: "a", Causes: few}})
	if !slices.Equal(got.Details.Causes[:150], few) || got.Details.Name != "a" {
		t.Errorf("details of ordinary size were changed: got %d causes, name %q, %v", len(got.Details.Causes), got.Details.Name,
			got.Details.Causes[140:])
	}
}

// TestAnnotationsAreTruncatedTogether turns a hundred long denials into annotations.
func TestAnnotationsAreTruncatedTogether(t *testing.T) {
	settings := make(map[string]admission.Settings)
	var plugins []admission.Plugin
	for i := range 100 {
		name := fmt.Sprintf("P%d", i)
		settings[name] = admission.Settings{Enforcement: []admission.Enforcement{{Action: admission.ActionAudit}}}
		plugins = append(plugins, validating(name, func(context.Context, *codec.Review) admission.Result {
			return admission.Denied(errors.New(strings.Repeat(`"`, 5000)))
		}))
	}
	review, _, err := run(t, mustSet(t, settings, plugins...), admission.Validate, podCreate)
	answer := review.AppendResponse(nil)
	if most := 32<<10 + 100*(codec.TruncatedMin+10) + 1000; err != nil || len(answer) > most {
		t.Errorf("got %d bytes, %v, want at most %d", len(answer), err, most)
	}
	if n := strings.Count(string(answer), "... (truncated, 5009 bytes)"); n != 97 {
		t.Errorf("%d annotations are truncated, want 97: 3 of 10,000 bytes have room", n)
	}
}
