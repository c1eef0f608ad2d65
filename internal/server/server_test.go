package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

func TestServeAnswersEveryRecording(t *testing.T) {
	s := serve(t, "AlwaysPullImages,DefaultTolerationSeconds,StorageObjectInUseProtection", nil)
	x := s.Open(t)
	patched := 0
	for _, name := range corpus.Names() {
		body := corpus.MustRead(name)
		var sent struct {
			APIVersion string
			Request    struct{ UID string }
		}
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Fatal(err)
		}
		response, content := x.Send(servertest.Request("/mutate?timeout=10s", body))
		var got struct {
			APIVersion, Kind string
			Response         struct {
				UID, PatchType string
				Allowed        bool
				Patch          []byte
			}
		}
		if err := json.Unmarshal(content, &got); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %s %s (%v)", name, response.Status, content, err)
		}
		if got.APIVersion != sent.APIVersion || got.Kind != "AdmissionReview" || got.Response.UID != sent.Request.UID ||
			!got.Response.Allowed {
			t.Errorf("%s: got %s", name, content)
		}
		if (got.Response.PatchType == "JSONPatch") != (len(got.Response.Patch) > 0) {
			t.Errorf("%s: got patch %s of type %q", name, got.Response.Patch, got.Response.PatchType)
		}
		if len(got.Response.Patch) > 0 {
			patched++
		}
		if response.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: got Content-Type %q", name, response.Header.Get("Content-Type"))
		}
	}
	if patched == 0 {
		t.Error("nothing was patched")
	}
}

// TestServeRecordedHTTP sends recorded HTTP requests of a kube-apiserver in two parts, as
// recorded: header and body.
func TestServeRecordedHTTP(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil)
	files, err := os.ReadDir("testdata/http")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	x := s.Open(t)
	for _, file := range files {
		raw, err := os.ReadFile("testdata/http/" + file.Name())
		if err != nil {
			t.Fatal(err)
		}
		line, rest, _ := bytes.Cut(raw, []byte("\r\n"))
		_, query, ok := bytes.Cut(line, []byte("?"))
		head, body, complete := bytes.Cut(rest, []byte("\r\n\r\n"))
		if !ok || !complete {
			t.Fatalf("%s is no recorded request", file.Name())
		}
		if _, err := fmt.Fprintf(x.Conn, "POST /mutate?%s\r\n%s\r\n\r\n", query, head); err != nil {
			t.Fatal(err)
		}
		response, content := x.Send(body)
		if response.StatusCode != http.StatusOK || !bytes.Contains(content, []byte(`"allowed":true`)) {
			t.Errorf("%s: got %s %s", file.Name(), response.Status, content)
		}
	}
}

