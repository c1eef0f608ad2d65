package server

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// piped returns both ends of a connection without a network, after its handshake.
func piped(t *testing.T, server *Server) (*conn, *tls.Conn) {
	t.Helper()
	var certificate Certificate
	if err := certificate.Load(); err != nil {
		t.Fatal(err)
	}
	own, other := net.Pipe()
	c := &conn{
		Conn:     tls.Server(own, tlsConfig(certificate.Get, false)),
		listener: &listener{server: server, table: newConnTable(server.metrics.webhooks, 1, 1)},
	}
	client, shaken := tls.Client(other, servertest.TLS), make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	if err := errors.Join(c.Conn.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	return c, client
}

// TestWriteEnds writes to a client that reads nothing: the server waits only for the time to
// write an answer.
func TestWriteEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := piped(t, newIdleServer(new(servertest.Buffer)))
		defer client.Close()
		start := time.Now()
		_, err := c.Write([]byte("answer"))
		if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took != defaultTimeouts.write {
			t.Errorf("got %v after %s, want that the time is over after %s", err, took, defaultTimeouts.write)
		}
	})
}

// TestKnownByCertificate has connections before their first request. If only certificates
// are required, those with a valid one are known callers.
func TestKnownByCertificate(t *testing.T) {
	authority := servertest.NewAuthority(t)
	ca, tokens := servertest.TempFile(t, "ca.pem", servertest.CertPEM(authority.Cert)), servertest.TempFile(t, "tokens.csv",
		"secret,kube-apiserver,1\n")
	certificate := authority.Sign("kube-apiserver", x509.ExtKeyUsageClientAuth, time.Hour)
	f := func(name string, callers *Callers, want bool, shown ...tls.Certificate) {
		t.Helper()
		if err := callers.Load(); err != nil {
			t.Fatal(err)
		}
		s := newTestServer(new(admission.Chain), callers, NewLog(new(servertest.Buffer)))
		own, other := net.Pipe()
		config := servertest.TLS.Clone()
		config.Certificates = shown
		go func() { _ = tls.Client(other, config).Handshake() }() // the server's side reports the result
		l := &listener{server: s, table: newConnTable(s.metrics.webhooks, 1, 1)}
		serve := tlsConfig(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }, callers.CAFile != "")
		c := &conn{Conn: tls.Server(own, serve), listener: l}
		c.member.peer = c
		l.table.add(&c.member)
		if err := c.Handshake(); err != nil || c.known != want || (l.table.callers.size == 1) != want {
			t.Errorf("%s: got %v, known %v, %d known in the table, want %v", name, err, c.known, l.table.callers.size, want)
		}
		_ = own.Close()
	}
	f("a certificate", &Callers{CAFile: ca}, true, certificate)
	f("none", &Callers{CAFile: ca}, false)
	f("one of somebody else", &Callers{CAFile: ca}, false,
		servertest.NewAuthority(t).Sign("kube-apiserver", x509.ExtKeyUsageClientAuth, time.Hour))
	f("a token is asked for as well", &Callers{CAFile: ca, TokenFile: tokens}, false, certificate)
	f("nothing is asked for", new(Callers), false, certificate)
}

// TestLateStranger refuses a stranger long after its handshake, when the time to write is
// over.
func TestLateStranger(t *testing.T) {
	c, client := piped(t, newIdleServer(new(servertest.Buffer)))
	c.stranger = &codec.Status{Code: http.StatusForbidden, Reason: "Forbidden", Message: "not you"}
	if err := errors.Join(c.SetWriteDeadline(time.Unix(0, 1)), client.SetDeadline(time.Now().Add(5*time.Minute))); err != nil {
		t.Fatal(err)
	}
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		c.refuse()
	}()
	x := servertest.Over(t, client)
	if response, body := x.Receive(); response.StatusCode != http.StatusForbidden || !bytes.Contains(body, []byte("not you")) {
		t.Errorf("got %s %s", response.Status, body)
	}
	if <-refused; !c.linger {
		t.Error("the connection is closed at once, so that the answer may be lost")
	}
}

// TestLinger has refused clients that send nothing more, or continue to send: each
// connection ends when the client had time to read the refusal, or has sent the maximum.
func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(sends int, most int, want time.Duration) {
			t.Helper()
			c, client := piped(t, newIdleServer(new(servertest.Buffer)))
			c.linger = true
			sent, read := make(chan int, 1), make(chan struct{})
			go func() {
				defer close(read)
				_, _ = io.Copy(io.Discard, client) // until the server closes its side
			}()
			go func() {
				n, chunk := 0, make([]byte, 16<<10)
				for range sends {
					more, err := client.Write(chunk)
					if n += more; err != nil {
						break
					}
				}
				sent <- n
			}()
			start := time.Now()
			_ = c.Close()
			took := time.Since(start)
			if n := <-sent; took != want || n > most {
				t.Errorf("the client sent %d bytes, at most %d are to be read; it took %s, want %s", n, most, took, want)
			}
			<-read
			_ = client.Close()
		}
		f(0, 0, lingerMax)
		f(2*lingerBytesMax/(16<<10), lingerBytesMax+1<<20, 0)
	})
}

