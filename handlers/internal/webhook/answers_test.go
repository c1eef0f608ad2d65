package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// aPatch is a JSON Patch that adds a label, in base64.
const aPatch = `"W3sib3AiOiJhZGQiLCJwYXRoIjoiL21ldGFkYXRhL2xhYmVscyIsInZhbHVlIjp7ImEiOiJiIn19XQ=="`

// patchOfA is the decoded aPatch.
const patchOfA = `[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`

// TestAnswers has the answers of upstream's tests (k8s.io/apiserver
// pkg/admission/plugin/webhook/request TestVerifyAdmissionResponse).
func TestAnswers(t *testing.T) {
	var reply string
	b := newReplies(t, func(string) string { return reply })
	review := func(version, response string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/` + version + `","response":` + response + `}`
	}
	wantPlugin := map[admission.Phase]string{admission.Mutate: "MutatingAdmissionWebhook", admission.Validate: "ValidatingAdmissionWebhook"}
	f := func(phase admission.Phase, version, answer, want, wantPatch string) {
		t.Helper()
		reply = answer
		other := map[string]string{"v1": "v1beta1", "v1beta1": "v1"}[version]
		versions := fmt.Sprintf(`["v3",%q,%q]`, version, other)
		r := ask(t, b.chain(phase, upstreamConfig, hook{name: "a.example.com", path: "/", versions: versions}), phase, pod)
		if want != "" && want != "warned" {
			want = wantPlugin[phase] + `: Internal error occurred: failed calling webhook "a.example.com": ` + want
		}
		if warned := strings.Join(r.warnings, " "); want == "warned" && warned == want {
			want = ""
		}
		if r.message != want || r.patch != wantPatch || want != "" && r.code != http.StatusInternalServerError {
			t.Errorf("%v %s %s: got %d %s, patch %s, warnings %q\nwant %s, patch %s", phase, version, answer, r.code, r.message, r.patch,
				r.warnings, want, wantPatch)
		}
	}
	const invalid = "received invalid webhook response: "
	both := func(version, answer, want string) {
		t.Helper()
		f(admission.Mutate, version, answer, want, "")
		f(admission.Validate, version, answer, want, "")
	}
	both("v1", review("v1", `{"uid":"UID","allowed":true}`), "")
	both("v1", review("v1", `{"uid":"UID","allowed":true,"warnings":["warned"]}`), "warned")
	both("v1", review("v1", `null`), invalid+"webhook response was absent")
	both("v1", review("v1", `{"uid":"UID","allowed":true,"patch":""}`), "")
	both("v1", `{"response":{"uid":"UID","allowed":true}}`, invalid+
		"expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=")
	f(admission.Mutate, "v1", review("v1", `{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":`+aPatch+`}`), "", patchOfA)
	f(admission.Mutate, "v1", review("v1", `{"uid":"UID","allowed":true,"patch":`+aPatch+`}`),
		invalid+"webhook returned response.patch but not response.patchType", "")
	f(admission.Mutate, "v1", review("v1", `{"uid":"UID","allowed":true,"patchType":"JSONPatch"}`),
		invalid+"webhook returned response.patchType but not response.patch", "")
	f(admission.Mutate, "v1", review("v1", `{"uid":"UID","allowed":true,"patchType":"","patch":`+aPatch+`}`),
		invalid+`webhook returned invalid response.patchType of ""`, "")
	f(admission.Mutate, "v1", review("v1", `{"uid":"UID","allowed":true,"patchType":"Other","patch":`+aPatch+`}`),
		`unsupported patch type "Other"`, "")
	f(admission.Validate, "v1", review("v1", `{"uid":"UID","allowed":true,"patch":`+aPatch+`}`), invalid+
		"validating webhook may not return response.patch", "")
	const one = `"IA=="` // a space
	f(admission.Validate, "v1", review("v1", `{"uid":"UID","allowed":true,"patch":`+one+`}`), invalid+
		"validating webhook may not return response.patch", "")
	f(admission.Mutate, "v1", review("v1", `{"uid":"UID","allowed":true,"patch":`+one+`}`),
		invalid+"webhook returned response.patch but not response.patchType", "")
	f(admission.Mutate, "v1", review("v1", `{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":`+one+`}`),
		"received undecodable patch in webhook response: unexpected end of JSON input", "")
	f(admission.Validate, "v1", review("v1", `{"uid":"UID","allowed":true,"patchType":"JSONPatch"}`),
		invalid+"validating webhook may not return response.patchType", "")

	both("v1beta1", review("v1beta1", `{"allowed":true}`), "") // a uid is not wanted
	both("v1beta1", review("v1beta1", `{"uid":"other","allowed":true,"warnings":["warned"]}`), "warned")
	both("v1beta1", review("v1beta1", `null`), invalid+"webhook response was absent")
	both("v1beta1", `{"response":{"allowed":true}}`, "")
	f(admission.Mutate, "v1beta1", review("v1beta1", `{"allowed":true,"patch":`+aPatch+`}`), "", patchOfA)
	f(admission.Validate, "v1beta1", review("v1beta1", `{"allowed":true,"patchType":"JSONPatch","patch":`+aPatch+`}`), "", "")
}

