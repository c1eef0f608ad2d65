package server

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

const (
	// retainedDefault is how much memory known connections may keep for their next requests in all where
	// the process has no memory limit; otherwise it is memory.RetainedShare. A connection keeps
	// some 12 KB after a review of 8 KB.
	retainedDefault = 64 << 20

	// uncountedMax is how much a connection may hold of a request's header and body each, or
	// of an answer, that is not counted: several times what kube-apiserver's headers take.
	// All connections together hold 23 MiB of it in a container with 512 MiB.
	uncountedMax = 8 << 10

	// The memory that fasthttp retains of a header block and a path: five copies of most bytes,
	// and more than two slices for each line and argument. 16 KiB of short lines take 250 KB.
	retainedOfByte = 5
	retainedOfLine = 96
)

var lineEnd, argumentEnd = []byte("\n"), []byte("&")

// headerMemory returns the memory that fasthttp retains of a header block.
func headerMemory(header *fasthttp.RequestHeader) int64 {
	raw, uri := header.RawHeaders(), header.RequestURI()
	return int64(retainedOfByte*(len(raw)+len(uri)) + retainedOfLine*(bytes.Count(raw, lineEnd)+bytes.Count(uri, argumentEnd)))
}

// retain lets a known connection keep the buffers of its request and answer for the next ones, if
// there is room for them. A large header is never kept, and of a stranger's request, nothing is, so that
// strangers take no room.
func (s *Server) retain(ctx *fasthttp.RequestCtx, c *conn) {
	c.idle = ctx
	switch {
	case c.headerBytes > uncountedMax || isLast(ctx):
		dropRequest(ctx)
	case !c.known:
		ctx.Request.SwapBody(nil)
	}
	if c.known && !s.reserveRetained(c, retainedBody(ctx)+c.retainedAnswer) {
		ctx.Request.SwapBody(nil)
		s.reserveRetained(c, c.retainedAnswer) // which it has already
	}
}

// isLast reports whether the connection is closed after the answer.
func isLast(ctx *fasthttp.RequestCtx) bool {
	return ctx.Request.Header.ConnectionClose() || ctx.Response.ConnectionClose()
}

// retainedBody returns how much memory fasthttp keeps of a request's body. A large one is dropped.
func retainedBody(ctx *fasthttp.RequestCtx) int64 {
	if memory := int64(cap(ctx.Request.Body())); memory <= cheapBytes {
		return memory
	}
	return 0
}

// dropRequest lets go of a request that was answered. fasthttp would use its memory again for another
// connection, which may wait for long, and a client that does not read its answer would hold it.
func dropRequest(ctx *fasthttp.RequestCtx) {
	ctx.Response.SkipBody = ctx.IsHead() // fasthttp asks the request for both later
	if !ctx.Request.Header.IsHTTP11() {
		ctx.SetConnectionClose()
	}
	*ctx.Request.URI() = fasthttp.URI{}
	ctx.Request.Header = fasthttp.RequestHeader{}
	ctx.Request.SwapBody(nil)
}

// dropBuffers lets go of the buffers for bodies of requests and answers.
func dropBuffers(ctx *fasthttp.RequestCtx) {
	ctx.Request.SwapBody(nil)
	ctx.Response.ReleaseBody(0) // SwapBody would read the rest of a large answer
}

// reserveRetained sets the number of bytes that a connection retains. It returns false and changes
// nothing if all connections together would retain too much.
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

// releaseRetained sets the number of bytes that a connection retains to zero.
func (s *Server) releaseRetained(c *conn) { s.retained.Add(-c.retained.Swap(0)) }
