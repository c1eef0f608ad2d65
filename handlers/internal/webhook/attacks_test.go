package webhook_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

var pod = admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"name"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)

// TestSent compares the reviews that a webhook gets with those of kube-apiserver: only the
// uid differs.
func TestSent(t *testing.T) {
	var got []byte
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		var a asked
		a, got = readAsked(t, r)
		answer(w, a.Request.UID, `"allowed":true`)
	})
	chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"})
	sent := 0
	for _, name := range corpus.Names() {
		body := corpus.MustRead(name)
		got = nil
		if r := ask(t, chain, admission.Validate, body); got == nil {
			if r.message != "" && !strings.Contains(r.message, "not found") {
				t.Errorf("%s: got %s", name, r.message)
			}
			continue
		}
		sent++
		want, uid := decoded(t, body)
		have, other := decoded(t, got)
		if strings.Contains(name, "v1beta1") {
			want["apiVersion"] = "admission.k8s.io/v1" // the webhook's version
		}
		if !jsonEqual(have, want) || uid == other {
			t.Errorf("%s: got  %s\nwant %s", name, got, body)
		}
	}
	if sent < 100 {
		t.Errorf("got %d reviews sent, want most of the recordings", sent)
	}
}

// decoded returns a review without its uid, and the uid.
func decoded(t *testing.T, body []byte) (review map[string]any, uid string) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&review); err != nil {
		t.Fatal(err)
	}
	request := review["request"].(map[string]any)
	uid, _ = request["uid"].(string)
	delete(request, "uid")
	return review, uid
}

func jsonEqual(a, b any) bool {
	x, err := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// TestHostile has webhooks with malicious answers.
func TestHostile(t *testing.T) {
	if testing.Short() {
		t.Skip("large answers take long; TestAnswers has small ones")
	}
	elsewhere := newBackend(t, func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") })
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		switch r.URL.Path {
		case "/endless":
			for {
				if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<16)); err != nil {
					return
				}
			}
		case "/large":
			answer(w, a.Request.UID, `"allowed":true,"warnings":["`+strings.Repeat("x", 20<<20)+`"]`)
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = io.Copy(z, io.LimitReader(zeros{}, 20<<20))
			_ = z.Close()
		case "/header":
			w.Header().Set("X", strings.Repeat("x", 100<<10))
			answer(w, a.Request.UID, `"allowed":true`)
		case "/redirect":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/nothing":
		case "/text":
			http.Error(w, "no\nsuch\x00thing", http.StatusTeapot)
		case "/uid":
			answer(w, "other", `"allowed":true`)
		case "/operations":
			answer(w, a.Request.UID, patched(t, "["+
				strings.TrimSuffix(strings.Repeat(`{"op":"add","path":"/metadata/labels","value":null},`, 100_000), ",")+"]"))
		case "/braces":
			answer(w, a.Request.UID, patched(t, "["+strings.TrimSuffix(strings.Repeat(`{},`, 200_000), ",")+"]"))
		case "/patch":
			answer(w, a.Request.UID, patched(t, `[{"op":"remove","path":"/nothing"}]`))
		case "/array":
			answer(w, a.Request.UID, patched(t, `[{"op":"replace","path":"","value":[]}]`))
		case "/panics":
			answer(w, a.Request.UID, patched(t, `[{"op":"replace","path":""}]`))
		case "/code":
			answer(w, a.Request.UID, `"allowed":false,"status":{"code":600}`)
		}
	})
	f := func(path, message string, code int32, ignorable bool) {
		t.Helper()
		for _, policy := range []string{"Fail", "Ignore"} {
			chain := b.chain(admission.Mutate, upstreamConfig, hook{name: "a.example.com", path: path,
				more: `"timeoutSeconds":30,"failurePolicy":"` + policy + `"`}) // 30 s for busy machines
			r := ask(t, chain, admission.Mutate, pod)
			switch {
			case ignorable && policy == "Ignore":
				if r.message != "" || !strings.Contains(r.answer, `"failed-open.mutation.round_0_index_0":"a.example.com"`) {
					t.Errorf("%s: got %+v, want it ignored", path, r)
				}
			case !strings.Contains(r.message, message) || r.code != code:
				t.Errorf("%s: got %d %s, want %d %s", path, r.code, r.message, code, message)
			}
		}
	}
	f("/endless", "the answer has more than 8388608 bytes", 500, true)
	f("/large", "the answer has more than 8388608 bytes", 500, true)
	f("/bomb", "the answer has more than 8388608 bytes", 500, true)
	f("/header", "failed to call webhook", 500, true)
	f("/redirect", "it redirects, and redirects are not followed", 500, true)
	f("/nothing", "0-length response", 500, true)
	f("/text", "failed to call webhook: ", 500, true)
	f("/uid", `received invalid webhook response: expected response.uid="`, 500, true)
	f("/operations", "", 0, false)
	f("/braces", "", 413, false)
	f("/patch", "Internal error occurred: ", 500, false)
	f("/array", "the patched object is not a JSON object", 500, false)
	f("/panics", "Internal error occurred: ", 500, false)
	f("/code", `admission webhook "a.example.com" denied the request without explanation`, 500, false)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestOutlived has a webhook answer before it reads the request, and releases the review
