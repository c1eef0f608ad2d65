package admission_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
)

// decodeList decodes the creation of an object with n empty objects in a list.
func decodeList(t *testing.T, n int) *codec.Review {
	t.Helper()
	list := strings.TrimSuffix(strings.Repeat("{},", n), ",")
	body := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE",`+
		`"resource":{"group":"","version":"v1","resource":"pods"},"object":{"list":[%s]}}}`, list)
	review := codec.Acquire()
	t.Cleanup(review.Release)
	if err := review.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	return review
}

// setEach sets a member of each element to a value.
func setEach(value string) act {
	return func(_ context.Context, review *codec.Review) admission.Result {
		for i := range review.Object.Get("list").Elements() {
			review.Object.Set(value, "list", codec.Index(i), "a")
		}
		return admission.Allowed()
	}
}

// TestTooManyOperations makes patches with the maximum number of operations, with one
// fewer and with one more.
func TestTooManyOperations(t *testing.T) {
	for _, n := range []int{diff.OperationsMax - 1, diff.OperationsMax, diff.OperationsMax + 1} {
		review := decodeList(t, n)
		outcome, err := mustChain(t, mutating("Sets", setEach("1"))).Review(context.Background(), review, admission.Mutate)
		if n <= diff.OperationsMax {
			if outcome != admission.OutcomePatched || err != nil || strings.Count(string(review.Response.Patch), `"op":"add"`) != n {
				t.Errorf("%d operations: got %s, %v", n, outcome, err)
			}
			continue
		}
		want := codec.Status{
			Code: http.StatusRequestEntityTooLarge, Reason: "RequestEntityTooLarge",
			Message: "the object is too large for admission: got more than 131072 operations of the JSON Patch with its " +
				"changes, the maximum; " +
				"send one with fewer or shorter lists and strings in it",
		}
		got := review.Response.Status
		if outcome != admission.OutcomeDenied || err != nil || review.Response.Allowed || len(review.Response.Patch) > 0 ||
			got.Code != want.Code || got.Reason != want.Reason || got.Message != want.Message {
			t.Errorf("%d operations: got %s, %v, %+v", n, outcome, err, got)
		}
	}
}

// TestTooLargeForTheCache has a plugin that does not know all objects of a namespace: no
// failure policy and no enforcement allows the request.
func TestTooLargeForTheCache(t *testing.T) {
	plugin := validating("Reads", func(context.Context, *codec.Review) admission.Result {
		return admission.Errored(fmt.Errorf("cannot read quotas: %w", &cluster.TooLargeError{}))
	})
	chain := mustSet(t, map[string]admission.Settings{
		"Reads": {FailurePolicy: admissionregistrationv1.Ignore, Enforcement: []admission.Enforcement{{Action: admission.ActionWarn}}},
	}, plugin)
	review := decodeList(t, 1)
	outcome, err := chain.Review(context.Background(), review, admission.Validate)
	status := review.Response.Status
	if outcome != admission.OutcomeDenied || err != nil || review.Response.Allowed || status.Code != http.StatusForbidden ||
		status.Reason != "Forbidden" || status.Message != "Reads: cannot read quotas: " {
		t.Errorf("got %s, %v, %+v", outcome, err, review.Response)
	}
}

// TestTooLargeIsDenied has a plugin that takes too much memory. The review is denied,
// whatever the failure policy and enforcement of the plugin are, and the next plugin is not called.
func TestTooLargeIsDenied(t *testing.T) {
	long := `"` + strings.Repeat("x", 1000) + `"`
	settings := map[string]admission.Settings{
		"Sets": {FailurePolicy: admissionregistrationv1.Ignore, Enforcement: []admission.Enforcement{{Action: admission.ActionWarn}}},
	}
	for name, plugin := range map[string]admission.Plugin{
		"edits": mutating("Sets", setEach(long)),
		"values": validating("Sets", func(_ context.Context, review *codec.Review) admission.Result {
			if !review.Object.Fits(codec.MemoryMax + 1) {
				return admission.Allowed()
			}
			panic("it fits")
		}),
	} {
		phase := admission.Mutate
		next := mutating("Next", func(context.Context, *codec.Review) admission.Result { panic("asked") })
		if plugin.Validates {
			phase, next = admission.Validate, validating("Next", func(context.Context, *codec.Review) admission.Result { panic("asked") })
		}
		review := decodeList(t, 100_000)
		chain := mustSet(t, settings, plugin, next)
		var seen []admission.Outcome
		chain.Observe = func(run admission.Run) { seen = append(seen, run.Outcome) }
		outcome, err := chain.Review(context.Background(), review, phase)
		const want = "Sets: the object is too large for admission: got more than 67108864 bytes of memory for what is read " +
			"and changed of the object, the maximum; "
		if outcome != admission.OutcomeDenied || err != nil || review.Response.Allowed ||
			review.Response.Status.Code != http.StatusRequestEntityTooLarge ||
			!strings.HasPrefix(review.Response.Status.Message, want) {
			t.Errorf("%s: got %s, %v, %+v", name, outcome, err, review.Response.Status)
		}
		if len(seen) != 1 || seen[0] != admission.OutcomeDenied {
			t.Errorf("%s: observed %v", name, seen)
		}
		if answer := string(review.AppendResponse(nil)); strings.Contains(answer, `"patch"`) ||
			!strings.Contains(answer, `"Sets":"denied: the object is too large`) {
			t.Errorf("%s: got %.1000s", name, answer)
		}
	}
}
