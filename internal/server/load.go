package server

import (
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/internal/memory"
)

// load counts the calls that are being answered, and the memory of their headers and bodies. A call
// counts from the end of its header until its answer. Strangers do not count, because the server does not
// read their bodies. Refused requests do not count either, nor does a header or body of up to
// uncountedMax bytes.
type load struct {
	requests, bytes       atomic.Int64
	requestsMax, bytesMax int64
	grace                 time.Duration // how long a body may take to arrive while others wait
	pace                  float64       // the least bytes per second of a body while others wait; 0 for any

	mu          sync.Mutex
	first, last *conn // a list of the connections whose bodies are not complete, in the order in which they began
}

// arriving is the counted memory of a connection's request. load.mu guards all fields but bytes and came.
type arriving struct {
	bytes          atomic.Int64
	came           atomic.Int64 // how many bytes were read since begun
	begun          time.Time
	listed         bool
	previous, next *conn
}

const (
	// RequestsInFlightMax is how many requests may be in flight by default. A
	// processor answers some 50,000 a second, so these wait for 20 ms at most
	// where nothing is looked up in the cluster.
	RequestsInFlightMax = 1000

	// requestBytesDefault is how many bytes the headers and bodies in flight may take by default
	// where the process has no memory limit: as many as four of the largest bodies. One of 17 MB takes as
	// much as the largest, see bodyMemory. With a memory limit, they have memory.BodiesShare, and
	// room for one of the largest at least.
	requestBytesDefault = 4 * bodyBytesMax

	// requestBytesLeast has room for the largest body and its header block.
	requestBytesLeast = bodyBytesMax + 1<<20

	// cheapBytes is the size of bodies that are read although the request is refused.
	// Closing the connection would cost more: kube-apiserver would need a new handshake.
	cheapBytes = 64 << 10

	// arrivalGrace is how long a body may take to arrive while others wait. The largest
	// body takes a tenth of it from kube-apiserver, which has it in memory.
	arrivalGrace = time.Second

	// arrivalPace is how many bytes of a body must come in a second, after
	// arrivalPause, for it not to give way to others earlier: what TCP sends at
	// first over a distance of 100 ms, 14 KB and twice as much each time, is more.
	arrivalPace  = 128 << 10
	arrivalPause = 100 * time.Millisecond

	// shadowPart is the part of the calls in flight above which the shadow does nothing: one of so many, 100 by
	// default. They wait for each other then, and the shadow must not make them wait longer.
	shadowPart = 10

	// retryAfter is after how many seconds kube-apiserver tries again by itself,
	// up to ten times within its timeout (k8s.io/client-go rest/request.go).
	retryAfter = "1"
)

// requestBytes returns how many bytes the headers and bodies in flight may take by default.
func requestBytes() int64 {
	return max(memory.Share(memory.BodiesShare, requestBytesDefault), requestBytesLeast)
}

// begin counts a call, unless there are too many.
func (l *load) begin() bool {
	if l.requests.Add(1) <= l.requestsMax {
		return true
	}
	l.requests.Add(-1)
	return false
}

func (l *load) end() { l.requests.Add(-1) }

// isBusy reports whether a tenth of the calls that may be in flight are. Then the shadow does nothing.
func (l *load) isBusy() bool { return l.requests.Load() > l.requestsMax/shadowPart }

// reserve reserves memory for a body. If there is too little, it first drops bodies that take
// too long to arrive. Every reservation is released.
func (l *load) reserve(bytes int64) bool {
	for {
		now := l.bytes.Load()
		switch {
		case now+bytes <= l.bytesMax:
			if l.bytes.CompareAndSwap(now, now+bytes) {
				return true
			}
		case !l.dropSlowest():
			return false
		}
	}
}

// bodyMemory returns how much memory fasthttp makes for a body of so many bytes: a
// power of two (its roundUpForSliceCap).
func bodyMemory(bytes int) int64 { return 1 << bits.Len(uint(bytes-1)) }

func (l *load) release(bytes int64) { l.bytes.Add(-bytes) }

