package server

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// waiting returns a plugin that waits until goOn is closed.
func waiting(started, goOn chan struct{}) admission.Plugin {
	wait := func(context.Context, *codec.Review) admission.Result {
		started <- struct{}{}
		<-goOn
		return admission.Allowed()
	}
	return admission.Plugin{
		Name: "Waits", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) { return admission.Handler{Validate: wait}, nil },
	}
}

// fill starts this many requests, each on its own connection, that wait in the plugin.
func (s *running) fill(t *testing.T, many int, started chan struct{}) (busy []*servertest.Exchange) {
	t.Helper()
	for range many {
		x := s.Open(t)
		if _, err := x.Conn.Write(servertest.Request("/validate/waits", corpus.MustRead(servertest.PodCreate))); err != nil {
			t.Fatal(err)
		}
		<-started
		busy = append(busy, x)
	}
	return busy
}

// TestOverload has the maximum number of requests in flight, and one more.
func TestOverload(t *testing.T) {
	const most = 3
	started, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, "Waits,AlwaysPullImages", []admission.Plugin{waiting(started, goOn)}, func(s *setup) { s.RequestsMax = 3 })
	busy := s.fill(t, most, started)
	x := s.Open(t)
	for _, sent := range []string{string(corpus.MustRead(servertest.PodCreate)),
		"no review"} { // on the same connection, and not decoded
		response, body := x.Send(servertest.Request("/mutate", []byte(sent)))
		if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "1" || response.Close ||
			!strings.Contains(string(body), `"reason":"TooManyRequests"`) || !strings.Contains(string(body), "got 3 requests") {
			t.Errorf("one too many: got %s %v %s", response.Status, response.Header, body)
		}
	}
	// A large body is not read.
	large := s.Open(t)
	response, body := large.Send([]byte("POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: " +
		"application/json\r\nContent-Length: 1000000\r\n\r\n"))
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "1" || !response.Close {
		t.Errorf("a large one too many: got %s %v %s", response.Status, response.Header, body)
	}
	metrics := s.Get(t, "/metrics", 200)
	for _, line := range []string{`fastadmit_refused_requests_total{code="429"} 3`, "fastadmit_requests_in_flight 3"} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %q in %s", line, metrics)
		}
	}
	close(goOn)
	for _, x := range busy {
		if response, _ := x.Receive(); response.StatusCode != http.StatusOK {
			t.Errorf("one of those in flight: got %s", response.Status)
		}
	}
	x.Answers(false)
	servertest.Until(t, "nothing is in flight", func() bool {
		metrics := s.Get(t, "/metrics", 200)
		return strings.Contains(metrics, "fastadmit_requests_in_flight 0\n") &&
			strings.Contains(metrics, "fastadmit_request_bytes_in_flight 0\n")
	})
}

// TestOverloadBytes has less capacity than a body needs.
func TestOverloadBytes(t *testing.T) {
	const most = 1 << 18
	s := serve(t, "AlwaysPullImages", nil, func(s *setup) { s.RequestBytesMax = 262144 })
	f := func(size, code int) {
		t.Helper()
		if response, _ := s.Open(t).Send(servertest.Request("/mutate", servertest.Padded(size))); response.StatusCode != code {
			t.Errorf("%d bytes: got %s, want %d", size, response.Status, code)
		}
	}
	f(most-1, http.StatusOK)
	f(most, http.StatusOK)
	f(most+1, http.StatusTooManyRequests) // needs twice as much
	less := serve(t, "AlwaysPullImages", nil, func(s *setup) { s.RequestBytesMax = 262143 })
	if response, _ := less.Open(t).Send(servertest.Request("/mutate",
		servertest.Padded(most*3/4))); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("with a byte less than it takes: got %s", response.Status)
	}
	if response, _ := s.Open(t).Send(oversized(bodyBytesMax + 1)); response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("more than a body may have: got %s", response.Status)
	}
	s.Open(t).Answers(false)
}

