// Package testserver starts HTTP servers of tests whose handlers wait for the end of a request.
package testserver

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A Server is a server that ends its requests when it closes. A plain httptest.Server waits
// for them, and a client that watches never ends its own: if its connection is closed, it
// asks again before the server stops listening.
type Server struct {
	*httptest.Server
	end context.CancelFunc
}

// Unstarted returns a server that the caller starts. It is closed when the test ends, if it
// was not before.
func Unstarted(t testing.TB, handler http.Handler) *Server {
	ctx, end := context.WithCancel(context.Background())
	s := &Server{Server: httptest.NewUnstartedServer(handler), end: end}
	s.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	t.Cleanup(s.Close)
	return s
}

// Start returns a server of HTTP without TLS.
func Start(t testing.TB, handler http.Handler) *Server {
	s := Unstarted(t, handler)
	s.Start()
	return s
}

// StartTLS returns a server of HTTPS.
func StartTLS(t testing.TB, handler http.Handler) *Server {
	s := Unstarted(t, handler)
	s.StartTLS()
	return s
}

// Close ends all requests, then closes the server. It may be called more than once.
func (s *Server) Close() {
	s.end()
	s.CloseClientConnections()
	s.Server.Close()
}