// dropSlowest drops the oldest body that arrives too slowly while others wait, and reports
// whether there was one. The connection's goroutine refuses the request.
func (l *load) dropSlowest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.first
	for c != nil && !l.isSlow(&c.body, now) {
		c = c.body.next
	}
	if c == nil {
		return false
	}
	l.unlist(c)
	if c.state.drop() {
		l.release(c.body.bytes.Swap(0))
		_ = c.SetReadDeadline(time.Unix(0, 1)) // fails if it is closed already
	}
	return true
}

func (l *load) isSlow(b *arriving, now time.Time) bool {
	passed := now.Sub(b.begun)
	return passed > l.grace || float64(b.came.Load()) < l.pace*(passed-arrivalPause).Seconds()
}

// expect reserves memory for a connection's request before its body is read.
func (l *load) expect(c *conn, bytes int64) bool {
	if bytes == 0 {
		return true
	}
	if !l.reserve(bytes) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.body.bytes.Store(bytes)
	c.body.came.Store(0)
	c.body.begun, c.body.listed = time.Now(), true
	if c.body.previous = l.last; l.last != nil {
		l.last.body.next = c
	} else {
		l.first = c
	}
	l.last = c
	return true
}

func (l *load) unlist(c *conn) {
	b := &c.body
	if b.previous != nil {
		b.previous.body.next = b.next
	} else {
		l.first = b.next
	}
	if b.next != nil {
		b.next.body.previous = b.previous
	} else {
		l.last = b.previous
	}
	b.listed, b.previous, b.next = false, nil, nil
}

// arrived is called when the body is complete.
func (l *load) arrived(c *conn) {
	if c.body.bytes.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.body.listed {
		l.unlist(c)
	}
}

// forget releases the memory of a body.
func (l *load) forget(c *conn) {
	if c.body.bytes.Load() == 0 {
		return
	}
	l.arrived(c)
	l.release(c.body.bytes.Swap(0))
}

// chunkedLength stands for the length of a body in chunks, which is not read.
const chunkedLength = math.MaxInt

// limitBody is called when the header of a request was read. If the request is going to be
// refused, it sets a limit so low that fasthttp does not read the body. Bodies in chunks are
// refused: kube-apiserver always sends Content-Length (k8s.io/client-go rest/request.go).
// Without it, the server could not reserve memory, and the bytes between chunks have no bound.
func (s *Server) limitBody(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
	refused := fasthttp.RequestConfig{MaxRequestBodySize: 1}
	ctx := contextOf(header)
	c := ctx.Conn().(*conn)
	takes := headerMemory(header)
	c.headerBytes, c.idle = takes, nil
	coming := header.ContentLength()
	switch {
	case coming == -1:
		header.SetContentLength(chunkedLength)
		return refused
	case coming <= 0 || coming > bodyBytesMax:
		return fasthttp.RequestConfig{}
	case !s.callers.knows(header),
		coming > cheapBytes && s.load.requests.Load() >= s.load.requestsMax,
		!s.load.expect(c, counted(takes, coming)):
		header.SetContentLength(max(coming, refused.MaxRequestBodySize+1)) // otherwise fasthttp would wait for a body of one byte
		return refused
	}
	if coming > cheapBytes {
		c.bodyBuffer.use(&ctx.Request, coming)
	}
	return fasthttp.RequestConfig{}
}

// counted returns the memory that counts for a request whose header takes so many bytes of memory, and
// whose body has so many bytes.
func counted(header int64, body int) int64 {
	if header <= uncountedMax {
		header = 0
	}
	if body <= uncountedMax {
		return header
	}
	return header + bodyMemory(body)
}

// overloaded refuses a request because of the load.
func (s *Server) overloaded(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, retryAfter)
	s.refuse(ctx, fasthttp.StatusTooManyRequests, "TooManyRequests",
		fmt.Sprintf("got %d requests and %d bytes of them in flight, of at most %d and %d",
			s.load.requests.Load(), s.load.bytes.Load(), s.load.requestsMax, s.load.bytesMax))
}