// meanwhile. In the poison build, this overwrites its bytes.
func TestOutlived(t *testing.T) {
	var reading sync.WaitGroup
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		controller := http.NewResponseController(w)
		_ = controller.EnableFullDuplex()
		reading.Add(1)
		defer reading.Done()
		http.Error(w, "later", http.StatusBadRequest)
		_ = controller.Flush()
		time.Sleep(50 * time.Millisecond)
		body, err := io.ReadAll(r.Body)
		if err == nil && bytes.ContainsRune(body, 0xdb) || bytes.Contains(body, []byte{0xdb, 0xdb}) {
			t.Error("the webhook got bytes of a review that was released")
		}
	})
	chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/", more: `"timeoutSeconds":1`})
	large := admissiontest.Body(codec.Create, "v1/pods",
		`{"metadata":{"name":"name","annotations":{"a":"`+strings.Repeat("x", 4<<20)+`"}}}`)
	if r := ask(t, chain, admission.Validate, bytes.Clone(large)); r.code != 500 {
		t.Errorf("got %+v", r)
	}
	reading.Wait()
}

// TestTimes has webhooks that do not answer: the call ends after timeoutSeconds, or before
// the review ends, early enough for an answer.
func TestTimes(t *testing.T) {
	ended := make(chan struct{})
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	})
	before := runtime.NumGoroutine()
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		chain := b.chain(phase, upstreamConfig,
			hook{name: "a.example.com", path: "/", more: `"failurePolicy":"Ignore","timeoutSeconds":30`})
		review := codec.Acquire()
		if err := review.Decode(pod); err != nil {
			t.Fatal(err)
		}
		outcome, err := chain.Review(admissiontest.WithTime(t.Context(), time.Second), review, phase)
		if err != nil || outcome != admission.OutcomeAllowed {
			t.Errorf("%v: got %v, %v, want the failure ignored in time", phase, outcome, err)
		}
		review.Release()
	}
	close(ended)
	b.CloseClientConnections() // ends all goroutines of the server
	for range 3000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("got %d goroutines, before there were %d", runtime.NumGoroutine(), before)
}

// TestInflight has more reviews of a user in flight than calls of a webhook for one user.
func TestInflight(t *testing.T) {
	const callsMax = 50
	var now, most atomic.Int64
	release := make(chan struct{})
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		a, _ := readAsked(t, r)
		<-release
		answer(w, a.Request.UID, `"allowed":true`)
	})
	chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/", more: `"timeoutSeconds":30`})
	var all sync.WaitGroup
	for range callsMax + 1 {
		all.Go(func() {
			if r := ask(t, chain, admission.Validate, pod); r.message != "" {
				t.Error(r.message)
			}
		})
	}
	for deadline := time.Now().Add(5 * time.Minute); now.Load() < callsMax && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	hurried, cancel := context.WithTimeout(t.Context(), 10*time.Second) // enough to wait for a place, also on a slow machine
	defer cancel()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(pod); err != nil {
		t.Fatal(err)
	}
	if outcome, err := chain.Review(hurried, review, admission.Validate); err == nil && outcome == admission.OutcomeAllowed {
		t.Error("one more was allowed")
	}
	var series strings.Builder
	b.series.WritePrometheus(&series)
	const want = `fastadmit_webhook_limited_total{plugin="ValidatingAdmissionWebhook",webhook="a.example.com"} 1`
	if !strings.Contains(series.String(), want) {
		t.Errorf("got %s\nwant %s", series.String(), want)
	}
	close(release)
	all.Wait()
	if most.Load() != callsMax {
		t.Errorf("got %d calls at once, want %d", most.Load(), callsMax)
	}
}

