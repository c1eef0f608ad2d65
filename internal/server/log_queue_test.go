package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestLogReaderStops denies reviews while nothing reads the log.
func TestLogReaderStops(t *testing.T) {
	log := new(servertest.Buffer)
	queue := NewLogQueue(log)
	s := serve(t, "AlwaysDeny", nil, func(s *setup) { s.Log = NewLog(queue) })
	x := s.Open(t)
	unlock := log.Block() // writes to the log wait
	defer func() { unlock() }()
	for range logsBurst + 1 {
		if response, body := x.Send(servertest.Request("/mutate",
			corpus.MustRead(servertest.PodCreate))); response.StatusCode != http.StatusOK ||
			!bytes.Contains(body, []byte(`"allowed":false`)) {
			t.Fatalf("got %s %s, want a denial", response.Status, body)
		}
	}
	unlock()
	unlock = func() {}
	queue.Close()
	if n := strings.Count(log.String(), `"msg":"denied"`); n < logsBurst {
		t.Errorf("got %d lines about denials after the log was read again, want %d", n, logsBurst)
	}
}

// A gate is a writer that waits until it is opened.
type gate struct {
	servertest.Buffer
	opened chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.opened
	return g.Buffer.Write(p)
}

// TestLogQueueIsFull writes one line more than may wait, and one after there is room again.
func TestLogQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{opened: make(chan struct{})}
		q := NewLogQueue(g)
		log := NewLog(q)
		dropped := log.Handler().(sampledLog).dropped
		write := func(n int) {
			for range n {
				log.Info("line")
				time.Sleep(time.Second / logsPerSecond) // so that the limiter drops none
				synctest.Wait()
			}
		}
		write(1) // the writer has taken it
		for _, c := range []struct {
			lines   int
			dropped int64
		}{{logQueueMax - 1, 0}, {1, 0}, {1, 1}, {1, 2}} {
			if write(c.lines); dropped.Load() != c.dropped {
				t.Fatalf("got %d dropped, want %d", dropped.Load(), c.dropped)
			}
		}
		close(g.opened)
		synctest.Wait()
		write(1)
		q.Close()
		lines := strings.Split(strings.TrimSpace(g.String()), "\n")
		var last struct{ Dropped int64 }
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Dropped != 2 || len(lines) != logQueueMax+2 {
			t.Errorf("got %d lines, the last says that %d were dropped (%v), want %d and 2", len(lines), last.Dropped, err, logQueueMax+2)
		}
		q.Close()
		log.Info("after the end") // dropped
	})
}

// TestLogQueueEnds closes a queue whose writer never returns.
func TestLogQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{opened: make(chan struct{})}
		q := NewLogQueue(g)
		NewLog(q).Info("line")
		start := time.Now()
		q.Close()
		if waited := time.Since(start); waited != logFlushMax {
			t.Errorf("waited %s, want %s", waited, logFlushMax)
		}
		close(g.opened)
	})
}

// TestStrangersDoNotFillTheLog has more failed handshakes than lines that may be logged.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	s := serve(t, "AlwaysDeny", nil)
	for range 2 * logsBurst {
		conn, err := net.Dial("tcp", s.Address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET / HTTP/1.1\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the server closes it
		conn.Close()
	}
	s.Open(t).Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate)))
	servertest.Until(t, "the denial is logged", func() bool { return strings.Contains(s.Log.String(), `"msg":"denied"`) })
	if n := strings.Count(s.Log.String(), "TLS handshake failed"); n < strangersLogsBurst || n > logsBurst/2 {
		t.Errorf("got %d lines about handshakes, want %d and a few", n, strangersLogsBurst)
	}
}
