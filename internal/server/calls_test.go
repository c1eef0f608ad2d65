package server

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// validating returns a validating plugin with this function.
func validating(name string, validate func(context.Context, *codec.Review) admission.Result) admission.Plugin {
	return admission.Plugin{
		Name: name, Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: validate}, nil },
	}
}

// TestGoexit has a plugin end its goroutine: the call fails at once and releases its
// resources, and the server continues.
func TestGoexit(t *testing.T) {
	s := serve(t, "AlwaysPullImages,Exits", []admission.Plugin{validating("Exits", func(context.Context, *codec.Review) admission.Result {
		runtime.Goexit()
		return admission.Allowed()
	})}, func(s *setup) { s.RequestsMax = 1; s.ConnectionsMax = 10 })
	for range 3 {
		x := s.Open(t)
		x.Answers(false)
		response, body := x.Send(servertest.Request("/validate/exits", servertest.Padded(100_000)))
		x.Fails(response, body, "a plugin ended the goroutine of the call")
	}
	other := s.Open(t)
	other.Answers(false)
	other.Conn.Close()
	servertest.Until(t, "nothing is left of it", func() bool {
		metrics := s.Get(t, "/metrics", 200)
		return strings.Contains(metrics, `fastadmit_connections{port="webhooks"} 0`+"\n") &&
			strings.Contains(metrics, "fastadmit_connections_kept_bytes 0\n") &&
			strings.Contains(metrics, "fastadmit_request_bytes_in_flight 0\n") &&
			strings.Contains(metrics, "fastadmit_requests_in_flight 0\n")
	})
	metrics := s.Get(t, "/metrics", 200)
	for _, line := range []string{
		`fastadmit_requests_total{webhook="validate/Exits",operation="CREATE",decision="errored"} 3`,
		`fastadmit_plugin_decisions_total{plugin="Exits",phase="validate",decision="errored"} 3`,
		`fastadmit_refused_requests_total{code="500"} 3`, `fastadmit_stuck_requests 0`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %q in %s", line, metrics)
		}
	}
	if log := s.Log.String(); !strings.Contains(log, "it ended its goroutine with runtime.Goexit") ||
		!strings.Contains(log, "call failed") {
		t.Errorf("got log %s", log)
	}
}

// TestStuckPlugin has a plugin that does not return: the call fails at its deadline and
// releases its resources. Other calls get their answers, also when the plugin returns later.
func TestStuckPlugin(t *testing.T) {
	var stuck atomic.Bool
	stuck.Store(true)
	started, goOn := make(chan string, 1), make(chan struct{})
	p := servePatiently(t, timeouts{stuck: time.Millisecond, watch: time.Second},
		validating("Waits", func(_ context.Context, review *codec.Review) admission.Result {
			if !stuck.Load() {
				return admission.Allowed()
			}
			started <- review.UID()
			<-goOn
			return admission.Allowed()
		}))
	p.server.load.requestsMax = 1
	x := p.Open(t)
	response, body := x.Send(servertest.Request("/validate?timeout=1s", servertest.Padded(100_000)))
	<-started
	x.Fails(response, body, "a plugin did not return in the time of the call")
	if n, bytes := p.server.load.requests.Load(), p.server.load.bytes.Load(); n != 0 || bytes != 0 {
		t.Errorf("got %d requests and %d bytes in flight", n, bytes)
	}
	servertest.Until(t, "the log has the stack of the plugin", func() bool {
		return strings.Contains(p.Log.String(), "plugins did not return in time") && strings.Contains(p.Log.String(), "TestStuckPlugin")
	})
	if got := p.server.stuck.Load(); got != 1 {
		t.Errorf("got %d stuck calls", got)
	}
	e := p.server.serving.Load().endpoints["/validate"]
	if got := e.metrics.decisions[0][admission.OutcomeErrored].Get(); got != 1 {
		t.Errorf("got %d calls that failed", got)
	}
	stuck.Store(false)
	other := p.Open(t)
	for i := range 50 {
		if i == 10 {
			close(goOn)
		}
		name := corpus.Names()[i]
		response, body := other.Send(servertest.Request("/validate", corpus.MustRead(name)))
		var sent struct{ Request struct{ UID string } }
		var got struct {
			Response struct {
				UID     string
				Allowed bool
			}
		}
		if err := json.Unmarshal(corpus.MustRead(name), &sent); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(body, &got); err != nil || response.StatusCode != http.StatusOK ||
			got.Response.UID != sent.Request.UID || !got.Response.Allowed {
			t.Fatalf("%s: got %s %s, %v, want UID %s", name, response.Status, body, err, sent.Request.UID)
		}
	}
	servertest.Until(t, "it returned", func() bool { return p.server.stuck.Load() == 0 })
	if got := e.metrics.decisions[0][admission.OutcomeAllowed].Get(); p.server.load.requests.Load() != 0 || got == 51 {
		t.Errorf("got %d requests in flight and %d allowed", p.server.load.requests.Load(), got)
	}
}

