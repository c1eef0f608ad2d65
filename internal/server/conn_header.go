package server

import (
	"unsafe"

	"github.com/valyala/fasthttp"
)

// contextOf returns the context of a request whose header was read. Before it reads the body, fasthttp
// passes only the header. The header is a field of the request, and the request is a field of the
// context.
func contextOf(header *fasthttp.RequestHeader) *fasthttp.RequestCtx {
	const offset = unsafe.Offsetof(fasthttp.RequestCtx{}.Request) + unsafe.Offsetof(fasthttp.Request{}.Header)
	return (*fasthttp.RequestCtx)(unsafe.Add(unsafe.Pointer(header), -int(offset)))
}
