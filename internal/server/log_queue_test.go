package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fastadmit/fastadmit/corpus"
)

// TestLogReaderStops denies reviews while nobody reads the log.
func TestLogReaderStops(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysDeny")
	x := s.open(t)
	s.log.mu.Lock() // writes to the log wait
	unlock := s.log.mu.Unlock
	defer func() { unlock() }()
	if err := x.conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for range logsBurst + 1 {
		if response, body := x.send(request("/mutate", corpus.MustRead(podCreate))); response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"allowed":false`)) {
			t.Fatalf("got %s %s, want a denial", response.Status, body)
		}
	}
	unlock()
	unlock = func() {}
	s.end(t)
	if n := strings.Count(s.log.String(), `"msg":"denied"`); n < logsBurst {
		t.Errorf("got %d lines about denials after the log was read again, want %d", n, logsBurst)
	}
}

// A gate is a writer that waits until it is opened.
type gate struct {
	lockedBuffer
	opened chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.opened
	return g.lockedBuffer.Write(p)
}

// TestLogQueueIsFull writes one line more than may wait, and one when there is room again.
func TestLogQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{opened: make(chan struct{})}
		q := NewLogQueue(g)
		log := NewLog(q)
		dropped := log.Handler().(sampledLog).dropped
		write := func(n int) {
			for range n {
				log.Info("line")
				time.Sleep(time.Second / logsPerSecond) // the limiter drops none
				synctest.Wait()
			}
		}
		write(1) // which the writer has
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
		q.close()
		lines := strings.Split(strings.TrimSpace(g.String()), "\n")
		var last struct{ Dropped int64 }
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Dropped != 2 || len(lines) != logQueueMax+2 {
			t.Errorf("got %d lines, the last says that %d were dropped (%v), want %d and 2", len(lines), last.Dropped, err, logQueueMax+2)
		}
		q.close()
		log.Info("after the end") // which is dropped
	})
}

// TestLogQueueEnds closes a queue whose writer never returns.
func TestLogQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{opened: make(chan struct{})}
		q := NewLogQueue(g)
		NewLog(q).Info("line")
		start := time.Now()
		q.close()
		if waited := time.Since(start); waited != logFlushMax {
			t.Errorf("waited %s, want %s", waited, logFlushMax)
		}
		close(g.opened)
	})
}

// TestLogReaderEnds runs the server in a process of its own, and ends the reader of its log.
func TestLogReaderEnds(t *testing.T) {
	const child = "FASTADMIT_TEST_LOG_READER_ENDS"
	if os.Getenv(child) != "" {
		cmd := NewCommand()
		cmd.SetArgs([]string{"serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0", "--enable-admission-plugins=AlwaysDeny"})
		t.Fatal(cmd.Execute())
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestLogReaderEnds$")
	cmd.Env = append(os.Environ(), child+"=1")
	out := new(lockedBuffer)
	cmd.Stdout = out
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	until(t, "the server serves", func() bool { return ready.MatchString(out.String()) })
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	s := &running{address: ready.FindStringSubmatch(out.String())[1]}
	for range 3 {
		x := s.open(t)
		if response, body := x.send(request("/mutate", corpus.MustRead(podCreate))); response.StatusCode != http.StatusOK || !bytes.Contains(body, []byte(`"allowed":false`)) {
			t.Errorf("got %s %s, want a denial", response.Status, body)
		}
		time.Sleep(briefly) // the line is written beside the answer
	}
}

// TestStrangersDoNotFillTheLog has more failed handshakes than lines may be logged.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysDeny")
	for range 2 * logsBurst {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, "GET / HTTP/1.1\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the server closes it
		conn.Close()
	}
	s.open(t).send(request("/mutate", corpus.MustRead(podCreate)))
	until(t, "the denial is logged", func() bool { return strings.Contains(s.log.String(), `"msg":"denied"`) })
	if n := strings.Count(s.log.String(), "TLS handshake failed"); n < strangersLogsBurst || n > logsBurst/2 {
		t.Errorf("got %d lines about handshakes, want %d and a few", n, strangersLogsBurst)
	}
}