// TestShutdownWithoutStuckPlugins ends a server during a call whose plugin never returns: it
// ends in time.
func TestShutdownWithoutStuckPlugins(t *testing.T) {
	started, never, soon := make(chan struct{}), make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(never) })
	p := servePatiently(t, timeouts{stuck: time.Millisecond, watch: time.Second, fresh: time.Millisecond},
		validating("Waits", func(ctx context.Context, _ *codec.Review) admission.Result {
			started <- struct{}{}
			if deadline, _ := ctx.Deadline(); time.Until(deadline) < 2*time.Second {
				<-never
			}
			<-soon
			return admission.Allowed()
		}))
	x, y := p.Open(t), p.Open(t)
	for of, path := range map[*servertest.Exchange]string{x: "/validate?timeout=1s", y: "/validate?timeout=30s"} {
		if _, err := of.Conn.Write(servertest.Request(path, corpus.MustRead(servertest.PodCreate))); err != nil {
			t.Fatal(err)
		}
		<-started
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		p.finish(t)
	}()
	response, body := x.Receive()
	x.Fails(response, body, "a plugin did not return")
	select {
	case <-finished:
		t.Error("it ended without the call that is not overdue")
	case <-time.After(4 * watchPause):
	}
	close(soon)
	if response, body := y.Receive(); response.StatusCode != http.StatusOK {
		t.Errorf("in time: got %s %s", response.Status, body)
	}
	<-finished
}

// newIdleServer returns a server that does not listen, for tests of its parts.
func newIdleServer(log *servertest.Buffer) *Server {
	return newTestServer(new(admission.Chain), new(Callers), NewLog(log))
}

// TestBegin has calls beyond the limit, on a connection that was closed meanwhile, and with
// a body that was read: this body is not dropped for others, even after the answer.
func TestBegin(t *testing.T) {
	s, ended, c := newIdleServer(new(servertest.Buffer)), new(conn), new(conn)
	start := time.Now()
	of := call{start: start, deadline: start.Add(time.Minute)}
	if ended.state.take(); s.count(ended, of) || s.load.requests.Load() != 0 {
		t.Errorf("got %d requests in flight of a connection that was ended", s.load.requests.Load())
	}
	if s.load.requestsMax = 0; s.count(c, of) || c.state.inCall() {
		t.Error("a call more than there may be was begun")
	}
	s.load.requestsMax, s.load.bytesMax, s.load.grace = 1, 100, -1
	if !s.load.expect(c, 100) || !s.count(c, of) || !s.end(c) {
		t.Fatal("a call was not begun or not ended")
	}
	if s.load.reserve(1) || c.state.isDropped() || s.load.bytes.Load() != 100 {
		t.Errorf("got %d bytes in flight, dropped %v, want those that were read", s.load.bytes.Load(), c.state.isDropped())
	}
	if s.load.expect(new(conn), 1) || s.load.bytes.Load() != 100 {
		t.Errorf("got %d bytes in flight, want that another byte is one too many", s.load.bytes.Load())
	}
}

// TestStacksAreRare checks that the stacks of plugins that do not return are logged rarely.
func TestStacksAreRare(t *testing.T) {
	log := new(servertest.Buffer)
	s := newIdleServer(log)
	l := &listener{server: s, table: newConnTable(s.metrics.webhooks, 1, 1)}
	e := &endpoint{name: "validate", metrics: s.metrics.endpoint("validate", admission.Validate)}
	start := time.Now()
	f := func(now time.Time, want int) {
		t.Helper()
		near, far := net.Pipe()
		far.Close()
		c := &conn{Conn: tls.Server(near, new(tls.Config)), listener: l}
		deadline := now.Add(-s.timeouts.stuck - 1)
		if !s.count(c, call{endpoint: e, start: start, deadline: deadline}) {
			t.Fatal("the call was not begun")
		}
		w := watcher{server: s, now: now}
		w.look(c)
		w.answer()
		w.answer() // of a check that found nothing
		if got := strings.Count(log.String(), "plugins did not return in time"); got != want {
			t.Errorf("%s after the first: got %d times stacks in the log, want %d", now.Sub(start), got, want)
		}
		servertest.Until(t, "the call is answered", func() bool { return s.load.requests.Load() == 0 })
		if got := s.stuck.Swap(0); got != 1 {
			t.Errorf("got %d stuck calls, want 1", got)
		}
	}
	f(start, 1)
	f(start.Add(stacksInterval), 1)
	f(start.Add(stacksInterval+1), 2)
	f(start.Add(stacksInterval+2), 2)
}

// TestLiveness checks that liveness fails if too many plugins do not return.
func TestLiveness(t *testing.T) {
	s := newIdleServer(new(servertest.Buffer))
	handler := newOpsServer(s.metrics, []Check{s.check()}, nil, false).Handler
	f := func(stuck int64, code int, want string) {
		t.Helper()
		s.stuck.Store(stuck)
		recorder := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodGet, "/livez", nil)
		request.RemoteAddr = "127.0.0.1:1" // others do not get the reason
		handler.ServeHTTP(recorder, request)
		if recorder.Code != code || !strings.Contains(recorder.Body.String(), want) {
			t.Errorf("%d stuck calls: got %d %s, want %d", stuck, recorder.Code, recorder.Body, code)
		}
	}
	f(0, 200, "ok")
	for stuck, want := range []string{"", "1 calls did not return from a plugin, want less than 100"} {
		s.stuck.Store(int64(stuck))
		if ok, got := s.check().Ask(); !ok || got != want {
			t.Errorf("%d stuck calls: got %v, %q, want %q", stuck, ok, got, want)
		}
	}
	f(stuckMax-1, 200, "ok")
	f(stuckMax, 503, "100 calls did not return from a plugin, want less than 100")
	f(stuckMax+1, 503, "101 calls")
}
