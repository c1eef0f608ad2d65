package app

import (
	"bytes"

	"github.com/valyala/fasthttp"
)

const (
	// keptShare is the part of the memory that Go may take which known connections may
	// keep for their next requests in all, beside connectionBytes: 29 MiB in a container
	// with 512 MiB. A connection keeps some 12 KB after a review of 8 KB.
	keptShare = 16

	// keptDefault is for a machine without a limit.
	keptDefault = 64 << 20

	// strangerKeptMax is how much a stranger's connection may keep: several times what
	// kube-apiserver's headers take.
	strangerKeptMax = 8 << 10

	// What fasthttp keeps of a header block and a path: five copies of most bytes, and
	// two slices and more for each line and argument. 16 KiB of short lines take 250 KB.
	keptOfByte = 5
	keptOfLine = 96
)

// keptMemory returns how much connections may keep in all.
func keptMemory() int64 {
	limit, limited := goMemory()
	if !limited {
		return keptDefault
	}
	return limit / keptShare
}

var lineEnd, argumentEnd = []byte("\n"), []byte("&")

// keep lets a connection keep what fasthttp keeps of its request and answer for the next
// ones, if there is room for it. Otherwise the answer closes the connection. Of a
// stranger's request, nothing but a small header is kept, so that strangers take no room.
func (s *server) keep(ctx *fasthttp.RequestCtx, c *conn) {
	header, uri := ctx.Request.Header.RawHeaders(), ctx.Request.Header.RequestURI()
	c.keptHeader = max(c.keptHeader, int64(keptOfByte*(len(header)+len(uri))+
		keptOfLine*(bytes.Count(header, lineEnd)+bytes.Count(uri, argumentEnd))))
	keeps := c.keptHeader <= strangerKeptMax
	if c.known {
		keeps = s.takeKept(c, c.keptHeader+int64(cap(ctx.Request.Body()))+c.keptAnswer)
	} else {
		ctx.Request.SwapBody(nil)
	}
	if !keeps {
		c.listener.table.metrics.closedMemory.Inc()
		ctx.SetConnectionClose()
	}
}

// takeKept counts so many bytes that a connection keeps, in place of those before, unless
// that is more than all may.
func (s *server) takeKept(c *conn, bytes int64) bool {
	more := bytes - c.kept.Load()
	if more == 0 {
		return true
	}
	if s.kept.Add(more) > s.keptMax && more > 0 {
		s.kept.Add(-more)
		return false
	}
	c.kept.Add(more)
	return true
}

// dropKept says that a connection keeps nothing any more.
func (s *server) dropKept(c *conn) { s.kept.Add(-c.kept.Swap(0)) }