// served serves a connection without a network; x is its client.
func served(t *testing.T) (c *conn, x *servertest.Exchange, ended chan struct{}) {
	t.Helper()
	s := newIdleServer(new(servertest.Buffer))
	if err := s.callers.Load(); err != nil {
		t.Fatal(err)
	}
	c, client := piped(t, s)
	c.fresh.Store(true)
	c.accepted = time.Now()
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.http().ServeConn(c)
	}()
	return c, servertest.Over(t, client), ended
}

// TestUnusedConnection uses a connection for the first time after the time to read a request
// is over.
func TestUnusedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, x, ended := served(t)
		time.Sleep(2 * defaultTimeouts.read)
		x.Answers(false)
		_ = x.Conn.Close()
		<-ended
	})
}

// TestConnectionAge checks that an old connection ends with an answer.
func TestConnectionAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, x, ended := served(t)
		c.maxAge = time.Minute
		x.Answers(false)
		time.Sleep(c.maxAge)
		x.Answers(false)
		time.Sleep(time.Nanosecond)
		response, body := x.Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate)))
		if response.StatusCode != http.StatusOK || !response.Close {
			t.Errorf("got %s %s, close %v, want an answer that closes", response.Status, body, response.Close)
		}
		x.Answers(true)
		<-ended
	})
}

// TestConnectionAges checks the maximum age of connections: that of the options, less up to
// a tenth.
func TestConnectionAges(t *testing.T) {
	const most = time.Hour
	s, err := New(&Options{Log: NewLog(new(servertest.Buffer)), Metrics: metrics.NewSet(), Callers: new(Callers), ConnectionAgeMax: most})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	port := s.listen(&failing{Listener: ln}, new(tls.Config), limits{serving: 100, perAddress: 100})
	ages := make(map[time.Duration]bool)
	for range 20 {
		c, err := port.Accept()
		if err != nil {
			t.Fatal(err)
		}
		age := c.(*conn).maxAge
		if ages[age] = true; age < most*9/10 || age > most {
			t.Errorf("got %s, want at most %s, less a tenth", age, most)
		}
	}
	if len(ages) < 2 {
		t.Error("all connections have the same age")
	}
}

// TestIdleEnds has an idle connection before its first request, and one after it.
func TestIdleEnds(t *testing.T) {
	for requests := range 2 {
		synctest.Test(t, func(t *testing.T) {
			_, x, ended := served(t)
			start := time.Now()
			for range requests {
				x.Answers(false)
			}
			rest, err := io.ReadAll(x.Reader)
			if took := time.Since(start); err != nil || len(rest) > 0 || took != defaultTimeouts.idle {
				t.Errorf("after %d requests: got %q, %v in %s, want the end in %s", requests, rest, err, took, defaultTimeouts.idle)
			}
			<-ended
		})
	}
}

// TestDeafClient starts a handshake and reads nothing: the connection ends at its timeout.
func TestDeafClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newIdleServer(new(servertest.Buffer))
		var certificate Certificate
		if err := certificate.Load(); err != nil {
			t.Fatal(err)
		}
		own, other := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = tls.Client(&deafConn{other}, servertest.TLS.Clone()).Handshake() // until the server closes it
		}()
		c, start := &conn{Conn: tls.Server(own, tlsConfig(certificate.Get, false)), listener: &listener{server: s}}, time.Now()
		if err := c.Handshake(); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != defaultTimeouts.handshake {
			t.Errorf("got %v in %s, want that the time is over in %s", err, time.Since(start), defaultTimeouts.handshake)
		}
		_ = other.Close()
		<-ended
	})
}

// TestDeafAbandoned answers a call whose plugin does not return, to a client that reads
// nothing: the server waits only for the time to write.
func TestDeafAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newIdleServer(new(servertest.Buffer))
		c, client := piped(t, s)
		c.call.endpoint = &endpoint{name: "validate", metrics: s.metrics.endpoint("validate", admission.Validate)}
		start := time.Now()
		s.abandon(c, "it is stuck")
		if took := time.Since(start); took > 2*abandonedWriteMax { // a second time for the end of TLS
			t.Errorf("took %s, want at most %s", took, 2*abandonedWriteMax)
		}
		_ = client.Close()
	})
}
