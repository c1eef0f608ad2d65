package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// The limits of kube-apiserver's client (k8s.io/client-go/transport/cache.go and
// k8s.io/apimachinery/pkg/util/net/http.go).
const (
	idleMaxAPIServer = 25
	idleTimeout      = 90 * time.Second
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 10 * time.Second
)

// answerBytesMax bounds the answers. kube-apiserver has no bound; a patch that
// rewrites the largest object it takes, 3 MiB, is 4 MiB long in base64.
const answerBytesMax = 32 << 20

// readBufferBytes is the size of the read buffer of a connection.
const readBufferBytes = 8 << 10

// A conn is a connection to the webhook.
type conn struct {
	*tls.Conn
	raw       net.Conn
	reader    *bufio.Reader
	idleSince time.Time
}

// exchange sends a request and reads the answer. It sends the headers in a TLS record of their own,
// or everything in one write. The request is head followed by body, without a gap.
func (c *conn) exchange(request []byte, headBytes int, split bool, deadline time.Time, answer *fasthttp.Response) error {
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	if split {
		if _, err := c.Write(request[:headBytes]); err != nil {
			return err
		}
		request = request[headBytes:]
	}
	if _, err := c.Write(request); err != nil {
		return err
	}
	return answer.ReadLimitBody(c.reader, answerBytesMax)
}

// A pool hands out connections as net/http's Transport does: the idle connection that was used
// last, or a new one. While the new one is opened, the request takes a connection that another
// request gives back.
type pool struct {
	target  *Target
	idleMax int // kept when idle

	mu      sync.Mutex
	idle    []*conn // the last one used comes last
	wanted  []*want // the oldest first
	stopped bool

	opened, closed atomic.Int64
	handshakes     func(time.Duration)
}

// A want is a request without a connection.
type want struct {
	given chan given // has a buffer of one
}

type given struct {
	conn *conn
	err  error
}

func newPool(target *Target, model Model, handshakes func(time.Duration)) *pool {
	p := &pool{target: target, idleMax: idleMaxAPIServer, handshakes: handshakes}
	switch model {
	case KeepAlive:
		p.idleMax = int(^uint(0) >> 1)
	case OneShot:
		p.idleMax = 0
	}
	return p
}

// get returns a connection.
func (p *pool) get(deadline time.Time) (*conn, error) {
	now := time.Now()
	for {
		p.mu.Lock()
		last := len(p.idle) - 1
		if last < 0 {
			break
		}
		c := p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		if now.Sub(c.idleSince) < idleTimeout && !stale(c.raw) {
			return c, nil
		}
		p.drop(c)
	}
	w := &want{given: make(chan given, 1)}
	p.wanted = append(p.wanted, w)
	p.mu.Unlock()
	go p.open(w)
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case g := <-w.given:
		return g.conn, g.err
	case <-timer.C:
	}
	p.mu.Lock()
	p.forget(w)
	p.mu.Unlock()
	select {
	case g := <-w.given: // a connection came at the last moment
		if g.conn != nil {
			p.put(g.conn)
		}
	default:
	}
	return nil, context.DeadlineExceeded
}

// forget removes w from the list and reports whether it was there. Call it with the mutex held.
func (p *pool) forget(w *want) bool {
	for i, other := range p.wanted {
		if other == w {
			p.wanted = append(p.wanted[:i], p.wanted[i+1:]...)
			return true
		}
	}
	return false
}

// open opens a connection for w. If w has got another one meanwhile, the new one goes to the next
// request.
func (p *pool) open(w *want) {
	c, err := p.dial()
	p.mu.Lock()
	waits := p.forget(w)
	p.mu.Unlock()
	switch {
	case waits:
		w.given <- given{c, err}
	case c != nil:
		p.put(c)
	}
}

func (p *pool) dial() (*conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	raw, err := dialer.Dial("tcp", p.target.address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	start := time.Now()
	secured := tls.Client(raw, p.target.TLS)
	if err := secured.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	p.handshakes(time.Since(start))
	p.opened.Add(1)
	return &conn{Conn: secured, raw: raw, reader: bufio.NewReaderSize(secured, readBufferBytes)}, nil
}

// put takes back a connection that can be used again. It goes to the request that has waited
// longest, or to the idle ones unless there are too many.
func (p *pool) put(c *conn) {
	c.idleSince = time.Now()
	p.mu.Lock()
	switch {
	case p.stopped || p.idleMax == 0:
	case len(p.wanted) > 0:
		w := p.wanted[0]
		p.wanted = p.wanted[1:]
		p.mu.Unlock()
		w.given <- given{conn: c}
		return
	case len(p.idle) < p.idleMax:
		p.idle = append(p.idle, c)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.drop(c)
}

// drop closes a connection.
func (p *pool) drop(c *conn) {
	p.closed.Add(1)
	c.Close()
}

// close closes the idle connections. The others are closed when they are given back.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.stopped = nil, true
	p.mu.Unlock()
	for _, c := range idle {
		p.drop(c)
	}
}

// isTimeout reports whether a call failed because its deadline passed.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