// TestDenials has the denials of upstream's tests (k8s.io/apiserver
// pkg/admission/plugin/webhook/errors TestToStatusErr).
func TestDenials(t *testing.T) {
	var response string
	b := newReplies(t, func(path string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/` + path[1:] + `","response":{"uid":"UID",` + response + `}}`
	})
	f := func(status, want string, code int32) {
		t.Helper()
		response = `"allowed":false,"warnings":["w"]`
		if status != "" {
			response += `,"status":` + status
		}
		for _, version := range []string{"v1", "v1beta1"} {
			r := ask(t, b.chain(admission.Validate, upstreamConfig,
				hook{name: "a.example.com", path: "/" + version, versions: fmt.Sprintf("[%q]", version)}), admission.Validate, pod)
			if r.message != `ValidatingAdmissionWebhook: admission webhook "a.example.com" denied the request`+want || r.code != code ||
				!strings.Contains(r.answer, `"status":"Failure"`) ||
				strings.Join(r.warnings, " ") != "w" {
				t.Errorf("%s %s: got %s\nwant %d %s", version, status, r.answer, code, want)
			}
		}
	}
	f("", " without explanation", 400)
	f("{}", " without explanation", 400)
	f(`{"message":"no","reason":"Gone"}`, ": no", 400)
	f(`{"reason":"Gone"}`, ": Gone", 400)
	f(`{"status":"Success","code":200,"message":"no"}`, ": no", 400)
	f(`{"status":"Failure","code":399,"message":"no"}`, ": no", 400)
	f(`{"code":400,"message":"no"}`, ": no", 400)
	f(`{"code":401,"message":"no"}`, ": no", 401)
	f(`{"code":599,"message":"no"}`, ": no", 599)
	f(`{"code":600,"message":"no"}`, ": no", 500)
}

// TestNoted checks that valid warnings and audit annotations of a webhook are copied.
func TestNoted(t *testing.T) {
	b := newReplies(t, func(string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"UID","allowed":true,` +
			`"warnings":["one","t\u0001wo","three"],"auditAnnotations":{"a":"1","b/c":"2","-d":"3","e":"4"}}}`
	})
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		r := ask(t, b.chain(phase, upstreamConfig, hook{name: "a.example.com", path: "/"}), phase, pod)
		if got := strings.Join(r.warnings, " "); got != "one three" || strings.Count(r.answer, `"a.example.com.`) != 2 ||
			!strings.Contains(r.answer, `"a.example.com.a":"1"`) || !strings.Contains(r.answer, `"a.example.com.e":"4"`) {
			t.Errorf("%v: got %s", phase, r.answer)
		}
	}
}

// TestAuditPatches checks the audit annotations about changes by webhooks, and their patches
// if the configuration enables these.
func TestAuditPatches(t *testing.T) {
	b := newReplies(t, func(path string) string {
		patch := aPatch
		if path == "/none" {
			patch = `"W10="`
		}
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"UID","allowed":true,` +
			`"patchType":"JSONPatch","patch":` + patch + `}}`
	})
	hooks := []hook{{name: "a.example.com", path: "/none"}, {name: "b.example.com", path: "/"}}
	for config, patched := range map[string]bool{
		upstreamConfig: false,
		`{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration"}`:                     false,
		`{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration","auditPatches":true}`: true,
	} {
		r := ask(t, b.chain(admission.Mutate, config, hooks...), admission.Mutate, pod)
		for _, want := range []string{
			`"mutation.round_0_index_0":"{\"configuration\":\"c\",\"webhook\":\"a.example.com\",\"mutated\":false}"`,
			`"mutation.round_0_index_1":"{\"configuration\":\"c\",\"webhook\":\"b.example.com\",\"mutated\":true}"`,
		} {
			if !strings.Contains(r.answer, want) {
				t.Errorf("%s: got %s\nwant %s", config, r.answer, want)
			}
		}
		const patch = `"patch.round_0_index_1":"{\"configuration\":\"c\",\"webhook\":\"b.example.com\",` +
			`\"patch\":[{\"op\":\"add\",\"path\":\"/metadata/labels\",\"value\":{\"a\":\"b\"}}],\"patchType\":\"JSONPatch\"}"`
		if strings.Contains(r.answer, patch) != patched || strings.Contains(r.answer, "patch.round_0_index_0") {
			t.Errorf("%s: got %s\nwant the patch: %v", config, r.answer, patched)
		}
	}
}

