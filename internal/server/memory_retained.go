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

	// strangerRetainedMax is how much a stranger's connection may keep: several times what
	// kube-apiserver's headers take.
	strangerRetainedMax = 8 << 10

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

// retain lets a connection keep what fasthttp keeps of its request and answer for the next
// ones, if there is room for it. Otherwise the answer closes the connection. Of a
// stranger's request, nothing but a small header is kept, so that strangers take no room.
func (s *Server) retain(ctx *fasthttp.RequestCtx, c *conn) {
	header, uri := ctx.Request.Header.RawHeaders(), ctx.Request.Header.RequestURI()
	c.retainedHeader = max(c.retainedHeader, int64(retainedOfByte*(len(header)+len(uri))+
		retainedOfLine*(bytes.Count(header, lineEnd)+bytes.Count(uri, argumentEnd))))
	keeps := c.retainedHeader <= strangerRetainedMax
	if c.known {
		keeps = s.reserveRetained(c, c.retainedHeader+int64(cap(ctx.Request.Body()))+c.retainedAnswer)
	} else {
		ctx.Request.SwapBody(nil)
	}
	if !keeps {
		c.listener.table.metrics.closedMemory.Inc()
		ctx.SetConnectionClose()
	}
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
