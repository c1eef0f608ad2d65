package webhook_test

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/allocs"
)

// wantSeries compares the metrics of webhooks, except times.
func wantSeries(t *testing.T, set *metrics.Set, want ...string) {
	t.Helper()
	var text strings.Builder
	set.WritePrometheus(&text)
	var got []string
	for line := range strings.Lines(text.String()) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "fastadmit_webhook_") && !strings.Contains(line, "_seconds_bucket") &&
			!strings.Contains(line, "_seconds_sum") && !strings.HasSuffix(line, " 0") {
			line = strings.Replace(strings.TrimPrefix(line, "fastadmit_webhook_"), `plugin="ValidatingAdmissionWebhook",`, "", 1)
			got = append(got, strings.Replace(line, `plugin="MutatingAdmissionWebhook",`, "", 1))
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestMeasured checks the counters of the results of calls.
func TestMeasured(t *testing.T) {
	var b *backend
	var during func()
	b = newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		switch r.URL.Path {
		case "/deny":
			answer(w, a.Request.UID, `"allowed":false,"status":{"code":422}`)
		case "/fail":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/patch":
			answer(w, a.Request.UID, patched(t, `[{"op":"remove","path":"/nothing"}]`))
		default:
			if during != nil {
				during()
			}
			answer(w, a.Request.UID, `"allowed":true`)
		}
	})
	f := func(phase admission.Phase, config, path, more string, want ...string) {
		t.Helper()
		ask(t, b.chain(phase, config, hook{name: "a.example.com", path: path, more: more}), phase, pod)
		wantSeries(t, b.series, want...)
	}
	const a, took = `{webhook="a.example.com"`, `admission_duration_seconds_count{webhook="a.example.com"} 1`
	f(admission.Validate, upstreamConfig, "/", "", took, `request_total`+a+`,code="200",result="allowed"} 1`)
	f(admission.Validate, upstreamConfig, "/deny", "", took,
		`rejection_total`+a+`,operation="CREATE",error_type="no_error"} 1`, `request_total`+a+`,code="422",result="denied"} 1`)
	f(admission.Validate, upstreamConfig, "/fail", "", took,
		`rejection_total`+a+`,operation="CREATE",error_type="calling_webhook_error"} 1`, `request_total`+a+`,code="429",result="failed"} 1`)
	f(admission.Validate, upstreamConfig, "/fail", `"failurePolicy":"Ignore"`, took,
		`fail_open_total`+a+`} 1`, `request_total`+a+`,code="429",result="failed"} 1`)
	f(admission.Mutate, upstreamConfig, "/patch", `"failurePolicy":"Ignore"`, took,
		`rejection_total`+a+`,operation="CREATE",error_type="apiserver_internal_error"} 1`,
		`request_total`+a+`,code="200",result="allowed"} 1`)
	f(admission.Validate, upstreamConfig, "/", `"matchConditions":[{"name":"a","expression":"false"}]`,
		`match_condition_exclusions_total`+a+`,operation="CREATE"} 1`)
	f(admission.Validate, upstreamConfig, "/", `"objectSelector":{"matchLabels":{"no":"pod"}}`)
	f(admission.Validate, `{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration","circuit":{"failures":1,`+
		`"pause":"10m"}}`,
		"/fail", `"failurePolicy":"Ignore"`, took, `circuit_open_tenants`+a+`} 1`,
		`fail_open_total`+a+`} 1`, `request_total`+a+`,code="429",result="failed"} 1`)
	during = func() { wantSeries(t, b.series, `calls_inflight`+a+`} 1`) }
	f(admission.Validate, upstreamConfig, "/", "", took, `request_total`+a+`,code="200",result="allowed"} 1`)
}

// TestForeignOperations sends operations that Kubernetes does not have. They share a series.
func TestForeignOperations(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		answer(w, a.Request.UID, `"allowed":false,"status":{"code":422}`)
	})
	f := func(more string, want ...string) {
		t.Helper()
		chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/", more: more})
		for _, operation := range []string{"LIST", "PATCH"} {
			ask(t, chain, admission.Validate, bytes.Replace(pod, []byte(`"CREATE"`), []byte(`"`+operation+`"`), 1))
		}
		wantSeries(t, b.series, want...)
	}
	const a = `{webhook="a.example.com"`
	f("", `admission_duration_seconds_count`+a+`} 2`, `rejection_total`+a+`,operation="other",error_type="no_error"} 2`,
		`request_total`+a+`,code="422",result="denied"} 2`)
	f(`"matchConditions":[{"name":"a","expression":"false"}]`, `match_condition_exclusions_total`+a+`,operation="other"} 2`)
}

// TestTimeouts checks the timeout in the request to a webhook: its own, or the remaining time of
// the review minus the reserve.
func TestTimeouts(t *testing.T) {
	var got atomic.Value
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.URL.Query().Get("timeout"))
		a, _ := readAsked(t, r)
		answer(w, a.Request.UID, `"allowed":true`)
	})
	f := func(seconds string, left time.Duration, wanted ...string) { // later values are for a busy machine
		t.Helper()
		more := ""
		if seconds != "" {
			more = `"timeoutSeconds":` + seconds
		}
		chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/", more: more})
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(pod); err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		if left > 0 {
			var cancel func()
			ctx, cancel = context.WithTimeout(ctx, left)
			defer cancel()
		}
		if outcome, err := chain.Review(ctx, review, admission.Validate); err != nil || outcome != admission.OutcomeAllowed ||
			!slices.Contains(wanted, got.Load().(string)) {
			t.Errorf("%s with %s left: got %v, %v, timeout %s, want %s", seconds, left, outcome, err, got.Load(), wanted)
		}
	}
	f("", 0, "10s")
	f("1", 0, "1s")
	f("30", 0, "30s")
	f("3", time.Minute, "3s")
	f("30", 27400*time.Millisecond, "27s", "26s", "25s")   // reserves half a second, which is less than a tenth
	f("30", 4400*time.Millisecond, "4s", "3s", "2s", "1s") // reserves a tenth
}