// TestCircuit has a webhook that fails, is not called for some time, and recovers.
func TestCircuit(t *testing.T) {
	var calls atomic.Int64
	var good atomic.Bool
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if a, _ := readAsked(t, r); good.Load() {
			answer(w, a.Request.UID, `"allowed":true`)
		}
	})
	const config = `{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration","circuit":{"failures":3,"pause":"2s"}}`
	f := func(policy string, want int64) {
		t.Helper()
		calls.Store(0)
		good.Store(false)
		chain := b.chain(admission.Validate, config, hook{name: "a.example.com", path: "/", more: `"failurePolicy":"` + policy + `"`})
		for range 10 {
			ask(t, chain, admission.Validate, pod)
		}
		if got := calls.Load(); got != want {
			t.Errorf("%s: got %d calls, want %d", policy, got, want)
		}
		good.Store(true)
		time.Sleep(2100 * time.Millisecond)
		calls.Store(0)
		for range 10 {
			ask(t, chain, admission.Validate, pod)
		}
		if got := calls.Load(); got != 10 {
			t.Errorf("%s: got %d calls after the pause, want 10", policy, got)
		}
	}
	f("Ignore", 3)
	f("Fail", 10)
}

// TestCircuitOfTenants has a webhook that fails only for the objects of one user, and then a webhook to
// which nobody can connect.
func TestCircuitOfTenants(t *testing.T) {
	as := func(user string) []byte {
		return bytes.Replace(pod, []byte(`"request":{`), []byte(`"request":{"userInfo":{"username":"`+user+`"},`), 1)
	}
	var calls atomic.Int64
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		a, body := readAsked(t, r)
		switch {
		case !bytes.Contains(body, []byte(`"username":"attacker`)):
			answer(w, a.Request.UID, `"allowed":true`)
		case r.URL.Path == "/error":
			http.Error(w, "error", http.StatusInternalServerError)
		case r.URL.Path == "/nonsense":
			answer(w, "other", `"allowed":true`)
		default:
			<-r.Context().Done()
		}
	})
	const config = `{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration","circuit":{"failures":2,"pause":"10m"}}`
	for _, path := range []string{"/error", "/nonsense", "/hangs"} {
		chain := b.chain(admission.Validate, config,
			hook{name: "a.example.com", path: path, more: `"failurePolicy":"Ignore","timeoutSeconds":1`})
		for _, f := range []struct {
			user      string
			n, called int64
		}{{"attacker", 4, 2}, {"other", 3, 3}, {"attacker", 2, 0}} {
			calls.Store(0)
			for range f.n {
				ask(t, chain, admission.Validate, as(f.user))
			}
			if got := calls.Load(); got != f.called {
				t.Errorf("%s: got %d calls for %s, want %d", path, got, f.user, f.called)
			}
		}
	}
	chain := b.chain(admission.Validate, config, hook{name: "a.example.com", path: "/", more: `"failurePolicy":"Ignore"`})
	ask(t, chain, admission.Validate, as("other"))
	b.CloseClientConnections()
	b.Listener.Close()
	for range 3 {
		ask(t, chain, admission.Validate, as("attacker"))
	}
	var series strings.Builder
	b.series.WritePrometheus(&series)
	want := `fastadmit_webhook_circuit_open{plugin="ValidatingAdmissionWebhook",webhook="a.example.com"} 1`
	if !strings.Contains(series.String(), want) {
		t.Errorf("got %s\nwant %s", series.String(), want)
	}
}

// TestCredentials checks that a host gets its credentials in the kubeconfig file, and that
// these are not logged.
func TestCredentials(t *testing.T) {
	const secret = "s3cr3t-t0k3n"
	var got atomic.Value
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("Authorization"))
		a, _ := readAsked(t, r)
		if r.URL.Path == "/bad" {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		answer(w, a.Request.UID, `"allowed":true`)
	})
	host := strings.TrimPrefix(b.URL, "https://")
	_, rest, _ := strings.Cut(host, ".")
	for name, want := range map[string]string{
		host: "Bearer " + secret, "*." + rest: "Bearer " + secret, "*": "Bearer " + secret, "other": "", "127.0.0.1": "", "*.0.0.1": "",
	} {
		kubeconfig := fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","users":[{"name":%q,"user":{"token":%q}}]}`, name, secret)
		chain := b.chainWith(admission.Validate, upstreamConfig, kubeconfig, hook{name: "a.example.com", path: "/"},
			hook{name: "b.example.com", path: "/bad"})
		r := ask(t, chain, admission.Validate, pod)
		if got.Load() != want || r.message == "" || strings.Contains(r.answer, secret) {
			t.Errorf("user %s: got %q and %s, want %q and nothing secret", name, got.Load(), r.answer, want)
		}
	}
}

