package app

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/handlers"
)

// A patient server is one with timeouts of the test's; those that are 0 are an
// hour.
type patient struct {
	running
	server      *server
	webhooks    *fasthttp.Server
	connections *listener
}

func servePatiently(t *testing.T, of timeouts, own ...admission.Plugin) *patient {
	t.Helper()
	var certificate certificate
	if err := certificate.load(); err != nil {
		t.Fatal(err)
	}
	return servePatientlyWith(t, of, certificate.get, own...)
}

// servePatientlyWith is servePatiently with a certificate of the test's.
func servePatientlyWith(t *testing.T, of timeouts, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), own ...admission.Plugin) *patient {
	t.Helper()
	for _, timeout := range [...]*time.Duration{&of.handshake, &of.idle, &of.read, &of.write, &of.fresh} {
		if *timeout == 0 {
			*timeout = time.Hour
		}
	}
	table := append(handlers.InTree(handlers.DefaultOptions()), own...)
	enabled := map[string]admission.Enabled{"AlwaysAdmit": {}}
	for _, plugin := range own {
		enabled[plugin.Name] = admission.Enabled{}
	}
	chain, err := admission.NewChain(table, enabled, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var callers callers
	if err := callers.load(); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &patient{running: running{address: ln.Addr().String(), log: new(lockedBuffer)}}
	p.server = newServer(chain, &callers, newLog(p.log))
	p.server.timeouts = of
	p.webhooks, p.connections = p.server.http(), p.server.listen(ln, tlsConfig(get, false), limits{serving: 1000, atOne: 1000})
	t.Cleanup(p.connections.watch())
	stopped := make(chan error, 1)
	go func() { stopped <- p.webhooks.Serve(p.connections) }()
	t.Cleanup(func() {
		p.connections.mu.Lock()
		p.server.timeouts.fresh = 0
		p.connections.mu.Unlock()
		p.finish(t)
		if err := <-stopped; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	return p
}

func (p *patient) finish(t *testing.T) {
	t.Helper()
	p.connections.finish()
	if err := p.server.finish(p.webhooks); err != nil {
		t.Errorf("the server did not end: %v", err)
	}
}

// connected dials and waits until the server has seen the connection.
func (p *patient) connected(t *testing.T) *exchange {
	t.Helper()
	x := p.open(t)
	until(t, "the server knows the connection", func() (known bool) {
		p.connections.table.each(func(of peer) { known = known || of.(*conn).fresh.Load() })
		return known
	})
	return x
}

// TestSpareConnection uses a connection for the first time after the time for
// reading a request is over.
func TestSpareConnection(t *testing.T) {
	const read = 50 * time.Millisecond
	p := servePatiently(t, timeouts{read: read})
	x := p.open(t)
	time.Sleep(3 * read)
	x.answers(false)
}

// TestSpareConnectionEnds shows that a connection which stays unused is closed
// in order, without an answer to what was never asked.
func TestSpareConnectionEnds(t *testing.T) {
	p := servePatiently(t, timeouts{idle: 20 * time.Millisecond})
	x := p.open(t)
	if rest, err := io.ReadAll(x.conn); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v, want the end", rest, err)
	}
}

// TestTooSlow sends half a request.
func TestTooSlow(t *testing.T) {
	p := servePatiently(t, timeouts{read: 100 * time.Millisecond})
	x := p.open(t)
	raw := request("/validate", corpus.MustRead(podCreate))
	response, body := x.send(raw[:len(raw)/2])
	if response.StatusCode != http.StatusRequestTimeout || !bytes.Contains(body, []byte(`"reason":"Timeout"`)) || !response.Close {
		t.Errorf("got %s %s, want 408 and a closed connection", response.Status, body)
	}
	large := request("/validate", padded(100_000))
	response, body = p.open(t).send(large[:len(large)/2])
	if bytes := p.server.load.bytes.Load(); response.StatusCode != http.StatusRequestTimeout || bytes != 0 {
		t.Errorf("a large one: got %s %s, %d bytes in flight, want 408 and none", response.Status, body, bytes)
	}
}

// TestShutdownClosesSpares ends a server that has a connection without a
// request, one that has had one, and one without a handshake.
func TestShutdownClosesSpares(t *testing.T) {
	p := servePatiently(t, timeouts{fresh: 20 * time.Millisecond})
	x := p.connected(t)
	used := p.open(t)
	used.answers(false)
	dialed(t, p.address)
	p.finish(t)
	for _, conn := range [...]net.Conn{x.conn, used.conn} {
		if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
			t.Errorf("got %q, %v, want the end", rest, err)
		}
	}
}

// TestShutdownAnswersFirstRequest sends the first request on a connection
// after the server was told to end.
func TestShutdownAnswersFirstRequest(t *testing.T) {
	p := servePatiently(t, timeouts{})
	x := p.connected(t)
	p.connections.finish()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		p.finish(t)
	}()
	for { // until it does not accept any more
		conn, err := net.Dial("tcp", p.address)
		if err != nil {
			break
		}
		conn.Close()
	}
	response, body := x.send(request("/validate", corpus.MustRead(podCreate)))
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("got %s %s, close %v, want an answer that closes", response.Status, body, response.Close)
	}
	<-finished
}

// TestHandshakeErrors counts handshakes that fail, and leaves out connections
// that end before one.
func TestHandshakeErrors(t *testing.T) {
	f := func(p *patient, what, log string, counted uint64, talk func(net.Conn)) {
		t.Helper()
		before := p.server.metrics.handshakeErrors.Get()
		conn := dialed(t, p.address)
		talk(conn)
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, net.ErrClosed) && !isReset(err) {
			t.Errorf("%s: %v", what, err)
		}
		x := p.open(t) // what was before it is over when this is answered
		x.answers(false)
		if got := p.server.metrics.handshakeErrors.Get() - before; got != counted || !strings.Contains(p.log.String(), log) {
			t.Errorf("%s: counted %d, want %d; log %q, want %q in it", what, got, counted, p.log.String(), log)
		}
	}
	f(servePatiently(t, timeouts{handshake: 2 * time.Second}), "silence", "i/o timeout", 1, func(net.Conn) {})
	p := servePatiently(t, timeouts{})
	f(p, "a probe", "", 0, func(conn net.Conn) { conn.(*net.TCPConn).CloseWrite() })
	f(p, "plain HTTP", "first record does not look like a TLS handshake", 1, func(conn net.Conn) {
		io.WriteString(conn, "POST /mutate HTTP/1.1\r\nHost: a\r\n\r\n")
	})
	f(p, "a certificate that is not trusted", "bad certificate", 1, func(conn net.Conn) {
		if err := tls.Client(conn, &tls.Config{ServerName: "localhost"}).Handshake(); err == nil {
			t.Error("the client trusts it")
		}
	})
	if got := p.server.metrics.refusals[0].Get(); got != 0 {
		t.Errorf("%d handshakes were counted as refused requests", got)
	}
}

func isReset(err error) bool { return strings.Contains(err.Error(), "connection reset") }
