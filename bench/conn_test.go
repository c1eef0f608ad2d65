package bench

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/testserver"
)

// The headers are those that a real kube-apiserver sends, byte for byte.
func TestHeadersOfKubeAPIServer(t *testing.T) {
	const want = "POST /c/allow?timeout=10s HTTP/1.1\r\n" +
		"Host: webhook.lab:18443\r\n" +
		"User-Agent: kube-apiserver-admission\r\n" +
		"Content-Length: 1147\r\n" +
		"Accept: application/json, */*\r\n" +
		"Content-Type: application/json\r\n" +
		"Accept-Encoding: gzip\r\n\r\n"
	f := func(target Target, timeout time.Duration, model Model, want string) {
		t.Helper()
		if err := target.complete(); err != nil {
			t.Fatal(err)
		}
		h := newHead(&target, timeout, model)
		got := string(h.appendTo(nil, 1147))
		if got != want || len(got) > h.bytesMax() {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
	target := Target{URL: "https://webhook.lab:18443/c/allow"}
	f(target, 10*time.Second, APIServer, want)
	f(target, 10*time.Second, KeepAlive, want)
	f(target, 10*time.Second, OneShot, strings.Replace(want, "gzip\r\n", "gzip\r\nConnection: close\r\n", 1))
	f(target, 2500*time.Millisecond, APIServer, strings.Replace(want, "10s", "3s", 1))
	f(target, time.Millisecond, APIServer, strings.Replace(want, "10s", "1s", 1))
	f(target, 30*time.Second, APIServer, strings.Replace(want, "10s", "30s", 1))
	f(Target{URL: "https://127.0.0.1//c//x/../allow/", Host: "webhook.lab:18443"}, 10*time.Second, APIServer, want)
	f(Target{URL: target.URL, Token: "abc"}, 10*time.Second, APIServer,
		strings.Replace(want, "Content-Type", "Authorization: Bearer abc\r\nContent-Type", 1))
	f(Target{URL: "https://webhook.lab:18443"}, 10*time.Second, APIServer, strings.Replace(want, "/c/allow", "/", 1))
}

func TestTargetErrors(t *testing.T) {
	for _, url := range []string{"", "localhost", "http://x/mutate", "https://", "https://x?a=b", "https://x#a", "https://me@x/",
		"https://%"} {
		target := Target{URL: url}
		if err := target.complete(); err == nil || !strings.Contains(err.Error(), "the URL of the webhook") {
			t.Errorf("%q: got %v", url, err)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	f := func(want string, change func(*Config)) {
		t.Helper()
		config := Config{Target: Target{URL: "https://x"}, Load: Load{Count: 1}, Mix: pod(t, "v1")}
		change(&config)
		if err := config.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f("got a rate of -1", func(c *Config) { c.Load.Rate = -1 })
	f("no duration and no count", func(c *Config) { c.Load.Count = 0 })
	f("got arrivals", func(c *Config) { c.Load.Arrivals = "x" })
	f("got bursts of 7", func(c *Config) { c.Load.Rate, c.Load.Burst, c.Load.InFlight = 1, 7, 6 })
	f("got -1 requests in flight", func(c *Config) { c.Load.InFlight = -1 })
	f("negative", func(c *Config) { c.Load.Duration = -1 })
	f("got connection model", func(c *Config) { c.Model = "x" })
	f("got a timeout of 31s", func(c *Config) { c.Timeout = 31 * time.Second })
	f("nothing to send", func(c *Config) { c.Mix = nil })
	f("expected decision: got", func(c *Config) { c.Expect = "x" })
	f("patch sample", func(c *Config) { c.PatchSample = -1 })
}

// A wire is a webhook that records connections and their TLS records.
type wire struct {
	target   Target
	mu       sync.Mutex
	records  [][]string // by connection: the content of each read
	resumed  bool
	protocol string
}

func newWire(t *testing.T) *wire {
	t.Helper()
	certified := httptest.NewUnstartedServer(nil)
	certified.StartTLS()
	config := certified.TLS.Clone()
	roots := certified.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	certified.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	w := &wire{target: Target{URL: "https://" + ln.Addr().String(), TLS: &tls.Config{
		RootCAs: roots, ClientSessionCache: tls.NewLRUClientSessionCache(10), // it must not be used
	}}}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go w.serve(tls.Server(conn, config))
		}
	}()
	return w
}

// serve answers requests whose headers and body arrive separately.
func (w *wire) serve(conn *tls.Conn) {
	defer conn.Close()
	if conn.Handshake() != nil {
		return
	}
	w.mu.Lock()
	at := len(w.records)
	w.records = append(w.records, nil)
	w.resumed = w.resumed || conn.ConnectionState().DidResume
	w.protocol = conn.ConnectionState().NegotiatedProtocol
	w.mu.Unlock()
	reader := bufio.NewReader(&recordReader{wire: w, conn: conn, at: at})
	for {
		request, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return
		}
		_, after, _ := strings.Cut(string(body), `"uid":"`)
		uid, _, _ := strings.Cut(after, `"`)
		answer := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,"allowed":true}}`, uid)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(answer), answer)
		if request.Close {
			return
		}
	}
}

// A recordReader notes the content of each read, which is at most a TLS record.
type recordReader struct {
	wire *wire
	conn *tls.Conn
	at   int
}

func (r *recordReader) Read(p []byte) (int, error) {
	n, err := r.conn.Read(p)
	if n > 0 {
		r.wire.mu.Lock()
		r.wire.records[r.at] = append(r.wire.records[r.at], string(p[:n]))
		r.wire.mu.Unlock()
	}
	return n, err
}

func (w *wire) run(t *testing.T, model Model) *Result {
	t.Helper()
	result := run(t, Config{Target: w.target, Load: Load{Count: 3}, Mix: pod(t, "v1"), Model: model})
	if result.Failed > 0 {
		t.Fatalf("got %+v", result.Faults)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resumed || w.protocol != "http/1.1" {
		t.Errorf("a session was resumed: %t; protocol %q", w.resumed, w.protocol)
	}
	return result
}

func TestAPIServerSendsHeadersInARecordOfTheirOwn(t *testing.T) {
	w := newWire(t)
	w.run(t, APIServer)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) != 1 || len(w.records[0]) < 6 {
		t.Fatalf("got %d connections", len(w.records))
	}
	first := w.records[0]
	if !strings.HasPrefix(first[0], "POST / HTTP/1.1") && !strings.HasPrefix(first[0], "POST /?timeout=10s HTTP/1.1\r\n") ||
		!strings.HasSuffix(first[0], "\r\n\r\n") || !strings.HasPrefix(first[1], `{"kind":"AdmissionReview"`) {
		t.Errorf("got the records %.200q and %.50q", first[0], first[1])
	}
}

func TestKeepAliveSendsOneRecord(t *testing.T) {
	w := newWire(t)
	w.run(t, KeepAlive)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.records) != 1 || !strings.Contains(w.records[0][0], "\r\n\r\n{") {
		t.Errorf("got %d connections, the first record %.300q", len(w.records), w.records[0][0])
	}
}

func TestOneShotOpensAConnectionForEachRequest(t *testing.T) {
	w := newWire(t)
	if result := w.run(t, OneShot); result.Opened != 3 || result.Closed != 3 || result.Handshakes.Count != 3 {
		t.Errorf("got %d connections opened, %d closed, %d handshakes, want 3 of each", result.Opened, result.Closed,
			result.Handshakes.Count)
	}
}

// In a burst of 60 requests, kube-apiserver opens a connection for each request that finds none
// idle, and then keeps 25.
func TestAPIServerKeeps25Connections(t *testing.T) {
	f := func(model Model, closed int64) {
		t.Helper()
		var inFlight atomic.Int64
		all, ended := make(chan struct{}), make(chan struct{})
		target := newWebhook(t, func(w http.ResponseWriter, r *review) {
			if inFlight.Add(1) == 60 {
				close(all)
			}
			select {
			case <-all:
			case <-ended: // a request failed, so that there are never 60
			}
			allow(w, r)
		})
		t.Cleanup(func() { close(ended) }) // before the webhook ends
		load := Load{Count: 60, Rate: 1e6, Burst: 60}
		result := run(t, Config{Target: target, Load: load, Timeout: timeoutMax, Mix: pod(t, "v1"), Model: model})
		if result.Failed > 0 || result.Opened != 59 || result.Closed != closed {
			t.Errorf("%s: got %d opened, %d closed, %d failed, want 59, %d and 0: %+v",
				model, result.Opened, result.Closed, result.Failed, closed, result.Faults)
		}
	}
	f(APIServer, 35)
	f(KeepAlive, 0)
}

// A connection that the server has closed while idle is not used.
func TestStaleConnections(t *testing.T) {
	w := newWire(t)
	if err := w.target.complete(); err != nil {
		t.Fatal(err)
	}
	p := newPool(&w.target, APIServer, func(time.Duration) {})
	defer p.close()
	deadline := time.Now().Add(5 * time.Minute)
	c, err := p.get(deadline)
	if err != nil {
		t.Fatal(err)
	}
	if stale(c.raw) {
		t.Error("a connection that is open is called stale")
	}
	c.Write([]byte("nonsense\r\n\r\n")) // the server closes the connection for that
	for !stale(c.raw) {
		if time.Now().After(deadline) {
			t.Fatal("a connection that the server closed is called open")
		}
		time.Sleep(time.Millisecond)
	}
	p.put(c)
	again, err := p.get(deadline)
	if err != nil || again == c || p.opened.Load() != 2 || p.closed.Load() != 1 {
		t.Errorf("got %v, the same: %t, %d opened, %d closed", err, again == c, p.opened.Load(), p.closed.Load())
	}
	p.drop(again)
}

// A request that waits for a new connection takes one that is given back first. The new connection
// is kept for others.
func TestConnectionGivenBack(t *testing.T) {
	w := newWire(t)
	if err := w.target.complete(); err != nil {
		t.Fatal(err)
	}
	p := newPool(&w.target, APIServer, func(time.Duration) {})
	defer p.close()
	c, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	waiting := &want{given: make(chan given, 1)}
	p.wanted = append(p.wanted, waiting)
	p.put(c)
	if g := <-waiting.given; g.conn != c {
		t.Errorf("got %+v, want the connection that was given back", g)
	}
	p.open(waiting) // the request has got a connection
	if len(p.idle) != 1 || len(p.wanted) != 0 {
		t.Errorf("got %d idle and %d wanted, want the new one idle", len(p.idle), len(p.wanted))
	}
	p.drop(c)
}

// kube-apiserver repeats a request if an overloaded server says when.
func TestRetryAfter(t *testing.T) {
	var calls atomic.Int64
	var uids sync.Map
	f := func(refusals int64, model Model, retries, failed int64) {
		t.Helper()
		calls.Store(0)
		uids.Clear()
		target := newWebhook(t, func(w http.ResponseWriter, r *review) {
			uids.Store(r.Request.UID, true)
			if calls.Add(1) <= refusals {
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			allow(w, r)
		})
		result := run(t, Config{Target: target, Load: Load{Count: 1}, Mix: pod(t, "v1"), Model: model})
		known := 0
		uids.Range(func(any, any) bool { known++; return true })
		if result.Retries != retries || result.Failed != failed || known != 1 {
			t.Errorf("%d refusals of %s: got %d retries, %d failed, %d uids: %+v", refusals, model, result.Retries, result.Failed, known,
				result.Faults)
		}
	}
	f(3, APIServer, 3, 0)
	f(retriesMax, APIServer, retriesMax, 0)
	f(retriesMax+1, APIServer, retriesMax, 1)
	f(1, KeepAlive, 0, 1)
}

func TestRunCannotConnect(t *testing.T) {
	f := func(target Target, want string) {
		t.Helper()
		_, err := Run(t.Context(), Config{Target: target, Load: Load{Count: 1}, Mix: pod(t, "v1")})
		if err == nil || !strings.Contains(err.Error(), "cannot connect to https://") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(Target{URL: "https://" + testserver.FreeAddress(t)}, "connection refused")
	stranger := newWebhook(t, allow)
	stranger.TLS = nil
	f(stranger, "certificate signed by unknown authority")
}