// TestReinvocation checks that webhooks are reinvoked as in kube-apiserver.
func TestReinvocation(t *testing.T) {
	var calls []string
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		calls = append(calls, r.URL.Path[1:])
		switch r.URL.Path {
		case "/b":
			answer(w, a.Request.UID, patched(t, `[{"op":"add","path":"/metadata/labels","value":{"b":"c"}}]`))
		case "/d":
			answer(w, a.Request.UID, patched(t, `[{"op":"test","path":"/metadata/name","value":"name"}]`))
		default:
			answer(w, a.Request.UID, `"allowed":true`)
		}
	})
	const ifNeeded = `"reinvocationPolicy":"IfNeeded"`
	chain := b.chain(admission.Mutate, upstreamConfig,
		hook{name: "a.example.com", path: "/a", more: ifNeeded}, hook{name: "b.example.com", path: "/b", more: ifNeeded},
		hook{name: "c.example.com", path: "/c"}, hook{name: "d.example.com", path: "/d", more: ifNeeded})
	r := ask(t, chain, admission.Mutate, pod)
	if got := strings.Join(calls, " "); got != "a b c d a" || r.patch != `[{"op":"add","path":"/metadata/labels","value":{"b":"c"}}]` {
		t.Errorf("got calls %s and patch %s", got, r.patch)
	}
}

// TestReinvocationGeneration has a webhook that removes all annotations of a DaemonSet and is reinvoked. Then the
// annotation with the generation of the template is there again, as in kube-apiserver.
func TestReinvocationGeneration(t *testing.T) {
	const generation = `"annotations":{"deprecated.daemonset.template.generation":"3"}`
	var calls []string
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, body := readAsked(t, r)
		calls = append(calls, fmt.Sprint(r.URL.Path[1:], strings.Contains(string(body), generation)))
		patch := `[{"op":"remove","path":"/metadata/annotations"}]`
		if r.URL.Path == "/b" {
			patch = `[{"op":"add","path":"/metadata/labels","value":{"b":"c"}}]`
		}
		answer(w, a.Request.UID, patched(t, patch))
	})
	chain := b.chain(admission.Mutate, upstreamConfig,
		hook{name: "a.example.com", path: "/a", more: `"reinvocationPolicy":"IfNeeded"`}, hook{name: "b.example.com", path: "/b"})
	daemonSet := bytes.Replace(admissiontest.Body(codec.Create, "apps/v1/daemonsets", `{"metadata":{"name":"name",`+generation+`}}`),
		[]byte(`"resource":{`), []byte(`"kind":{"group":"apps","version":"v1","kind":"DaemonSet"},"resource":{`), 1)
	r := ask(t, chain, admission.Mutate, daemonSet)
	const labels = `[{"op":"add","path":"/metadata/labels","value":{"b":"c"}}]`
	if got := strings.Join(calls, " "); got != "atrue bfalse atrue" || r.patch != labels {
		t.Errorf("got calls %s and %+v", got, r)
	}
}

// TestReinvocationConditions has a webhook that matches only after the object was changed.
// It is not reinvoked, but its condition fails then.
func TestReinvocationConditions(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		answer(w, a.Request.UID, patched(t, `[{"op":"add","path":"/metadata/labels","value":{"b":"c"}}]`))
	})
	chain := b.chain(admission.Mutate, upstreamConfig,
		hook{name: "a.example.com", path: "/a", more: `"objectSelector":{"matchLabels":{"b":"c"}},"matchConditions":[{"name":"c",` +
			`"expression":"object.spec.none == 1"}]`},
		hook{name: "b.example.com", path: "/b"})
	if r := ask(t, chain, admission.Mutate, pod); r.code != http.StatusForbidden || !strings.Contains(r.message, "no such key: none") {
		t.Errorf("got %+v, want a denial, as kube-apiserver matches all webhooks again", r)
	}
}

// TestLoop has a webhook configuration that points to fastadmit itself.
func TestLoop(t *testing.T) {
	var chain *admission.Chain
	var inner result
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, body := readAsked(t, r)
		inner = ask(t, chain, admission.Validate, body)
		answer(w, a.Request.UID, `"allowed":true`)
	})
	chain = b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"})
	if r := ask(t, chain, admission.Validate, pod); r.message != "" || inner.code != 500 ||
		!strings.Contains(inner.message, "leads back to fastadmit") {
		t.Errorf("got %+v within %+v", inner, r)
	}
}

// TestCanceled has the review end during the call of a webhook.
func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := newBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"})
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(pod); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(ctx, review, admission.Validate); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
