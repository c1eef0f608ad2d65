package server

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/semaphore"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// reviewMemoryMax is the maximum memory of a review in addition to its body:
	// codec.MemoryMax, half of it while it grows, and the patch and the answer, or values
	// that a plugin makes. The largest measured review took 150 MB.
	reviewMemoryMax = 160 << 20

	// smallShare says which part of the memory for reviews (memory.ReviewsShare) is for small ones
	// alone: one of so many, 11 MiB of the 90 in a container with 512 MiB. An update of a Pod of 16
	// KB reserves 0.7 MB.
	smallShare = 8

	// reviewMemoryDefault is the memory for reviews if the process has no memory limit.
	reviewMemoryDefault = 1 << 30

	// The memory of a large review for each byte, object and element of its body. Braces and
	// commas in strings count, too. The name of a missing ServiceAccount is copied eight times
	// for the message. A container of two bytes that two plugins change takes 900 bytes. An
	// element that is looked up by its index takes a node, and half of one while nodes grow.
	memoryOfByte    = 8
	memoryOfObject  = 1 << 10
	memoryOfElement = 96

	// fewValuesMax is how many bytes of the memory for small reviews the values of expressions may
	// take: a tenth of it in a container with 512 MiB. Most evaluations make values of less than
	// 64 KiB and need no memory of the reviews.
	fewValuesMax = 1 << 20

	// A small review reserves no memory if the length of its body, times the number of reviews
	// in flight, is at most unreservedBytesMax. A review takes at most 381 times the length of
	// its body, for a list of "{}". The nth review in flight has a body of at most
	// unreservedBytesMax divided by n, so a thousand of them take up to 47 MB.
	unreservedBytesMax = 16 << 10
)

// reviewMemory bounds what reviews take in all beside their bodies. Large ones, of more
// than cheapBytes, have it reserved before they begin. Those for which there is no
// room wait, the first one first: they are rare, and what one of them takes is free
// again within a second. A small one has it reserved when it takes more than most
// do, see codec.MemoryGranter, and does not wait: it may hold what others wait for.
//
// A part of the memory is for small reviews alone, so that large ones cannot take
// it from them. Small ones also take of the rest, but not while a large one waits:
// it would wait forever. One that needs more than the part is refused then. No caller takes
// that part from the others, see memoryPart.tryFor.
type reviewMemory struct {
	large, small memoryPart
	makeRoom     func() // is called while a review waits
}

// A memoryPart is memory that reviews share.
type memoryPart struct {
	max      int64
	room     *semaphore.Weighted
	reserved atomic.Int64

	mu      sync.Mutex
	callers map[caller]*callerMemory // those that have memory by tryFor
}

// A caller is a user in a namespace. Answers to HTTP requests have none: they are the caller with two empty
// names.
type caller struct{ user, namespace string }

// clone returns a copy that is no view of a review.
func (c caller) clone() caller { return caller{strings.Clone(c.user), strings.Clone(c.namespace)} }

// callerMemory is what a caller has of a memoryPart, guarded by its mutex.
type callerMemory struct {
	caller caller
	bytes  int64
}

func newReviewMemory(most int64) *reviewMemory {
	m := &reviewMemory{makeRoom: func() {}}
	m.small.max = most / smallShare
	m.large.max = most - m.small.max
	m.small.room, m.large.room = semaphore.NewWeighted(m.small.max), semaphore.NewWeighted(m.large.max)
	return m
}

// String says how much is reserved.
func (m *reviewMemory) String() string {
	return fmt.Sprintf("other reviews have reserved %d of %d bytes, of which %d are only for small reviews",
		m.reserved(), m.large.max+m.small.max, m.small.max)
}

// reserved returns how much memory is reserved in all.
func (m *reviewMemory) reserved() int64 { return m.large.reserved.Load() + m.small.reserved.Load() }

// A reservation is memory that a review may take, 0 bytes for most small ones.
type reservation struct {
	part  *memoryPart
	bytes int64
	of    *callerMemory // nil if it was not reserved by tryFor
}

// reserve waits until there is room for what the review in body may take, for
// half of the time that ctx has: whoever is refused then can try again in the
// other half. The reservation is to be released if ok.
func (m *reviewMemory) reserve(ctx context.Context, body []byte) (r reservation, ok bool) {
	if len(body) <= cheapBytes {
		return r, true
	}
	return m.await(ctx, m.needs(body))
}

// await reserves n bytes. If there is no room now, it waits for half of the time that ctx has.
func (m *reviewMemory) await(ctx context.Context, n int64) (r reservation, ok bool) {
	if r, ok = m.large.try(n); ok {
		return r, true
	}
	most := TimeoutMax
	if deadline, ok := ctx.Deadline(); ok {
		most = time.Until(deadline)
	}
	ctx, cancel := context.WithTimeout(ctx, most/2)
	defer cancel()
	go m.keepMakingRoom(ctx)
	if m.large.room.Acquire(ctx, n) != nil {
		return reservation{}, false
	}
	return m.large.reserve(n), true
}