// TestRequestFields has reviews without some fields, which are sent as older API servers do.
func TestRequestFields(t *testing.T) {
	var got string
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, body := readAsked(t, r)
		_, got, _ = strings.Cut(string(body), a.Request.UID+`",`)
		if want := fmt.Sprint(len(body)); r.Header.Get("Content-Length") != want {
			t.Errorf("got content length %s, want %s", r.Header.Get("Content-Length"), want)
		}
		if r.Header.Get("User-Agent") != "fastadmit-admission" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("got headers %v", r.Header)
		}
		answer(w, a.Request.UID, `"allowed":true`)
	})
	chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"})
	f := func(request, want string) {
		t.Helper()
		body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1",` + request + `}}`
		if r := ask(t, chain, admission.Validate, []byte(body)); r.message != "" || got != want+"}}" {
			t.Errorf("got  %s%s\nwant %s", got, r.message, want)
		}
	}
	const kind, resource = `{"group":"g","version":"v1","kind":"K"}`, `{"group":"g","version":"v1","resource":"ks"}`
	f(`"operation":"CREATE","kind":`+kind+`,"resource":`+resource+`,"object":{"a":1}`,
		`"kind":`+kind+`,"resource":`+resource+`,"requestKind":`+kind+`,"requestResource":`+resource+
			`,"operation":"CREATE","userInfo":{},"object":{"a":1},"oldObject":null,"dryRun":false,"options":null`)
	f(`"operation":"CREATE","kind":`+kind+`,"resource":`+resource+
		`,"subResource":"s","name":"n","object":{"a":1},"dryRun":true,"options":{"o":1},"userInfo":{"username":"u"}`,
		`"kind":`+kind+`,"resource":`+resource+`,"subResource":"s","requestKind":`+kind+`,"requestResource":`+resource+
			`,"requestSubResource":"s","name":"n","operation":"CREATE","userInfo":{"username":"u"},"object":{"a":1},"oldObject":null,`+
			`"dryRun":true,"options":{"o":1}`)
	f(`"operation":"DELETE","kind":`+kind+`,"resource":`+resource+`,"subResource":"","name":"","oldObject":{"a":1}`,
		`"kind":`+kind+`,"resource":`+resource+`,"requestKind":`+kind+`,"requestResource":`+resource+
			`,"operation":"DELETE","userInfo":{},"object":null,"oldObject":{"a":1},"dryRun":false,"options":null`)
}

// TestPropagation tests that the calls of a sampled review belong to its trace.
func TestPropagation(t *testing.T) {
	var got string
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		got = r.Header.Get("Traceparent")
		answer(w, a.Request.UID, `"allowed":true`)
	})
	chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"})
	f := func(flags trace.TraceFlags, want string) {
		t.Helper()
		ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags,
		}))
		if r := askIn(ctx, t, chain, admission.Validate, pod); r.message != "" || got != want {
			t.Errorf("%s: got %q, %s, want %q", flags, got, r.message, want)
		}
	}
	f(trace.FlagsSampled, "00-01000000000000000000000000000000-0200000000000000-01")
	f(0, "")
}

// TestExemptSince calls webhooks for reviews that are not stored until 1.36 (k8s.io/apiserver pkg/admission/plugin/
// webhook/generic/webhook.go isExcludedFromAllHooks).
func TestExemptSince(t *testing.T) {
	called := false
	b := newAllowing(t, &called)
	for version, want := range map[string]bool{"1.36": true, "1.37": false} {
		b.version = version
		chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"})
		for _, resource := range []string{"authentication.k8s.io/v1/tokenreviews", "authorization.k8s.io/v1/subjectaccessreviews"} {
			called = false
			r := ask(t, chain, admission.Validate, admissiontest.Body(codec.Create, resource, `{"metadata":{"name":"n"}}`))
			if r.message != "" || called != want {
				t.Errorf("%s in %s: got called %v, %s, want called %v", resource, version, called, r.message, want)
			}
		}
	}
}

// TestExempt has resources that configure webhooks and policies: no webhook is called for
// them.
func TestExempt(t *testing.T) {
	called := false
	b := newAllowing(t, &called)
	chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"})
	for resource, want := range map[string]bool{
		"admissionregistration.k8s.io/v1/mutatingadmissionpolicies":         false,
		"admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings":   false,
		"admissionregistration.k8s.io/v1/mutatingwebhookconfigurations":     false,
		"admissionregistration.k8s.io/v1/validatingadmissionpolicies":       false,
		"admissionregistration.k8s.io/v1/validatingadmissionpolicybindings": false,
		"admissionregistration.k8s.io/v1/validatingwebhookconfigurations":   false,
		"admissionregistration.k8s.io/v1/others":                            true,
		"webhooks.fastadmit.io/v1/validatingwebhookconfigurations":          false,
		"policies.fastadmit.io/v1/validatingadmissionpolicies":              false,
		"example.com/v1/mutatingwebhookconfigurations":                      true,
	} {
		called = false
		r := ask(t, chain, admission.Validate, admissiontest.Body(codec.Create, resource, `{"metadata":{"name":"n"}}`))
		if r.message != "" || called != want {
			t.Errorf("%s: got called %v, %s, want called %v", resource, called, r.message, want)
		}
	}
}
