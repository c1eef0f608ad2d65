// With these tags, bodies are copied, so more memory is allocated.

//go:build !poison && !race

package server

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestLargeBodiesUseMemoryAgain sends large reviews over one connection while the garbage
// collector is off. Reviews of one size share memory, reviews of another size have their
// own, and all are answered.
func TestLargeBodiesUseMemoryAgain(t *testing.T) {
	p := servePatiently(t, timeouts{})
	x := p.Open(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	allocated := func(times, size int) int64 {
		t.Helper()
		raw := servertest.Request("/validate", servertest.Padded(size))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range times {
			if response, answer := x.Send(raw); response.StatusCode != http.StatusOK {
				t.Fatalf("got %s: %s", response.Status, answer)
			}
		}
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	const large, larger, times = 600_000, 3_000_000, 8 // these take 1 MiB and 4 MiB
	takes := bodyMemory(large)
	if got := allocated(1, large); got < takes {
		t.Errorf("the first one: allocated %d bytes, want %d", got, takes)
	}
	if got := allocated(times, large); got > takes {
		t.Errorf("%d more: allocated %d bytes, want less than the %d of one body", times, got, takes)
	}
	if got := allocated(1, larger); got < bodyMemory(larger) {
		t.Errorf("one that is larger: allocated %d bytes, want %d", got, bodyMemory(larger))
	}
	if got := allocated(1, large); got < takes || got >= bodyMemory(larger) {
		t.Errorf("one that is smaller again: allocated %d bytes, want %d", got, takes)
	}
	runtime.GC()
	if got := allocated(1, large); got < takes {
		t.Errorf("after a garbage collection: allocated %d bytes, want %d", got, takes)
	}
}

// TestEndedConnectionsLeaveNothing ends connections that hold large headers, bodies or answers, and
// opens others. fasthttp uses the memory of a request again for another connection: that
// must not hold what nobody counts.
func TestEndedConnectionsLeaveNothing(t *testing.T) {
	const connections, most = 32, 96 << 10 // 42 KiB are for TLS and the read buffer
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	p := servePatiently(t, timeouts{})
	open := &p.server.metrics.webhooks.open
	f := func(name string, raw []byte, answered bool) {
		t.Helper()
		servertest.Until(t, "no connection is open", func() bool { return open.Load() == 0 })
		before := admissiontest.LiveHeap()
		var ended []*servertest.Exchange
		for range connections {
			x := p.Open(t)
			if _, err := x.Conn.Write(raw); err != nil {
				t.Fatal(err)
			}
			if answered {
				x.Receive()
			}
			ended = append(ended, x)
		}
		if !answered {
			servertest.Until(t, "all requests come", func() bool { return p.server.load.bytes.Load() >= connections*200_000 })
		}
		for _, x := range ended {
			x.Conn.Close()
		}
		servertest.Until(t, "they are closed", func() bool { return open.Load() == 0 })
		var others []*servertest.Exchange
		for range connections {
			x := p.Open(t)
			x.Send([]byte("GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n"))
			others = append(others, x)
		}
		if got := int(admissiontest.LiveHeap()-before) / connections; got > most {
			t.Errorf("%s: got %d bytes for each connection, want at most %d", name, got, most)
		}
		for _, x := range others {
			x.Conn.Close()
		}
	}
	header := "POST /validate HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("A:b\r\n", 2500)
	f("headers that wait for a body", []byte(header+"Content-Length: 1000\r\n\r\n"), false)
	f("headers that were answered", []byte(header+"\r\n"), true)
	f("bodies that do not come", []byte("POST /validate HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"), false)
	f("reviews", servertest.Request("/validate", servertest.Padded(60_000)), true)
	f("last reviews", servertest.Request("/validate", servertest.Padded(60_000), "Content-Type: application/json",
		"Connection: close"), true)
}
