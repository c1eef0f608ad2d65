package server

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

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/socket"
)

// timeouts bound how long a connection may do nothing.
type timeouts struct {
	// handshake bounds the TLS handshake.
	handshake time.Duration
	// idle is how long a connection may be unused, before its first request and
	// after each.
	idle time.Duration
	// read bounds the time from a request's first byte to its last.
	read time.Duration
	// write bounds the time to write an answer, from when it is ready: no call
	// outlives it.
	write time.Duration
	// stuck is how long after its deadline a call is answered without its plugins.
	stuck time.Duration
	// watch is the most time from one look for stuck calls to the next.
	watch time.Duration
	// fresh is how long after it was accepted a connection is left alone at
	// shutdown.
	fresh time.Duration
	// maxAge is how long a connection is used, less up to a tenth of it; 0 for
	// as long as it lasts.
	maxAge time.Duration
}

var defaultTimeouts = timeouts{
	handshake: handshakeMax, idle: idleMax, read: TimeoutMax, write: TimeoutMax, stuck: stuckGrace, watch: watchMax, fresh: freshMax, maxAge: ConnectionAgeMax,
}

const (
	// handshakeMax is the time for a TLS handshake. kube-apiserver gives up after 10 s
	// (k8s.io/apimachinery pkg/util/net SetTransportDefaults).
	handshakeMax = 10 * time.Second

	// idleMax is how long a connection may be idle, also before its first request.
	// kube-apiserver closes its own idle connections after 90 s, and does not retry
	// a call on a connection that the server has closed.
	idleMax = 120 * time.Second

	// freshMax is how long a new connection is kept at shutdown, because its first
	// request may be on its way. net/http has the same.
	freshMax = 5 * time.Second

	// ConnectionAgeMax is how long a connection is used by default, less up to a
	// tenth of it. Without a limit, kube-apiserver would stay with one replica. A
	// handshake costs as much as a hundred answers.
	ConnectionAgeMax = 10 * time.Minute

	// lingerMax bounds how long, and lingerBytesMax how much, a connection is
	// read from after a refusal so that the client gets to see the answer.
	lingerMax      = 2 * time.Second
	lingerBytesMax = bodyBytesMax
)

// A listener accepts connections, wraps them in TLS and looks after those that
// have not carried a request yet. fasthttp takes these for requests that are
// being sent: it would answer them with 408 after the time for reading a
// request, and wait for them at shutdown. kube-apiserver opens more connections
// than it needs and keeps them for later calls.
type listener struct {
	acceptor
	server     *Server
	config     *tls.Config
	table      *connTable
	handshakes handshakeSlots

	mu        sync.Mutex // orders the read deadlines of fresh connections
	finishing bool
}

// listen returns a listener that has at most so many connections open.
func (s *Server) listen(ln net.Listener, config *tls.Config, limits limits) *listener {
	table := newConnTable(s.metrics.webhooks, limits.serving, limits.perAddress)
	s.connections.Store(table)
	return &listener{
		acceptor: acceptor{ln, s.metrics.webhooks, s.log, table.makeRoom},
		server:   s, config: config, table: table, handshakes: newHandshakeSlots(),
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.acceptor.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{listener: l, accepted: time.Now(), transport: newHandshakeConn(socket.Fast(raw), l.handshakes)}
		c.Conn = tls.Server(&c.transport, l.config)
		c.fresh.Store(true)
		c.member = member{peer: c, address: addressOf(raw.RemoteAddr())}
		if age := l.server.timeouts.maxAge; age > 0 {
			c.maxAge = age - time.Duration(rand.Int64N(int64(age)/10+1)) // or all of a burst would end together
		}
		if l.table.add(&c.member) {
			return c, nil
		}
		_ = raw.Close() // it was refused
	}
}

// finish closes connections that have carried no request, now and later, as soon as they are
// not fresh any more.
func (l *listener) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishing = true
	l.table.each(func(p peer) {
		if c := p.(*conn); c.fresh.Load() {
			_ = c.SetReadDeadline(c.accepted.Add(l.server.timeouts.fresh)) // fails if it is closed already
		}
	})
}

// await sets how long a connection without a request may wait.
func (l *listener) await(c *conn, timeout time.Duration) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	deadline := time.Now().Add(timeout)
	if last := c.accepted.Add(l.server.timeouts.fresh); l.finishing && deadline.After(last) {
		deadline = last
	}
	return c.SetReadDeadline(deadline)
}

// used is called when the first byte of a request was read.
func (l *listener) used(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.fresh.Store(false)
}

// A conn is a connection of a listener's. The goroutine that serves it calls
// its methods; at shutdown, while that one waits for the next request, fasthttp
// closes it from another.
type conn struct {
	*tls.Conn
	listener  *listener
	accepted  time.Time
	maxAge    time.Duration // 0 for no limit
	fresh     atomic.Bool   // no byte of a request was read
	known     bool          // the client has shown a certificate or got a review answered
	linger    bool
	stranger  *codec.Status // why the client may not call; nil if it may
	member    member        // of the listener's table
	transport handshakeConn // what is under TLS

	state connState // idle, or in a call
	call  call      // which one; not changed while it is
	body  arriving  // the counted memory of the request

	answering answering

	bodyBuffer bodyBuffer // memory for the next large body

	// What is kept for the next request, in bytes: counted of what all keep, and, of
	// it, for the answer.
	retained       atomic.Int64
	retainedAnswer int64
	headerBytes    int64                // that the header of the request takes
	idle           *fasthttp.RequestCtx // has buffers for the next request; nil before the first and while one comes
}

