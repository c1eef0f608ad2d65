package server

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

const (
	// retainedShare is the part of the memory that Go may take which known connections may
	// keep for their next requests in all, beside connectionBytes: 29 MiB in a container
	// with 512 MiB. A connection keeps some 12 KB after a review of 8 KB.
	retainedShare = 16

	// retainedDefault is the same where the process has no memory limit.
	retainedDefault = 64 << 20

	// uncountedMax is how much a connection may hold of a request's header and body each, or
	// of an answer, that is not counted: several times what kube-apiserver's headers take.
	// All connections together hold 44 MiB of it in a container with 512 MiB.
	uncountedMax = 8 << 10

	// What fasthttp keeps of a header block and a path: five copies of most bytes, and
	// two slices and more for each line and argument. 16 KiB of short lines take 250 KB.
	retainedOfByte = 5
	retainedOfLine = 96
)

// retainedMemory returns how much connections may keep in all.
func retainedMemory() int64 {
	limit, limited := goMemory()
	if !limited {
		return retainedDefault
	}
	return limit / retainedShare
}

var lineEnd, argumentEnd = []byte("\n"), []byte("&")

// headerMemory returns how much memory fasthttp keeps of a header block.
func headerMemory(header *fasthttp.RequestHeader) int64 {
	raw, uri := header.RawHeaders(), header.RequestURI()
	return int64(retainedOfByte*(len(raw)+len(uri)) + retainedOfLine*(bytes.Count(raw, lineEnd)+bytes.Count(uri, argumentEnd)))
}

// retain lets a connection keep what fasthttp keeps of its request and answer for the next
// ones, if there is room for it. Otherwise the answer closes the connection. Of a
// stranger's request, nothing but a small header is kept, so that strangers take no room.
func (s *Server) retain(ctx *fasthttp.RequestCtx, c *conn) {
	keeps := c.retainedHeader <= uncountedMax
	if c.known {
		keeps = s.reserveRetained(c, c.retainedHeader+retainedBody(ctx)+c.retainedAnswer)
	} else {
		ctx.Request.SwapBody(nil)
	}
	if !keeps {
		c.listener.table.metrics.closedMemory.Inc()
		s.discard(ctx, c)
	}
}

// retainedBody returns how much memory fasthttp keeps of a request's body. A large one is dropped.
func retainedBody(ctx *fasthttp.RequestCtx) int64 {
	if memory := int64(cap(ctx.Request.Body())); memory <= cheapBytes {
		return memory
	}
	return 0
}

// discard lets go of a request that was answered and makes the answer close the connection. A
// client that does not read its answer holds nothing else.
func (s *Server) discard(ctx *fasthttp.RequestCtx, c *conn) {
	ctx.SetConnectionClose()
	ctx.Response.SkipBody = ctx.IsHead()
	*ctx.Request.URI() = fasthttp.URI{}
	ctx.Request.Header = fasthttp.RequestHeader{}
	ctx.Request.SwapBody(nil)
	s.releaseRetained(c)
}

// reserveRetained counts so many bytes that a connection keeps, in place of those before, unless
// that is more than all may.
func (s *Server) reserveRetained(c *conn, bytes int64) bool {
	more := bytes - c.retained.Load()
	if more == 0 {
		return true
	}
	if s.retained.Add(more) > s.retainedMax && more > 0 {
		s.retained.Add(-more)
		return false
	}
	c.retained.Add(more)
	return true
}

// releaseRetained says that a connection keeps nothing any more.
func (s *Server) releaseRetained(c *conn) { s.retained.Add(-c.retained.Swap(0)) }
