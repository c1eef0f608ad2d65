package server

import (
	"sync"
	"weak"

	"github.com/valyala/fasthttp"
)

// bodyBuffers has the buffer of each open connection that had a large body, by the header
// of the connection's requests: that is all that fasthttp shows before it reads a body.
type bodyBuffers struct{ of sync.Map } // *fasthttp.RequestHeader to *bodyBuffer

// A bodyBuffer is the memory of a connection's last large body, for its next one. The
// garbage collector may take it any time, so idle connections hold no large
// bodies. Without it, each large body would cost new memory, which the kernel and Go
// clear, and a garbage collection every few requests: more than reading the
// review costs.
type bodyBuffer struct {
	request *fasthttp.Request // which fasthttp uses for all requests of the connection
	memory  weak.Pointer[[]byte]
}

// use gives a request whose header was read the memory of the last body, if it is
// there and fasthttp would make as much for a body of so many bytes.
func (s *bodyBuffers) use(header *fasthttp.RequestHeader, coming int) {
	v, ok := s.of.Load(header)
	if !ok {
		return
	}
	of := v.(*bodyBuffer)
	if memory := of.memory.Value(); memory != nil && int64(cap(*memory)) == bodyMemory(coming) {
		of.request.SwapBody(*memory)
	}
}

// remove forgets the buffer of a connection that is closed.
func (s *bodyBuffers) remove(c *conn) {
	if c.bodyBuffer != nil {
		s.of.Delete(&c.bodyBuffer.request.Header)
		c.bodyBuffer = nil
	}
}

// dropBody lets go of a large body that nobody reads any more: fasthttp would
// keep it with the connection. It stays the connection's bodyBuffer until the garbage
// collector takes it.
func (s *Server) dropBody(ctx *fasthttp.RequestCtx, c *conn) {
	if len(ctx.Request.Body()) <= cheapBytes {
		return
	}
	memory := ctx.Request.SwapBody(nil)[:0]
	if c.bodyBuffer == nil {
		c.bodyBuffer = &bodyBuffer{request: &ctx.Request}
		s.bodyBuffers.of.Store(&ctx.Request.Header, c.bodyBuffer)
	}
	c.bodyBuffer.memory = weak.Make(&memory)
}
