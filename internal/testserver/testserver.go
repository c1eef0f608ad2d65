// Package testserver starts HTTP servers of tests whose handlers wait for the end of a request,
// and has addresses for servers that must know their port before they listen.
package testserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"sync"
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

// taken are the addresses that FreeAddress has returned.
var taken sync.Map

// FreeAddress returns an address and port of this machine where nobody listens, for what
// must know its port before it listens. On Linux nobody else gets the same one before
// something listens there: each test process has an IP address of its own, which no
// connection comes from either. Other systems have 127.0.0.1 only.
func FreeAddress(t testing.TB) string {
	t.Helper()
	own := "127.0.0.1"
	if runtime.GOOS == "linux" {
		process := os.Getpid() // at most 22 bits
		own = fmt.Sprintf("127.%d.%d.%d", 64+process>>16, process>>8&255, process&255)
	}
	for {
		l, err := net.Listen("tcp", own+":0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if _, again := taken.LoadOrStore(l.Addr().String(), true); !again {
			return l.Addr().String()
		}
	}
}