// TestDeadlineOfReview has a review end during the call of a webhook whose failures are
// ignored: it is denied, because other webhooks were not called.
func TestDeadlineOfReview(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = readAsked(t, r)
		cancel()
		<-r.Context().Done()
	})
	plugin := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/", more: `"failurePolicy":"Ignore"`})
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(pod); err != nil {
		t.Fatal(err)
	}
	if outcome, err := plugin.Review(ctx, review, admission.Validate); err == nil && outcome == admission.OutcomeAllowed {
		t.Errorf("got %v, %s", outcome, review.AppendResponse(nil))
	}
}

// TestMatches checks which reviews a webhook is called for.
func TestMatches(t *testing.T) {
	called := false
	b := newAllowing(t, &called)
	f := func(h hook, want bool, message string) {
		t.Helper()
		called = false
		h.name, h.path = "a.example.com", "/"
		r := ask(t, b.chain(admission.Validate, upstreamConfig, h), admission.Validate, pod)
		if called != want || r.message != message {
			t.Errorf("%+v: got called %v, %d %s, want %v, %s", h, called, r.code, r.message, want, message)
		}
	}
	f(hook{}, true, "")
	f(hook{rules: `[]`}, false, "")
	f(hook{more: `"objectSelector":{"matchLabels":{"a":"b"}}`}, false, "")
	f(hook{more: `"objectSelector":{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}`}, true, "")
	f(hook{more: `"namespaceSelector":{"matchLabels":{"a":"b"}}`}, false, "")
	f(hook{more: `"matchConditions":[{"name":"a","expression":"true"},{"name":"b","expression":"object.metadata.name == 'name'"}]`},
		true, "")
	f(hook{more: `"matchConditions":[{"name":"a","expression":"true"},{"name":"b","expression":"false"}]`}, false, "")
	f(hook{more: `"matchConditions":[{"name":"a","expression":"object.no == 1"},{"name":"b","expression":"false"}]`}, false, "")
	const failed = `ValidatingAdmissionWebhook: pods "name" is forbidden: expression 'object.no == 1' resulted in error: no such key: no`
	f(hook{more: `"matchConditions":[{"name":"a","expression":"object.no == 1"}]`}, false, failed)
	f(hook{more: `"failurePolicy":"Ignore","matchConditions":[{"name":"a","expression":"object.no == 1"}]`}, false, "")

	chain := b.chain(admission.Validate, upstreamConfig,
		hook{name: "a.example.com", path: "/", more: `"namespaceSelector":{"matchLabels":{"a":"b"}}`})
	missing := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"name"}}`)
	missing = []byte(strings.ReplaceAll(string(missing), `"namespace":"namespace"`, `"namespace":"missing"`))
	if r := ask(t, chain, admission.Validate, missing); r.code != http.StatusNotFound ||
		r.message != `ValidatingAdmissionWebhook: namespaces "missing" not found` {
		t.Errorf("got %d %s, want the namespace not to be found", r.code, r.message)
	}
	other := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/",
		rules: `[{"operations":["*"],"apiGroups":[""],"apiVersions":["v2"],"resources":["pods"]}]`, more: `"failurePolicy":"Ignore"`})
	if r := ask(t, other, admission.Validate, pod); !strings.Contains(r.answer, `"failed-open.`) && r.message != "" {
		t.Errorf("got %s", r.answer)
	}
}

// A refuser never grants memory.
type refuser struct{}

func (refuser) GrantMemory() bool { return false }

func (refuser) GrantValues(int) bool { return false }

// TestMemory checks that no webhook is called if there is no memory for its copy of the
// review.
func TestMemory(t *testing.T) {
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Error("the webhook was called")
		_, _ = readAsked(t, r)
	})
	large := admissiontest.Body(codec.Create, "v1/pods",
		`{"metadata":{"name":"name","annotations":{"a":"`+strings.Repeat("x", 256<<10)+`"}}}`)
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		chain := b.chain(phase, upstreamConfig, hook{name: "a.example.com", path: "/", more: `"failurePolicy":"Ignore"`})
		if r := askIn(context.WithValue(t.Context(), codec.MemoryKey{}, refuser{}), t, chain, phase, large); !strings.Contains(r.message,
			codec.ErrNoMemory.Error()) {
			t.Errorf("%v: got %+v", phase, r)
		}
	}
}

// TestNoMemoryForPatches checks that no patch is applied if there is no memory to decode the
// object.
func TestNoMemoryForPatches(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		answer(w, a.Request.UID, patched(t, `[{"op":"add","path":"/spec/containers/0/image","value":"b"}]`))
	})
	chain := b.chain(admission.Mutate, upstreamConfig, hook{name: "a.example.com", path: "/", more: `"failurePolicy":"Ignore"`})
	small := admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"name"},"spec":{"containers":[`+
		strings.Repeat("{},", 15_000)+`{}]}}`)
	made := allocs.Bytes(func() {
		if r := askIn(context.WithValue(t.Context(), codec.MemoryKey{}, refuser{}), t, chain, admission.Mutate,
			small); !strings.Contains(r.message, codec.ErrNoMemory.Error()) {
			t.Errorf("got %+v", r)
		}
	})
	if made > 2<<20 {
		t.Errorf("allocated %d bytes", made)
	}
}