// keepMakingRoom makes room again and again until ctx ends.
func (m *reviewMemory) keepMakingRoom(ctx context.Context) {
	ticker := time.NewTicker(unreadPause)
	defer ticker.Stop()
	for {
		m.makeRoom()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// try reserves what the small review in body may take, if there is room now.
func (m *reviewMemory) try(of caller, body []byte) (r reservation, ok bool) {
	n := m.needs(body)
	if r, ok = m.small.tryFor(of, n); ok {
		return r, true
	}
	return m.large.try(n)
}

// try reserves n bytes, if there is room now and nobody waits for it.
func (p *memoryPart) try(n int64) (r reservation, ok bool) {
	if !p.room.TryAcquire(n) {
		return reservation{}, false
	}
	return p.reserve(n), true
}

// reserve counts n bytes that were acquired.
func (p *memoryPart) reserve(n int64) reservation {
	p.reserved.Add(n)
	return reservation{part: p, bytes: n}
}

// tryFor reserves n bytes for a caller, if there is room now. A caller may have as much as is left for others
// then: one caller has half of the part at most, two have a third each, and so on (dynamic thresholds, Choudhury
// and Hahne 1998). So nobody's reviews leave others without memory, however many and however long they are.
func (p *memoryPart) tryFor(of caller, n int64) (r reservation, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.callers[of]
	var has int64
	if c != nil {
		has = c.bytes
	}
	if has+n > p.max-p.reserved.Load()-n {
		return reservation{}, false
	}
	if r, ok = p.try(n); !ok {
		return r, false
	}
	if c == nil {
		c = &callerMemory{caller: of.clone()}
		if p.callers == nil {
			p.callers = make(map[caller]*callerMemory)
		}
		p.callers[c.caller] = c
	}
	c.bytes += n
	r.of = c
	return r, true
}

// returned counts n bytes less for a caller.
func (p *memoryPart) returned(c *callerMemory, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.bytes -= n; c.bytes == 0 {
		delete(p.callers, c.caller)
	}
}

// reserve reserves memory for a large review, waiting for it.
func (s *Server) reserve(b *callContext) (ok bool) {
	b.memory, ok = s.memory.reserve(b, b.body)
	return ok
}

// GrantMemory implements codec.MemoryGranter.
func (b *callContext) GrantMemory() (ok bool) {
	s := b.server
	if b.memory.bytes > 0 || s.load.requests.Load()*int64(len(b.body)) <= unreservedBytesMax {
		return true
	}
	of := b.caller()
	if b.memory.bytes > 0 { // reading the caller's name took memory
		return true
	}
	return s.memory.orMakeRoom(func() bool {
		b.memory, ok = s.memory.try(of, b.body)
		return ok
	})
}

// caller returns who sent what b reviews. Its names are views of the review. While the name is read, which may take
// memory, the caller has none.
func (b *callContext) caller() (c caller) {
	if b.review == nil || b.isNaming {
		return c
	}
	b.isNaming = true
	c.user, c.namespace = b.review.Username(), b.review.Namespace()
	b.isNaming = false
	return c
}

// orMakeRoom calls try, which reserves memory. If it fails, it makes room and calls it again.
func (m *reviewMemory) orMakeRoom(try func() bool) (ok bool) {
	if try() {
		return true
	}
	m.makeRoom()
	return try()
}

// A lender implements codec.MemoryLender for a review. It waits only if the review has no memory
// that others wait for. Lend may be called after the review, as a loan may outlive it.
type lender struct {
	memory *reviewMemory
	call   *callContext // of the review, for Keep
	caller caller       // no view of the review
	waits  bool
}

func newLender(b *callContext) *lender {
	return &lender{b.server.memory, b, b.caller().clone(), b.memory.part != &b.server.memory.large}
}

// Lend implements codec.MemoryLender. One loan has as much as one review has at most.
func (l *lender) Lend(ctx context.Context, n int64, wait bool) (giveBack func(), ok bool) {
	n = min(n, l.memory.large.max)
	r, ok := l.try(n)
	if !ok && wait && l.waits {
		r, ok = l.memory.await(ctx, n)
	}
	return r.release, ok
}

// try reserves n bytes, if there is room now: as much as a small review takes, of what is for
// those.
func (l *lender) try(n int64) (r reservation, ok bool) {
	if n <= memoryOfByte*cheapBytes {
		if r, ok = l.memory.small.tryFor(l.caller, n); ok {
			return r, true
		}
	}
	return l.memory.large.try(n)
}

// Keep implements codec.MemoryLender.
func (l *lender) Keep(n int64) (ok bool) {
	return l.memory.orMakeRoom(func() bool {
		r, ok := l.try(min(n, l.memory.large.max))
		if ok {
			l.call.kept = append(l.call.kept, r)
		}
		return ok
	})
}

// GrantValues implements codec.MemoryGranter. What is reserved for values stays reserved until
// the call ends. As GrantMemory, it does not wait. Few values may also take of the memory for
// small reviews, so that those who make many do not take it from them.
func (b *callContext) GrantValues(bytes int) bool {
	m := b.server.memory
	more := min(int64(bytes), m.large.max) - b.values.bytes - b.fewValues.bytes
	return more <= 0 || m.orMakeRoom(func() bool {
		return b.values.add(m.large.try(more)) || bytes <= fewValuesMax && b.fewValues.add(m.small.tryFor(b.caller(), more))
	})
}

// add adds a reservation of the same part, and of the same caller, if ok.
func (r *reservation) add(more reservation, ok bool) bool {
	if ok {
		*r = reservation{more.part, r.bytes + more.bytes, more.of}
	}
	return ok
}

// needs returns how much memory a review may take.
func (m *reviewMemory) needs(body []byte) int64 {
	return min(memoryOf(body), reviewMemoryMax, m.large.max)
}

// memoryOf returns how much memory a review may take according to its body.
func memoryOf(body []byte) int64 {
	return int64(memoryOfByte*len(body) + memoryOfObject*bytes.Count(body, []byte("{")) + memoryOfElement*bytes.Count(body, []byte(",")))
}

// split takes up to so many bytes out of r, for who releases them later.
func (r *reservation) split(bytes int64) reservation {
	part := reservation{r.part, min(bytes, r.bytes), r.of}
	r.bytes -= part.bytes
	return part
}

func (r *reservation) release() {
	if r.bytes == 0 {
		return
	}
	if r.of != nil {
		r.part.returned(r.of, r.bytes)
	}
	r.part.reserved.Add(-r.bytes)
	r.part.room.Release(r.bytes)
	r.bytes = 0
}

// refuseNoMemory refuses a review that there is no memory for just now.
func (s *Server) refuseNoMemory(ctx *fasthttp.RequestCtx, body []byte) {
	s.metrics.noMemory.Inc()
	ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, retryAfter)
	s.refuse(ctx, fasthttp.StatusTooManyRequests, "TooManyRequests",
		fmt.Sprintf("no memory for a review that may need %d bytes to be read, and more for what expressions and other servers return: %s", s.memory.needs(body), s.memory))
}

// extend makes r a reservation of so many bytes, if there is room now.
func (m *reviewMemory) extend(r *reservation, bytes int64) (ok bool) {
	more := bytes - r.bytes
	if more <= 0 {
		return true
	}
	switch {
	case r.bytes == 0:
		return r.add(m.small.tryFor(caller{}, more)) || r.add(m.large.try(more))
	case r.of != nil:
		return r.add(r.part.tryFor(r.of.caller, more))
	default:
		return r.add(r.part.try(more))
	}
}

// A largeAnswer is the body of an answer whose memory is released when it has been written, or cannot
// be written.
type largeAnswer struct {
	bytes.Reader
	reservation
}

// Close implements io.Closer, for fasthttp.
func (a *largeAnswer) Close() error {
	a.release()
	return nil
}

// answer encodes the response of the review into the buffer of the HTTP response. fasthttp writes it
// after answer returns, so it must not be in pooled memory. send counts the memory of an answer
// that the connection may not retain.
func (s *Server) answer(ctx *fasthttp.RequestCtx, c *conn, review *codec.Review, r *reservation) (ok bool) {
	buffer := ctx.Response.SwapBody(nil)
	buffer = review.AppendResponse(buffer[:0])
	ctx.Response.Header.SetContentTypeBytes(contentTypeJSON)
	if takes := int64(cap(buffer)); len(buffer) <= cheapBytes && !isLast(ctx) && s.reserveRetained(c, retainedBody(ctx)+takes) {
		s.metrics.responseBytes.Add(len(buffer))
		ctx.Response.SwapBody(buffer)
		c.retainedAnswer = takes
		return true
	}
	c.retainedAnswer = 0
	return s.send(ctx, buffer, r)
}

// send answers with a body that counts as memory for reviews until it was written. It uses the
// reservation r, and reserves more if needed. If there is not enough memory, it refuses the request.
func (s *Server) send(ctx *fasthttp.RequestCtx, body []byte, r *reservation) (ok bool) {
	takes := int64(cap(body))
	held := r.split(takes)
	if takes > uncountedMax && !s.memory.extend(&held, takes) {
		s.dropUnread()
		if !s.memory.extend(&held, takes) {
			held.release()
			s.metrics.noMemory.Inc()
			ctx.Response.Header.Set(fasthttp.HeaderRetryAfter, retryAfter)
			s.refuse(ctx, fasthttp.StatusTooManyRequests, "TooManyRequests", fmt.Sprintf("no memory for an answer of %d bytes: %s", takes, s.memory))
			return false
		}
	}
	s.metrics.responseBytes.Add(len(body))
	setBody(ctx, body, held)
	return true
}

// setBody sets a body that the connection does not retain.
func setBody(ctx *fasthttp.RequestCtx, body []byte, held reservation) {
	if held.bytes == 0 {
		ctx.Response.SetBodyRaw(body)
		return
	}
	answer := &largeAnswer{reservation: held}
	answer.Reset(body)
	ctx.Response.SetBodyStream(answer, len(body))
}