// TestBodyMemory compares the accounted memory of arriving bodies with what fasthttp
// allocates.
func TestBodyMemory(t *testing.T) {
	p := servePatiently(t, timeouts{})
	for _, size := range []int{cheapBytes + 1, 1 << 20, 1<<20 + 1, 4<<20 - 1,
		17_000_000} { // ascending, so that no body reuses the memory of another one
		x := p.Open(t)
		header := fmt.Sprintf("POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := x.Conn.Write([]byte(header)); err != nil {
			t.Fatal(err)
		}
		var counted, made int64
		takes := bodyMemory(size)
		servertest.Until(t, "its memory is made and counts", func() bool {
			runtime.ReadMemStats(&after)
			counted, made = p.server.load.bytes.Load(), int64(after.TotalAlloc-before.TotalAlloc)
			return counted > 0 && made >= takes
		})
		if counted != takes || made > takes+1<<20 {
			t.Errorf("%d bytes: counted %d, of %d that were made, want %d", size, counted, made, takes)
		}
		x.Conn.Close()
		servertest.Until(t, "nothing counts", func() bool { return p.server.load.bytes.Load() == 0 })
	}
}

// TestArriving sends half of a body: this much is accounted, and nothing of the body before
// it on the same connection.
func TestArriving(t *testing.T) {
	p := servePatiently(t, timeouts{})
	x, raw := p.Open(t), servertest.Request("/validate", servertest.Padded(100_000))
	if response, body := x.Send(raw); response.StatusCode != http.StatusOK {
		t.Fatalf("got %s %s", response.Status, body)
	}
	half := int64(len(raw) / 2)
	if _, err := x.Conn.Write(raw[:half]); err != nil {
		t.Fatal(err)
	}
	var came int64
	servertest.Until(t, "half of the body came", func() bool {
		l := &p.server.load
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.first != nil {
			came = l.first.body.came.Load()
		}
		return came >= half-headerBytesMax // some came with the header
	})
	if came > half {
		t.Errorf("got %d bytes, of %d that were sent", came, half)
	}
}

// TestLoadBounds checks the limits of a server with the default configuration.
func TestLoadBounds(t *testing.T) {
	l := &newIdleServer(new(servertest.Buffer)).load
	if l.requestsMax != 1000 || l.bytesMax != 128<<20 || l.grace != time.Second || l.pace != 128<<10 {
		t.Errorf("got %d requests, %d bytes, %s and %v bytes a second", l.requestsMax, l.bytesMax, l.grace, l.pace)
	}
}

// TestSlowSendersGiveWay fills the server with bodies that do not arrive. One that takes too
// long is dropped for a new one, and its caller is told to try again.
func TestSlowSendersGiveWay(t *testing.T) {
	p := servePatiently(t, timeouts{})
	p.server.load.bytesMax, p.server.load.pace = 3<<17, 0
	stall := func() *servertest.Exchange {
		t.Helper()
		before := p.server.load.bytes.Load()
		x := p.Open(t)
		if _, err := x.Conn.Write(servertest.Request("/validate", servertest.Padded(100_000))[:50_000]); err != nil {
			t.Fatal(err)
		}
		servertest.Until(t, "its bytes count", func() bool { return p.server.load.bytes.Load() > before })
		return x
	}
	p.server.load.grace = time.Hour
	stalled := []*servertest.Exchange{stall(), stall(), stall()}
	ask := func(code int) {
		t.Helper()
		x := p.Open(t)
		if response, body := x.Send(servertest.Request("/validate", servertest.Padded(100_000))); response.StatusCode != code {
			t.Errorf("got %s %s, want %d", response.Status, body, code)
		}
	}
	ask(http.StatusTooManyRequests)
	p.Open(t).Send(servertest.Request("/validate",
		corpus.MustRead(servertest.PodCreate))) // a body that fits into a read buffer needs no capacity
	p.server.load.mu.Lock()
	p.server.load.grace = 0
	p.server.load.mu.Unlock()
	ask(http.StatusOK)
	response, body := stalled[0].Receive()
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "1" || !response.Close {
		t.Errorf("the first one that stalled: got %s %v %s", response.Status, response.Header, body)
	}
	rest := servertest.Request("/validate", servertest.Padded(100_000))[50_000:]
	for _, x := range stalled[1:] {
		if response, body := x.Send(rest); response.StatusCode != http.StatusOK {
			t.Errorf("another one: got %s %s", response.Status, body)
		}
	}
	if n, bytes := p.server.load.requests.Load(), p.server.load.bytes.Load(); n != 0 || bytes != 0 || p.server.load.first != nil {
		t.Errorf("got %d requests and %d bytes in flight", n, bytes)
	}
}

// TestEvictedSender closes a connection in the middle of a body, as an eviction does: the
// body is no longer accounted.
func TestEvictedSender(t *testing.T) {
	p := servePatiently(t, timeouts{})
	if _, err := p.Open(t).Conn.Write(servertest.Request("/validate", servertest.Padded(100_000))[:50_000]); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "its bytes count", func() bool { return p.server.load.bytes.Load() > 0 })
	p.connections.table.each(func(of peer) { of.giveUp() })
	servertest.Until(t, "nothing counts", func() bool {
		l := &p.server.load
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.bytes.Load() == 0 && l.first == nil
	})
}

