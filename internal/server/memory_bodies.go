package server

import (
	"weak"

	"github.com/valyala/fasthttp"
)

// A bodyBuffer is the memory of a connection's last large body, for its next one. The
// garbage collector may take it any time, so idle connections hold no large
// bodies. Without it, each large body would cost new memory, which the kernel and Go
// clear, and a garbage collection every few requests: more than reading the
// review costs.
type bodyBuffer struct{ memory weak.Pointer[[]byte] }

// use gives a request whose header was read the memory of the last body, if it is
// there and fasthttp would make as much for a body of so many bytes.
func (b *bodyBuffer) use(request *fasthttp.Request, coming int) {
	if memory := b.memory.Value(); memory != nil && int64(cap(*memory)) == bodyMemory(coming) {
		request.SwapBody(*memory)
	}
}

// drop removes a large body that is no longer read from the request, because fasthttp would
// keep it with the connection. The body stays the connection's bodyBuffer until the garbage
// collector frees it.
func (b *bodyBuffer) drop(request *fasthttp.Request) {
	if len(request.Body()) > cheapBytes {
		memory := request.SwapBody(nil)[:0]
		b.memory = weak.Make(&memory)
	}
}
