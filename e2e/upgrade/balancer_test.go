package upgrade

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// A balancer is the load balancer of a control plane: it connects to the API servers in turns.
type balancer struct {
	address string

	mu      sync.Mutex
	servers []string // addresses
	turn    int
}

// newBalancer starts one, which ends with the test.
func newBalancer(t *testing.T) *balancer {
	t.Helper()
	ln, err := net.Listen("tcp", testserver.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	b := &balancer{address: ln.Addr().String()}
	go func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			go b.connect(from)
		}
	}()
	return b
}

// use sets the API servers for new connections.
func (b *balancer) use(servers ...*cluster.APIServer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.servers = nil
	for _, s := range servers {
		b.servers = append(b.servers, strings.TrimPrefix(s.Config.Host, "https://"))
	}
}

func (b *balancer) next() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn++
	return b.servers[b.turn%len(b.servers)]
}

// connect copies what both sides send until one of them ends the connection.
func (b *balancer) connect(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", b.next())
	if err != nil {
		return
	}
	defer to.Close()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{to, from}, {from, to}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // an error ends the connection too
			ended <- struct{}{}
		}()
	}
	<-ended
}