// TestPace checks how many bytes of a body must arrive in which time for it not to be slow.
func TestPace(t *testing.T) {
	l := &load{grace: time.Second, pace: 1000}
	now := time.Now()
	f := func(came int64, after time.Duration, want bool) {
		t.Helper()
		b := arriving{begun: now.Add(-after)}
		b.came.Store(came)
		if got := l.isSlow(&b, now); got != want {
			t.Errorf("%d bytes in %s: got %v, want %v", came, after, got, want)
		}
	}
	f(0, 0, false)
	f(0, arrivalPause, false)
	f(99, arrivalPause+100*time.Millisecond, true)
	f(100, arrivalPause+100*time.Millisecond, false)
	f(1_000_000, time.Second, false)
	f(1_000_000, time.Second+1, true)
}

// TestPartOfARequest has more connections send a part of a request than requests may be in
// flight: none of them is in flight.
func TestPartOfARequest(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil, func(s *setup) { s.RequestsMax = 3 })
	for range 10 {
		if _, err := s.Open(t).Conn.Write([]byte("P")); err != nil {
			t.Fatal(err)
		}
	}
	s.Open(t).Answers(false)
	if metrics := s.Get(t, "/metrics", 200); !strings.Contains(metrics, "fastadmit_requests_in_flight 0\n") {
		t.Errorf("got %s", metrics)
	}
}

// TestStrangersTakeNothing has strangers send all kinds of requests: a caller with a token
// is not refused.
func TestStrangersTakeNothing(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	servertest.WriteFile(t, tokens, "secret,kube-apiserver,1\n")
	s := serve(t, "AlwaysPullImages", nil, func(s *setup) { s.RequestsMax = 1; s.RequestBytesMax = 131072; s.Callers.TokenFile = tokens })
	for range 5 {
		if _, err := s.Open(t).Conn.Write(servertest.Request("/validate", servertest.Padded(90_000))[:20_000]); err != nil {
			t.Fatal(err)
		}
		const chunked = "POST /validate HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;"
		if _, err := s.Open(t).Conn.Write([]byte(chunked)); err != nil {
			t.Fatal(err)
		}
	}
	response, body := s.Open(t).Send(servertest.Request("/validate", servertest.Padded(90_000), "Authorization: Bearer secret",
		"Content-Type: application/json"))
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s %s", response.Status, body)
	}
}

// TestChunks sends bodies in chunks, one of them with an endless extension, which is not
// read.
func TestChunks(t *testing.T) {
	s := serve(t, "AlwaysPullImages", nil)
	const head = "POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
	for _, rest := range []string{"\r\n0\r\n\r\n", "\r\n1;" + strings.Repeat("x", 1_000_000), "Expect: 100-continue\r\n\r\n"} {
		x := s.Open(t)
		if _, err := x.Conn.Write([]byte(head + rest)); err != nil {
			t.Fatal(err)
		}
		response, body := x.Receive()
		if response.StatusCode == http.StatusContinue {
			response, body = x.Receive()
		}
		if response.StatusCode != http.StatusLengthRequired ||
			!strings.Contains(string(body), "want a body with Content-Length") || !response.Close {
			t.Errorf("got %s %s, close %v", response.Status, body, response.Close)
		}
	}
	response, _ := s.Open(t).Send([]byte("POST /validate HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775806\r\n\r\n"))
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a body of the longest length that can be written: got %s", response.Status)
	}
}

// TestDrain checks that the server answers during the delay, and closes the connection with
// each answer.
func TestDrain(t *testing.T) {
	t.Parallel() // takes as long as the delay, in which a busy machine has to answer twice
	s := serve(t, "AlwaysPullImages", nil, func(s *setup) { s.ShutdownDelay = 5 * time.Second })
	x := s.Open(t)
	x.Answers(false)
	s.stop()
	servertest.Until(t, "the server drains", func() bool {
		code, _ := s.Readyz(t)
		return code == http.StatusServiceUnavailable
	})
	for _, x := range []*servertest.Exchange{x, s.Open(t)} {
		response, _ := x.Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate)))
		if response.StatusCode != http.StatusOK || !response.Close {
			t.Errorf("got %s, close %v", response.Status, response.Close)
		}
		x.Answers(true)
	}
}
