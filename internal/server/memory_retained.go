package server

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

const (
	// retainedShare is the part of Go's memory limit that all known connections together may
	// retain for their next requests, in addition to connectionBytes: 29 MiB in a container with
	// 512 MiB. After a review of 8 KB, a connection retains some 12 KB.
	retainedShare = 16

	// retainedDefault is the same limit for a process without a memory limit.
	retainedDefault = 64 << 20

	// uncountedMax is the size up to which the header of a request, its body and an answer do not
	// count: several times the size of kube-apiserver's headers. In a container with 512 MiB, all
	// connections together hold at most 44 MiB that does not count.
	uncountedMax = 8 << 10

	// The memory that fasthttp retains of a header block and a path: five copies of most bytes,
	// and more than two slices for each line and argument. 16 KiB of short lines take 250 KB.
	retainedOfByte = 5
	retainedOfLine = 96
)

// retainedMemory returns how much memory all connections together may retain.
func retainedMemory() int64 {
	limit, limited := goMemory()
	if !limited {
		return retainedDefault
	}
	return limit / retainedShare
}

var lineEnd, argumentEnd = []byte("\n"), []byte("&")

// headerMemory returns the memory that fasthttp retains of a header block.
func headerMemory(header *fasthttp.RequestHeader) int64 {
	raw, uri := header.RawHeaders(), header.RequestURI()
	return int64(retainedOfByte*(len(raw)+len(uri)) + retainedOfLine*(bytes.Count(raw, lineEnd)+bytes.Count(uri, argumentEnd)))
}

// retain lets a connection retain the memory of its request and answer for the next ones, if the
// common limit allows it. Otherwise the answer closes the connection. Strangers take no part of the
// limit: their connections retain only a small header.
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

// retainedBody returns the memory that fasthttp retains of a request's body. A large body is dropped.
func retainedBody(ctx *fasthttp.RequestCtx) int64 {
	if memory := int64(cap(ctx.Request.Body())); memory <= cheapBytes {
		return memory
	}
	return 0
}

// discard drops the memory of an answered request and makes the answer close the connection. If the
// client does not read the answer, only the answer stays in memory.
func (s *Server) discard(ctx *fasthttp.RequestCtx, c *conn) {
	ctx.SetConnectionClose()
	ctx.Response.SkipBody = ctx.IsHead()
	*ctx.Request.URI() = fasthttp.URI{}
	ctx.Request.Header = fasthttp.RequestHeader{}
	ctx.Request.SwapBody(nil)
	s.releaseRetained(c)
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
