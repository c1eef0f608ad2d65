package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fastadmit/fastadmit/codec"
)

// timeouts bound how long a connection may do nothing.
type timeouts struct {
	// handshake bounds the TLS handshake. kube-apiserver gives up after 10 s
	// (k8s.io/apimachinery pkg/util/net SetTransportDefaults).
	handshake time.Duration
	// idle is how long a connection may be unused, before its first request and
	// after each. kube-apiserver drops it after 90 s and does not retry a call
	// that meets a closed connection, so the server must be the more patient
	// one.
	idle time.Duration
	// read bounds the time from a request's first byte to its last.
	read time.Duration
	// fresh is how long after it was accepted a connection is left alone at
	// shutdown, for its first request may be on the way. net/http has the same.
	fresh time.Duration
	// maxAge is how long a connection is used, less up to a tenth of it; 0 for
	// as long as it lasts. kube-apiserver would use one for ever, however many
	// replicas there came to be.
	maxAge time.Duration
}

var defaultTimeouts = timeouts{handshake: 10 * time.Second, idle: 120 * time.Second, read: budgetMax, fresh: 5 * time.Second, maxAge: connectionAgeMax}

const (
	// connectionAgeMax is maxAge by default. A handshake costs what a hundred
	// answers cost.
	connectionAgeMax = 10 * time.Minute

	// lingerMax bounds how long, and lingerBytesMax how much, a connection is
	// read from after a refusal so that the client gets to see the answer.
	lingerMax      = 2 * time.Second
	lingerBytesMax = bodyBytesMax
)

// A listener wraps accepted connections in TLS and looks after those that have
// not carried a request yet. fasthttp takes these for requests that are being
// sent: it would answer them with 408 after the time for reading a request,
// and wait for them at shutdown. kube-apiserver opens more connections than it
// needs and keeps them as spares.
type listener struct {
	net.Listener
	server *server
	config *tls.Config

	mu        sync.Mutex
	fresh     map[*conn]struct{} // no byte of a request was read from them
	finishing bool
}

func (s *server) listen(ln net.Listener, config *tls.Config) *listener {
	return &listener{Listener: ln, server: s, config: config, fresh: make(map[*conn]struct{})}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: tls.Server(raw, l.config), listener: l, accepted: time.Now()}
	if age := l.server.timeouts.maxAge; age > 0 {
		c.maxAge = age - time.Duration(rand.Int64N(int64(age)/10+1)) // or all of a burst would end together
	}
	l.mu.Lock()
	l.fresh[c] = struct{}{}
	l.mu.Unlock()
	return c, nil
}

// finish closes the connections without a request, now and later, as soon as
// they are not fresh any more.
func (l *listener) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishing = true
	for c := range l.fresh {
		_ = c.SetReadDeadline(c.accepted.Add(l.server.timeouts.fresh)) // fails if it is closed already
	}
}

// await gives a connection without a request so much time to go on.
func (l *listener) await(c *conn, timeout time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := time.Now().Add(timeout)
	if last := c.accepted.Add(l.server.timeouts.fresh); l.finishing && deadline.After(last) {
		deadline = last
	}
	return c.SetReadDeadline(deadline)
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	delete(l.fresh, c)
	l.mu.Unlock()
}

// A conn is a connection of a listener's. The goroutine that serves it calls
// its methods; at shutdown, while that one waits for the next request, fasthttp
// closes it from another.
type conn struct {
	*tls.Conn
	listener *listener
	accepted time.Time
	maxAge   time.Duration // 0 for any
	used     bool          // a byte of a request was read
	linger   bool
	stranger *codec.Status // why whoever is at the other end may not call

	inFlight atomic.Int64 // bytes that were read of a request that has no answer yet
}

// isOld reports whether the connection has been there for so long that the next
// answer should close it, so that kube-apiserver chooses a replica anew.
func (c *conn) isOld(now time.Time) bool { return c.maxAge > 0 && now.Sub(c.accepted) > c.maxAge }

// Handshake makes the TLS handshake. fasthttp calls it first.
func (c *conn) Handshake() error {
	if err := c.listener.await(c, c.listener.server.timeouts.handshake); err != nil {
		return err
	}
	err := c.Conn.Handshake()
	if err == nil {
		state := c.ConnectionState()
		c.stranger = c.listener.server.callers.check(&state)
	}
	if err != nil && !errors.Is(err, io.EOF) { // as probes of the port end
		c.listener.server.metrics.handshakeErrors.Inc()
		c.listener.server.log.Warn("TLS handshake failed", "remote", c.RemoteAddr().String(), "error", err.Error())
	}
	return err
}

// Read implements net.Conn. Until the first byte of a request, a connection
// that cannot be read from has come to its end, whatever the reason: there is
// nothing to answer.
func (c *conn) Read(b []byte) (int, error) {
	if !c.used {
		return c.readFirst(b)
	}
	n, err := c.Conn.Read(b)
	c.begin(n)
	return n, err
}

func (c *conn) readFirst(b []byte) (int, error) {
	server := c.listener.server
	if err := c.listener.await(c, server.timeouts.idle); err != nil {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if n == 0 {
		return 0, io.EOF
	}
	c.used = true
	c.listener.forget(c)
	if c.stranger != nil {
		c.refuse()
		return 0, io.EOF
	}
	c.begin(n)
	if err == nil {
		err = c.SetReadDeadline(time.Now().Add(server.timeouts.read))
	}
	return n, err
}

// refuse answers a stranger's request, of which nothing more is read.
func (c *conn) refuse() {
	c.listener.server.metrics.refused(int(c.stranger.Code))
	body := c.stranger.AppendDocument(nil)
	_, err := fmt.Fprintf(c.Conn, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		c.stranger.Code, http.StatusText(int(c.stranger.Code)), len(body), body)
	c.linger = err == nil
}

// begin counts what was read of a request, and end forgets it when there is an
// answer, or never will be.
func (c *conn) begin(bytes int) {
	load := &c.listener.server.load
	if bytes > 0 && c.inFlight.Add(int64(bytes)) == int64(bytes) {
		load.requests.Add(1)
	}
	load.bytes.Add(int64(bytes))
}

func (c *conn) end() {
	load := &c.listener.server.load
	if bytes := c.inFlight.Swap(0); bytes > 0 {
		load.requests.Add(-1)
		load.bytes.Add(-bytes)
	}
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	c.end()
	return c.Conn.Write(b)
}

// Close implements net.Conn. After a refusal it reads what the client is still
// sending first: closing at once would make the kernel reset the connection,
// and the client would not see the answer.
func (c *conn) Close() error {
	c.listener.forget(c)
	c.end()
	if c.linger {
		c.linger = false
		c.discard()
	}
	return c.Conn.Close()
}

func (c *conn) discard() {
	if c.CloseWrite() != nil || c.SetReadDeadline(time.Now().Add(lingerMax)) != nil {
		return
	}
	buffer := make([]byte, headerBytesMax)
	for left := lingerBytesMax; left > 0; {
		n, err := c.Conn.Read(buffer)
		if err != nil {
			return
		}
		left -= n
	}
}