// TestServeRefuses sends requests that are not reviews. Each answer is an HTTP error with a
// metav1.Status; after that, the connection works or is closed.
func TestServeRefuses(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil)
	f := func(name string, raw []byte, code int, reason, message string, closed bool) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			x := s.Open(t)
			response, body := x.Send(raw)
			var status struct {
				Kind, APIVersion, Status, Reason, Message string
				Code                                      int
			}
			if err := json.Unmarshal(body, &status); err != nil {
				t.Fatalf("got %s %q: %v", response.Status, body, err)
			}
			if response.StatusCode != code || status.Code != code || status.Reason != reason ||
				!strings.Contains(status.Message, message) {
				t.Errorf("got %s %s, want %d %s with %q", response.Status, body, code, reason, message)
			}
			if status.Kind != "Status" || status.APIVersion != "v1" || status.Status != "Failure" {
				t.Errorf("got %s, want a metav1.Status", body)
			}
			if response.Close != closed {
				t.Errorf("got close %v, want %v", response.Close, closed)
			}
			x.Answers(response.Close)
		})
	}
	post := func(body string) []byte { return servertest.Request("/mutate?timeout=10s", []byte(body)) }
	bad := func(name, body, message string) {
		t.Helper()
		f(name, post(body), 400, "BadRequest", message, false)
	}
	review := func(request string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":` + request + `}`
	}

	bad("empty body", "", "the body is empty")
	bad("only space", " \n", "the body is empty")
	bad("not JSON", "hello", "invalid JSON at byte 0")
	bad("an array", "[]", "invalid JSON at byte 0")
	bad("protobuf", "k8s\x00\x01\x02", "invalid JSON at byte 0")
	bad("wrong kind", `{"kind":"Pod","apiVersion":"v1"}`, `kind: got "Pod", want "AdmissionReview"`)
	bad("no kind", `{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u"}}`, `kind: got nothing`)
	bad("wrong apiVersion", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2","request":{"uid":"u"}}`,
		`apiVersion: got "admission.k8s.io/v2"`)
	bad("no request", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, "request: got nothing")
	bad("null request", review("null"), "request: got nothing")
	bad("a response", review(`[]`), "request: got []")
	bad("no uid", review(`{}`), "request.uid: got nothing")
	bad("empty uid", review(`{"uid":""}`), "request.uid: got nothing")
	bad("uid a number", review(`{"uid":1}`), "request.uid: got 1, want a string")
	bad("object a string", review(`{"uid":"u","object":"x"}`), "request.object: got \"x\", want an object")
	bad("trailing garbage", review(`{"uid":"u"}`)+"x", "want nothing behind the object")
	bad("invalid UTF-8", review("{\"uid\":\"\xff\"}"), "want a string in UTF-8")
	bad("broken where it is read", review(podReview(`{"spec":{"containers":[{"image":"a" "b"}]}}`)),
		"request.object: invalid JSON at byte")
	bad("depth bomb, open", review(`{"uid":"u","object":`+strings.Repeat(`{"a":`, 100_000)), "invalid JSON")

	f("path", servertest.Request("/nowhere", nil), 404, "NotFound", `path: got "/nowhere"`, false)
	f("plugin", servertest.Request("/mutate/Nothing", nil), 404, "NotFound", `plugin "Nothing" is not enabled`, false)
	f("plugin that is off", servertest.Request("/validate/AlwaysDeny", nil), 404, "NotFound", `plugin "AlwaysDeny" is not enabled`, false)
	f("media type", servertest.Request("/mutate", []byte("{}"), "Content-Type: text/plain"), 415, "UnsupportedMediaType",
		`got "text/plain"`, false)
	f("no media type", servertest.Request("/mutate", []byte("{}"), "X-Nothing: 1"), 415, "UnsupportedMediaType", `got ""`, false)
	f("encoding", servertest.Request("/mutate", []byte("{}"), "Content-Type: application/json", "Content-Encoding: gzip"), 415,
		"UnsupportedMediaType", `got "gzip"`, false)
	f("header block", servertest.Request("/mutate", nil, "Baggage: "+strings.Repeat("x", headerBytesMax)), 431,
		"RequestHeaderFieldsTooLarge", "16384 bytes", true)
	f("not HTTP", []byte("\x00\x01\x02\r\n\r\n"), 400, "BadRequest", "cannot read the HTTP request", true)
	f("body over the limit", oversized(bodyBytesMax+1), 413, "RequestEntityTooLarge", "33554432 bytes", true)
	f("body far over the limit", oversized(1<<40), 413, "RequestEntityTooLarge", "33554432 bytes", true)
}

// podReview returns a review of a pod with this object.
func podReview(object string) string {
	return `{"uid":"u","operation":"CREATE","resource":{"group":"","version":"v1","resource":"pods"},"object":` + object + `}`
}

// oversized returns the header of a request without its body.
func oversized(n int) []byte {
	return []byte(strings.Replace(string(servertest.Request("/mutate", nil)), "Content-Length: 0",
		fmt.Sprintf("Content-Length: %d", n), 1))
}

// TestServeLowerCase calls one plugin by a path that is valid in the service of a webhook
// configuration.
func TestServeLowerCase(t *testing.T) {
	s := serve(t, "AlwaysPullImages,AlwaysDeny", nil)
	for _, path := range []string{"/mutate/AlwaysPullImages", "/mutate/alwayspullimages"} {
		if _, body := s.Open(t).Send(servertest.Request(path, corpus.MustRead(servertest.PodCreate))); !bytes.Contains(body,
			[]byte(`"patchType":"JSONPatch"`)) {
			t.Errorf("%s: got %s, want a patch", path, body)
		}
	}
	if metrics := s.Get(t, "/metrics", 200); !strings.Contains(metrics,
		`fastadmit_requests_total{webhook="mutate/AlwaysPullImages",operation="CREATE",decision="patched"} 2`) {
		t.Errorf("both are not counted as one:\n%s", metrics)
	}
}

func TestServeRefusesMethods(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil)
	for _, method := range []string{"GET", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		x := s.Open(t)
		response, body := x.Send(bytes.Replace(servertest.Request("/mutate", []byte("{}")), []byte("POST"), []byte(method), 1))
		if response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get("Allow") != "POST" ||
			!bytes.Contains(body, []byte("want POST")) {
			t.Errorf("%s: got %s, Allow %q, %s", method, response.Status, response.Header.Get("Allow"), body)
		}
		x.Answers(response.Close)
	}
}