// isOld reports whether the connection is so old that the next answer should close it, so
// that kube-apiserver chooses a replica anew.
func (c *conn) isOld(now time.Time) bool { return c.maxAge > 0 && now.Sub(c.accepted) > c.maxAge }

// admit keeps the connection's place in the table from strangers.
func (c *conn) admit() {
	if !c.known {
		c.known = true
		c.listener.table.admit(&c.member)
	}
}

// giveUp implements peer.
func (c *conn) giveUp() bool {
	if !c.state.take() {
		return false
	}
	_ = c.transport.Close() // not the TLS connection, for that one may wait for the other end
	c.transport.cancel()
	return true
}

// hasUnread implements peer.
func (c *conn) hasUnread() bool { return c.transport.working.Load() || socket.Waits(c.transport.Conn) }

// lastUsed implements peer.
func (c *conn) lastUsed() int64 { return c.state.lastUsed() }

// Handshake makes the TLS handshake. fasthttp calls it first.
func (c *conn) Handshake() error {
	server := c.listener.server
	if err := c.listener.await(c, server.timeouts.handshake); err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(server.timeouts.handshake)); err != nil {
		return err
	}
	c.transport.begin()
	defer c.transport.end()   // the client's certificate is verified before
	err := c.Conn.Handshake() // writes after it have deadlines of their own
	if err == nil {
		state := c.ConnectionState()
		if c.stranger = server.callers.check(&state); c.stranger == nil && server.callers.provenBy(&state) {
			c.admit()
		}
	}
	if err != nil && !errors.Is(err, io.EOF) && !c.state.isTaken() { // as probes of the port end, and as we end it
		server.metrics.handshakeErrors.Inc()
		server.strangersLog.Warn("TLS handshake failed", "remote", c.RemoteAddr().String(), "error", err.Error())
	}
	return err
}

// Read implements net.Conn. Until the first byte of a request, a connection
// that cannot be read from has come to its end, whatever the reason: there is
// nothing to answer.
func (c *conn) Read(b []byte) (int, error) {
	c.transport.deliver()
	c.answering.end()
	if c.fresh.Load() {
		return c.readFirst(b)
	}
	n, err := c.Conn.Read(b)
	c.body.came.Add(int64(n))
	if err != nil {
		c.dropBuffers()
	}
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
	c.listener.used(c)
	if c.stranger != nil {
		c.refuse()
		return 0, io.EOF
	}
	if err == nil {
		err = c.SetReadDeadline(time.Now().Add(server.timeouts.read))
	}
	return n, err
}

// refuse answers a stranger's request, of which nothing more is read.
func (c *conn) refuse() {
	c.listener.server.metrics.refused(int(c.stranger.Code))
	_, err := c.Write(appendRefusal(nil, c.stranger))
	c.linger = err == nil
}

// appendRefusal appends an HTTP response that has the status and closes the
// connection, for where fasthttp cannot write it.
func appendRefusal(b []byte, status *codec.Status) []byte {
	body := status.AppendDocument(nil)
	return fmt.Appendf(b, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		status.Code, http.StatusText(int(status.Code)), len(body), body)
}

// Write implements net.Conn. It gives each answer, of one or many writes, the whole write timeout. fasthttp
// would do that for answers, but not for refusals.
func (c *conn) Write(b []byte) (int, error) {
	if c.state.isTaken() {
		return 0, net.ErrClosed
	}
	if err := c.SetWriteDeadline(c.answering.begin(time.Now()).Add(c.listener.server.timeouts.write)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		c.dropBuffers()
	}
	return n, err
}

// dropBuffers lets go of the buffers for the next request, because there will be none.
func (c *conn) dropBuffers() {
	if c.idle != nil {
		dropBuffers(c.idle)
		c.idle = nil
	}
}

// Close implements net.Conn. After a refusal it reads what the client is still
// sending first: closing at once would make the kernel reset the connection,
// and the client would not see the answer.
func (c *conn) Close() error {
	c.listener.server.load.forget(c)
	c.listener.server.releaseRetained(c)
	if c.linger {
		c.linger = false
		c.discard()
	}
	err := c.Conn.Close()
	c.listener.table.remove(&c.member)
	return err
}

func (c *conn) discard() {
	if c.CloseWrite() != nil || c.SetReadDeadline(time.Now().Add(lingerMax)) != nil {
		return
	}
	buffer := make([]byte, headerBytesMax)
	for left := lingerBytesMax; left > 0; {
		c.transport.deliver()
		n, err := c.Conn.Read(buffer)
		if err != nil {
			return
		}
		left -= n
	}
}
