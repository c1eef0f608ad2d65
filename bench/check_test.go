package bench

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const label = `[{"op":"add","path":"/metadata/labels/x","value":"y"}]`

// caught checks that a run finds the fault in a webhook's answer.
func caught(t *testing.T, timeout time.Duration, name string, fault Fault, contains string, answer func(http.ResponseWriter, *review)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		result := run(t, Config{
			Target: newWebhook(t, answer), Load: Load{Count: 3}, Mix: pod(t, "v1"), Expect: Allowed, Timeout: timeout, PatchSample: 1,
		})
		if result.Requests != 3 || result.Failed != 3 || len(result.Faults) != 1 {
			t.Fatalf("got %d requests, %d failed: %+v", result.Requests, result.Failed, result.Faults)
		}
		got := result.Faults[0]
		if got.Fault != fault || got.Count != 3 || !strings.Contains(got.Example, contains) || !strings.Contains(got.Example, "pods-create-v1-1") {
			t.Errorf("got %+v, want %s with %q", got, fault, contains)
		}
	})
}

// Each kind of wrong answer is reported as its fault.
func TestWrongAnswersAreCaught(t *testing.T) {
	body := func(f func(r *review) string) func(http.ResponseWriter, *review) {
		return func(w http.ResponseWriter, r *review) { io.WriteString(w, f(r)) }
	}
	whole := func(text string) func(http.ResponseWriter, *review) {
		return body(func(*review) string { return text })
	}
	fields := func(text string) func(http.ResponseWriter, *review) {
		return body(func(r *review) string { return response(r, text) })
	}
	status := func(code int, header ...string) func(http.ResponseWriter, *review) {
		return func(w http.ResponseWriter, r *review) {
			if len(header) > 0 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(code)
			allow(w, r)
		}
	}
	f := func(name string, fault Fault, contains string, answer func(http.ResponseWriter, *review)) {
		t.Helper()
		caught(t, 10*time.Second, name, fault, contains, answer)
	}
	f("status", FaultStatus, "got 500", status(http.StatusInternalServerError))
	f("no Retry-After that counts", FaultStatus, "got 429", status(http.StatusTooManyRequests, "Retry-After", "Sat, 21 Nov 2026 09:00:00 GMT"))
	caught(t, 900*time.Millisecond, "Retry-After too late", FaultTimeout, "Retry-After: 1", status(http.StatusTooManyRequests, "Retry-After", "1"))
	f("empty", FaultMalformed, "", whole(""))
	f("not JSON", FaultMalformed, "oops", whole("oops"))
	f("no response", FaultMalformed, "want an object with a response", whole(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`))
	f("a response that is no object", FaultMalformed, "response", whole(`{"response":"yes"}`))
	f("a list", FaultMalformed, "", whole(`[]`))
	f("other version", FaultVersion, "v1beta1", body(func(r *review) string {
		return strings.Replace(response(r, `"allowed":true`), "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1)
	}))
	f("no version", FaultVersion, "", body(func(r *review) string { return `{"response":{"allowed":true,"uid":"` + r.Request.UID + `"}}` }))
	f("other kind", FaultVersion, "Pod", body(func(r *review) string {
		return strings.Replace(response(r, `"allowed":true`), "AdmissionReview", "Pod", 1)
	}))
	f("other uid", FaultUID, `got "other"`, body(func(r *review) string {
		return strings.Replace(response(r, `"allowed":true`), r.Request.UID, "other", 1)
	}))
	f("no decision", FaultDecision, "got allowed=false", fields(`"x":1`))
	f("denied", FaultDecision, "because I can", fields(`"allowed":false,"status":{"message":"because I can"}`))
	f("patch without type", FaultPatchType, "JSONPatch", fields(`"allowed":true,"patch":"W10="`))
	f("type without patch", FaultPatchType, "without a patch", fields(`"allowed":true,"patchType":"JSONPatch"`))
	f("other type", FaultPatchType, "MergePatch", fields(`"allowed":true,"patchType":"MergePatch","patch":"W10="`))
	f("not base64", FaultPatch, "base64", fields(`"allowed":true,"patchType":"JSONPatch","patch":"W10"`))
	f("not a list", FaultPatch, "list of operations", fields(patched(`{}`)))
	f("cannot be applied", FaultPatch, "cannot apply", fields(patched(`[{"op":"remove","path":"/spec/nothing"}]`)))
	f("test fails", FaultPatch, "cannot apply", fields(patched(`[{"op":"test","path":"/kind","value":"Node"}]`)))
	caught(t, 200*time.Millisecond, "too late", FaultTimeout, "", func(w http.ResponseWriter, r *review) {
		time.Sleep(300 * time.Millisecond)
		allow(w, r)
	})
	f("closes", FaultBroken, "", func(http.ResponseWriter, *review) { panic(http.ErrAbortHandler) })
	f("cut", FaultBroken, "", func(w http.ResponseWriter, r *review) {
		w.Header().Set("Content-Length", "1000")
		allow(w, r)
	})
}

// Answers that kube-apiserver accepts are not faults.
func TestRightAnswersAreTaken(t *testing.T) {
	f := func(name, version string, answer func(w http.ResponseWriter, r *review)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := run(t, Config{Target: newWebhook(t, answer), Load: Load{Count: 3}, Mix: pod(t, version), Expect: Allowed, PatchSample: 1})
			if result.Requests != 3 || result.Failed != 0 {
				t.Errorf("got %d of %d failed: %+v", result.Failed, result.Requests, result.Faults)
			}
		})
	}
	write := func(text func(r *review) string) func(http.ResponseWriter, *review) {
		return func(w http.ResponseWriter, r *review) { io.WriteString(w, text(r)) }
	}
	f("allowed", "v1", allow)
	f("patched", "v1", write(func(r *review) string { return response(r, patched(label)) }))
	f("patch without operations", "v1", write(func(r *review) string { return response(r, patched(`[]`)) }))
	f("null type", "v1", write(func(r *review) string { return response(r, `"allowed":true,"patchType":null`) }))
	f("chunked", "v1", func(w http.ResponseWriter, r *review) {
		w.(http.Flusher).Flush()
		allow(w, r)
	})
	f("long", "v1", write(func(r *review) string {
		return response(r, `"allowed":true,"warnings":["`+strings.Repeat("x", 100_000)+`"]`)
	}))
	f("other success", "v1", func(w http.ResponseWriter, r *review) {
		w.WriteHeader(http.StatusAccepted)
		allow(w, r)
	})
	f("v1beta1", "v1beta1", allow)
	f("v1beta1 without version and uid", "v1beta1", write(func(*review) string { return `{"response":{"allowed":true}}` }))
	f("v1beta1 without type", "v1beta1", write(func(r *review) string {
		return response(r, strings.Replace(patched(label), "JSONPatch", "MergePatch", 1))
	}))
}

func TestExpectations(t *testing.T) {
	deny := func(w http.ResponseWriter, r *review) { io.WriteString(w, response(r, `"allowed":false`)) }
	var calls int
	changing := func(w http.ResponseWriter, r *review) {
		if calls++; calls > 2 {
			deny(w, r)
			return
		}
		allow(w, r)
	}
	f := func(name string, expect Expect, answer func(http.ResponseWriter, *review), own Expect, failed int64) {
		t.Helper()
		calls = 0
		m := pod(t, "v1")
		m.recordings[0].Expect = own
		result := run(t, Config{Target: newWebhook(t, answer), Load: Load{Count: 5}, Mix: m, Expect: expect})
		if result.Failed != failed {
			t.Errorf("%s: got %d failed, want %d: %+v", name, result.Failed, failed, result.Faults)
		}
	}
	f("all are denied, as expected", Denied, deny, "", 0)
	f("all are allowed, but not to be", Denied, allow, "", 5)
	f("the same each time", Same, deny, "", 0)
	f("not the same each time", Same, changing, "", 3)
	f("nothing is expected", Any, changing, "", 0)
	f("the recording knows better", Allowed, deny, Denied, 0)
	f("the recording is not answered so", Any, deny, Allowed, 5)
}

// A patch in the answer to a request without an object cannot be applied, even if failures of the
// webhook are ignored.
func TestPatchWithoutObject(t *testing.T) {
	recordings, err := Bundled("v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recordings {
		if r.Kind != "pods:delete" {
			continue
		}
		result := run(t, Config{
			Target: newWebhook(t, func(w http.ResponseWriter, r *review) { io.WriteString(w, response(r, patched(label))) }),
			Load:   Load{Count: 1}, Mix: mix(t, r),
		})
		if len(result.Faults) != 1 || result.Faults[0].Fault != FaultPatch {
			t.Errorf("%s: got %+v", r.Name, result.Faults)
		}
	}
}

// Only a sample of the patches is applied, and the first one of each recording.
func TestPatchSample(t *testing.T) {
	bad := patched(`[{"op":"remove","path":"/nothing"}]`)
	result := run(t, Config{
		Target: newWebhook(t, func(w http.ResponseWriter, r *review) { io.WriteString(w, response(r, bad)) }),
		Load:   Load{Count: 41}, Mix: pod(t, "v1"), PatchSample: 10,
	})
	if result.Failed != 1+4 {
		t.Errorf("got %d patches applied, want the first and one in ten of the 40 others", result.Failed)
	}
}