// TestServeAccepts sends unusual reviews that are valid.
func TestServeAccepts(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil)
	f := func(name, request string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			x := s.Open(t)
			response, body := x.Send(reviewRequest(request))
			if response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"allowed":true`)) {
				t.Errorf("got %s %.200s", response.Status, body)
			}
			x.Answers(response.Close)
		})
	}
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":%d`, i, i)
		}
		return b.String()
	}
	f("depth bomb", podReview(strings.Repeat(`{"spec":`, 100_000)+"{}"+strings.Repeat("}", 100_000)))
	f("deep array where containers are",
		podReview(`{"spec":{"containers":`+strings.Repeat(`[`, 100_000)+strings.Repeat("]", 100_000)+`}}`))
	f("100,000 keys in the object", podReview(`{"a":1`+many(100_000)+`,"spec":{}}`))
	f("100,000 keys in the envelope", `{"uid":"u"`+many(100_000)+`}`)
	f("invalid UTF-8 that nobody reads", podReview("{\"metadata\":{\"name\":\"\xff\"}}"))
	f("no operation and resource", `{"uid":"u"}`)
}

func reviewRequest(review string) []byte {
	return servertest.Request("/mutate", []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":`+review+`}`))
}

// TestServeBodyLimit sends bodies of the maximum length, and announces one of a byte more. The server reads what it has refused for
// no more than two seconds, so a slow client could not send it.
func TestServeBodyLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("large bodies take long; TestServeConcurrently has small ones")
	}
	s := serve(t, "AlwaysPullImages", nil)
	f := func(request []byte, code int) {
		t.Helper()
		x := s.Open(t)
		response, content := x.Send(request)
		if response.StatusCode != code {
			t.Errorf("%.200s: got %s %.200s, want %d", request, response.Status, content, code)
		}
	}
	f(servertest.Request("/validate", servertest.Padded(bodyBytesMax-1)), 200)
	f(servertest.Request("/validate", servertest.Padded(bodyBytesMax)), 200)
	f(oversized(bodyBytesMax+1), 413)
}

// TestServeTruncated ends a request after every byte: nothing hangs, and the server
// continues.
func TestServeTruncated(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil)
	raw := servertest.Request("/mutate?timeout=1s", corpus.MustRead("configmaps-create-v1-1.json"))
	step := 1
	if testing.Short() {
		step = 17
	}
	plain := s.Open(t)
	for cut := 0; cut < len(raw); cut += step {
		conn, err := tls.Dial("tcp", s.Address, servertest.TLS)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(raw[:cut]); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	plain.Answers(false)

	// A truncated body with the right length is a truncated review.
	body := corpus.MustRead("configmaps-create-v1-1.json")
	end := len(bytes.TrimSpace(body))
	for cut := 0; cut < end; cut += step {
		response, content := plain.Send(servertest.Request("/mutate", body[:cut]))
		if response.StatusCode != http.StatusBadRequest || !bytes.Contains(content, []byte(`"reason":"BadRequest"`)) {
			t.Fatalf("cut at byte %d: got %s %s", cut, response.Status, content)
		}
	}
	plain.Answers(false)
}

// TestServeSlowSender sends a request in small parts.
func TestServeSlowSender(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil)
	x := s.Open(t)
	raw := servertest.Request("/validate", corpus.MustRead(servertest.PodCreate))
	for len(raw) > 1 {
		n := min(len(raw)-1, 400)
		if _, err := x.Conn.Write(raw[:n]); err != nil {
			t.Fatal(err)
		}
		raw = raw[n:]
		time.Sleep(5 * time.Millisecond)
	}
	if response, body := x.Send(raw); response.StatusCode != http.StatusOK {
		t.Errorf("got %s %s", response.Status, body)
	}
}

