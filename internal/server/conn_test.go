package server

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
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// A patient server has the timeouts of the test; zero ones become an hour.
type patient struct {
	servertest.Client
	server      *Server
	webhooks    *fasthttp.Server
	connections *listener
}

func servePatiently(t *testing.T, of timeouts, own ...admission.Plugin) *patient {
	t.Helper()
	var certificate Certificate
	if err := certificate.Load(); err != nil {
		t.Fatal(err)
	}
	return servePatientlyWith(t, of, certificate.Get, own...)
}

// servePatientlyWith is servePatiently with a certificate that the test chooses.
func servePatientlyWith(t *testing.T, of timeouts, get func(*tls.ClientHelloInfo) (*tls.Certificate, error),
	own ...admission.Plugin) *patient {
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
	var callers Callers
	if err := callers.Load(); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &patient{Client: servertest.Client{Address: ln.Addr().String(), Log: new(servertest.Buffer)}}
	p.server = newTestServer(chain, &callers, NewLog(p.Log))
	p.server.timeouts = of
	p.webhooks, p.connections = p.server.http(), p.server.listen(ln, tlsConfig(get, false), limits{serving: 1000, perAddress: 1000})
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
func (p *patient) connected(t *testing.T) *servertest.Exchange {
	t.Helper()
	x := p.Open(t)
	servertest.Until(t, "the server knows the connection", func() (known bool) {
		p.connections.table.each(func(of peer) { known = known || of.(*conn).fresh.Load() })
		return known
	})
	return x
}

// TestUnusedConnectionEnds checks that an unused connection is closed properly, without an
// answer.
func TestUnusedConnectionEnds(t *testing.T) {
	p := servePatiently(t, timeouts{idle: 20 * time.Millisecond})
	x := p.Open(t)
	if rest, err := io.ReadAll(x.Conn); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v, want the end", rest, err)
	}
}

// TestTooSlow sends half a request.
func TestTooSlow(t *testing.T) {
	p := servePatiently(t, timeouts{read: 100 * time.Millisecond})
	x := p.Open(t)
	raw := servertest.Request("/validate", corpus.MustRead(servertest.PodCreate))
	response, body := x.Send(raw[:len(raw)/2])
	if response.StatusCode != http.StatusRequestTimeout || !bytes.Contains(body, []byte(`"reason":"Timeout"`)) || !response.Close {
		t.Errorf("got %s %s, want 408 and a closed connection", response.Status, body)
	}
	large := servertest.Request("/validate", servertest.Padded(100_000))
	response, body = p.Open(t).Send(large[:len(large)/2])
	servertest.Until(t, "no bytes are in flight", func() bool { return p.server.load.bytes.Load() == 0 })
	if response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("a large one: got %s %s, want 408", response.Status, body)
	}
}

// TestShutdownClosesUnused ends a server with connections without a request, after one, and
// without a handshake.
func TestShutdownClosesUnused(t *testing.T) {
	p := servePatiently(t, timeouts{fresh: 20 * time.Millisecond})
	x := p.connected(t)
	used := p.Open(t)
	used.Answers(false)
	servertest.DialTCP(t, p.Address)
	p.finish(t)
	for _, conn := range [...]net.Conn{x.Conn, used.Conn} {
		if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
			t.Errorf("got %q, %v, want the end", rest, err)
		}
	}
}

// TestShutdownAnswersFirstRequest sends the first request on a connection during the
// shutdown.
func TestShutdownAnswersFirstRequest(t *testing.T) {
	p := servePatiently(t, timeouts{})
	x := p.connected(t)
	p.connections.finish()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		p.finish(t)
	}()
	for { // until it no longer accepts connections
		conn, err := net.Dial("tcp", p.Address)
		if err != nil {
			break
		}
		conn.Close()
	}
	response, body := x.Send(servertest.Request("/validate", corpus.MustRead(servertest.PodCreate)))
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("got %s %s, close %v, want an answer that closes", response.Status, body, response.Close)
	}
	<-finished
}

// TestHandshakeErrors counts failed handshakes, except connections that end before one.
func TestHandshakeErrors(t *testing.T) {
	f := func(p *patient, what, log string, counted uint64, talk func(net.Conn)) {
		t.Helper()
		before := p.server.metrics.handshakeErrors.Get()
		conn := servertest.DialTCP(t, p.Address)
		talk(conn)
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, net.ErrClosed) && !isReset(err) {
			t.Errorf("%s: %v", what, err)
		}
		x := p.Open(t) // earlier connections have ended when this is answered
		x.Answers(false)
		if got := p.server.metrics.handshakeErrors.Get() - before; got != counted || !strings.Contains(p.Log.String(), log) {
			t.Errorf("%s: counted %d, want %d; log %q, want %q in it", what, got, counted, p.Log.String(), log)
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