// TestServePanics checks that panics, in plugins and elsewhere, neither end the process nor
// log secrets.
func TestServePanics(t *testing.T) {
	explode := func(context.Context, *codec.Review) admission.Result { panic("secret") }
	s := serve(t, "AlwaysPullImages,Explodes", []admission.Plugin{{
		Name: "Explodes", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: explode}, nil },
	}})
	x := s.Open(t)
	response, body := x.Send(servertest.Request("/validate/Explodes", corpus.MustRead(servertest.PodCreate)))
	want := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
		`"message":"admission plugin Explodes failed: it panicked, see the log of fastadmit","reason":"InternalError","code":500}`
	if response.StatusCode != http.StatusInternalServerError || string(body) != want || response.Close {
		t.Errorf("got %s %s, want 500 and %s", response.Status, body, want)
	}
	response, body = x.Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate)))
	if response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"allowed":true`)) {
		t.Errorf("afterwards: got %s %s", response.Status, body)
	}
	if log := s.Log.String(); !strings.Contains(log, "plugin panicked") || !strings.Contains(log, "TestServePanics") ||
		strings.Contains(log, "secret") {
		t.Errorf("got log %s, want the panic's stack in it, and not what it was with", log)
	}
	if metrics := s.Get(t, "/metrics", 200); !strings.Contains(metrics, `fastadmit_plugin_panics_total{plugin="Explodes"} 1`) {
		t.Errorf("the panic is not counted:\n%s", metrics)
	}
}

// TestMetricsAreFixed checks that requests change the values of series, but never add
// series.
func TestMetricsAreFixed(t *testing.T) {
	s := serve(t, "AlwaysPullImages,AlwaysDeny", nil)
	series := func() []string {
		var names []string
		for line := range strings.Lines(s.Get(t, "/metrics", 200)) {
			if name, _, ok := strings.Cut(line, " "); ok && strings.HasPrefix(name, "fastadmit_") {
				names = append(names, name)
			}
		}
		return names
	}
	before := series()
	x := s.Open(t)
	x.Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate)))
	x.Send(servertest.Request("/validate/AlwaysDeny", corpus.MustRead("configmaps-delete-v1-1.json")))
	x.Send(servertest.Request("/validate",
		[]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"INVENTED"}}`)))
	x.Send(servertest.Request("/nothing", nil))
	after := series()
	if len(before) == 0 || strings.Join(before, "\n") != strings.Join(after, "\n") {
		t.Errorf("the series changed from %d to %d", len(before), len(after))
	}
	metrics := s.Get(t, "/metrics", 200)
	for _, want := range []string{
		`fastadmit_requests_total{webhook="mutate",operation="CREATE",decision="denied"} 1`,
		`fastadmit_requests_total{webhook="validate/AlwaysDeny",operation="DELETE",decision="denied"} 1`,
		`fastadmit_requests_total{webhook="validate",operation="other",decision="denied"} 1`,
		`fastadmit_plugin_decisions_total{plugin="AlwaysPullImages",phase="mutate",decision="patched"} 1`,
		`fastadmit_plugin_decisions_total{plugin="AlwaysDeny",phase="mutate",decision="denied"} 1`,
		`fastadmit_plugin_duration_seconds_count{plugin="AlwaysPullImages",phase="mutate"} 1`,
		`fastadmit_request_duration_seconds_bucket{webhook="mutate",le="5e-05"}`,
		`fastadmit_refused_requests_total{code="404"} 1`,
		`fastadmit_requests_in_flight 0`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
	for _, secret := range []string{"shop", "web-8d7c59b89", "replicaset-controller"} {
		if strings.Contains(metrics, secret) {
			t.Errorf("%q of a request is in the metrics", secret)
		}
	}
}

func TestHealth(t *testing.T) {
	s := serve(t, "AlwaysAdmit", nil, func(s *setup) { s.ShutdownDelay = 5 * time.Second })
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if got := s.Get(t, path, 200); got != "ok\n" {
			t.Errorf("%s: got %q", path, got)
		}
	}
	s.Get(t, "/nothing", 404)
	s.stop()
	servertest.Until(t, "/readyz fails", func() bool {
		code, _ := s.Readyz(t)
		return code == http.StatusServiceUnavailable
	})
	s.Get(t, "/livez", 200)
	if response, body := s.Open(t).Send(servertest.Request("/validate",
		corpus.MustRead(servertest.PodCreate))); response.StatusCode != http.StatusOK {
		t.Errorf("during the delay: got %s %s", response.Status, body)
	}
}

// TestShutdownLeavesIdle stops a server with two idle connections. It ends when one has had an answer and the client has closed
// the other.
func TestShutdownLeavesIdle(t *testing.T) {
	s := serve(t, "AlwaysAdmit", nil, func(s *setup) { s.ShutdownIdle = time.Hour })
	used, unused := s.Open(t), s.Open(t)
	used.Answers(false)
	unused.Answers(false)
	s.stop()
	servertest.Until(t, "the server waits", func() bool { return strings.Contains(s.Log.String(), "callers close their idle connections") })
	used.Answers(false)
	used.Answers(true)
	select {
	case err := <-s.done:
		t.Fatalf("the server ended with %v while a connection was open", err)
	case <-time.After(2 * watchPause):
	}
	unused.Conn.Close()
	s.end(t)
}

// TestShutdownIdleEnds stops a server whose client never closes its connection.
func TestShutdownIdleEnds(t *testing.T) {
	s := serve(t, "AlwaysAdmit", nil, func(s *setup) { s.ShutdownIdle = time.Millisecond })
	s.Open(t).Answers(false)
	s.end(t)
}

// TestShutdownFinishes stops the server while a plugin runs.
func TestShutdownFinishes(t *testing.T) {
	started, finish := make(chan struct{}), make(chan struct{})
	slow := func(context.Context, *codec.Review) admission.Result {
		close(started)
		<-finish
		return admission.Allowed()
	}
	s := serve(t, "Slow", []admission.Plugin{{
		Name: "Slow", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: slow}, nil },
	}})
	x := s.Open(t)
	if _, err := x.Conn.Write(servertest.Request("/validate", corpus.MustRead(servertest.PodCreate))); err != nil {
		t.Fatal(err)
	}
	<-started
	s.stop()
	deadline := time.Now().Add(5 * time.Minute)
	for {
		conn, err := net.Dial("tcp", s.Address)
		if err != nil {
			break // it no longer accepts connections
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("the server goes on accepting")
		}
	}
	close(finish)
	response, body := x.Receive()
	if response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"allowed":true`)) || !response.Close {
		t.Errorf("got %s %s, close %v", response.Status, body, response.Close)
	}
	s.end(t)
}

// TestBudget checks that the contexts of plugins end when kube-apiserver stops waiting.
func TestBudget(t *testing.T) {
	var left time.Duration
	var err error
	look := func(ctx context.Context, _ *codec.Review) admission.Result {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		waiting, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		<-waiting.Done()
		err = ctx.Err()
		return admission.Allowed()
	}
	s := serve(t, "Looks", []admission.Plugin{{
		Name: "Looks", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: look}, nil },
	}})
	x := s.Open(t)
	f := func(query string, want time.Duration) {
		t.Helper()
		x.Send(servertest.Request("/validate"+query, corpus.MustRead(servertest.PodCreate)))
		if left > want || left < want-5*time.Second || err != nil {
			t.Errorf("%q: got %s left and error %v, want %s", query, left, err, want)
		}
	}
	f("?timeout=10s", 10*time.Second)
	f("?timeout=30s", 30*time.Second)
	f("", 30*time.Second)
	f("?timeout=31s", 30*time.Second)
	f("?timeout=0s", 30*time.Second)
	f("?timeout=-5s", 30*time.Second)
	f("?timeout=nonsense", 30*time.Second)
}

// TestServeConcurrently compares every answer to 32 clients with the answer to one: if
// pooled memory were used too long, they would be mixed up.
func TestServeConcurrently(t *testing.T) {
	s := serve(t, "AlwaysPullImages,DefaultTolerationSeconds,ExtendedResourceToleration,StorageObjectInUseProtection", nil)
	want := make(map[string]string)
	x := s.Open(t)
	for _, name := range corpus.Names() {
		_, body := x.Send(servertest.Request("/mutate", corpus.MustRead(name)))
		want[name] = string(body)
	}
	clients, rounds := 32, 3
	if testing.Short() {
		clients, rounds = 16, 1
	}
	var wg sync.WaitGroup
	for range clients {
		x := s.Open(t)
		wg.Go(func() {
			for range rounds {
				for _, name := range corpus.Names() {
					if _, body := x.Send(servertest.Request("/mutate", corpus.MustRead(name))); string(body) != want[name] {
						t.Errorf("%s: got %s, want %s", name, body, want[name])
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestBudgetOutlivesItsCall derives contexts that end after their call. They then read the
// budget again, which must not be that of another call.
func TestBudgetOutlivesItsCall(t *testing.T) {
	derive := func(ctx context.Context, _ *codec.Review) admission.Result {
		_, cancel := context.WithTimeout(ctx, time.Millisecond)
		time.AfterFunc(2*time.Millisecond, cancel)
		return admission.Allowed()
	}
	s := serve(t, "Derives", []admission.Plugin{{
		Name: "Derives", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: derive}, nil },
	}})
	x := s.Open(t)
	for range 2000 {
		if response, body := x.Send(servertest.Request("/validate",
			corpus.MustRead("configmaps-create-v1-1.json"))); response.StatusCode != http.StatusOK {
			t.Fatalf("got %s %s", response.Status, body)
		}
	}
}
