package app

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/bench/corpus"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// waiting is a plugin that waits until the test goes on.
func waiting(started, goOn chan struct{}) handlers.Plugin {
	wait := func(context.Context, *codec.Review) handlers.Result {
		started <- struct{}{}
		<-goOn
		return handlers.Allowed()
	}
	return handlers.Plugin{
		Name: "Waits", Rules: []handlers.Rule{handlers.Any()}, Validates: true, Own: true,
		New: func(handlers.Setup) (handlers.Handler, error) { return handlers.Handler{Validate: wait}, nil },
	}
}

// TestOverload has as many requests in flight as there may be, and one more.
func TestOverload(t *testing.T) {
	const most = 3
	started, goOn := make(chan struct{}), make(chan struct{})
	s := serve(t, []handlers.Plugin{waiting(started, goOn)}, "--enable-admission-plugins=Waits,AlwaysPullImages", "--max-requests-inflight=3")
	var busy []*exchange
	for range most {
		x := s.open(t)
		if _, err := x.conn.Write(request("/validate/waits", corpus.MustRead(podCreate))); err != nil {
			t.Fatal(err)
		}
		<-started
		busy = append(busy, x)
	}
	x := s.open(t)
	for range 2 { // on the same connection
		response, body := x.send(request("/mutate", corpus.MustRead(podCreate)))
		if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "1" || response.Close ||
			!strings.Contains(string(body), `"reason":"TooManyRequests"`) || !strings.Contains(string(body), "got 3 requests") {
			t.Errorf("one too many: got %s %v %s", response.Status, response.Header, body)
		}
	}
	// Of a large body nothing is read.
	large := s.open(t)
	response, body := large.send([]byte("POST /mutate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"))
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") != "1" || !response.Close {
		t.Errorf("a large one too many: got %s %v %s", response.Status, response.Header, body)
	}
	metrics := s.get(t, "/metrics", 200)
	for _, line := range []string{`fastadmit_refused_requests_total{code="429"} 3`, "fastadmit_requests_in_flight 3"} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("no %q in %s", line, metrics)
		}
	}
	close(goOn)
	for _, x := range busy {
		if response, _ := x.receive(); response.StatusCode != http.StatusOK {
			t.Errorf("one of those in flight: got %s", response.Status)
		}
	}
	x.answers(false)
	until(t, "nothing is in flight", func() bool {
		metrics := s.get(t, "/metrics", 200)
		return strings.Contains(metrics, "fastadmit_requests_in_flight 0\n") && strings.Contains(metrics, "fastadmit_request_bytes_in_flight 0\n")
	})
}

// TestOverloadBytes has less room than a body needs.
func TestOverloadBytes(t *testing.T) {
	const most = 200_000
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--max-request-bytes-inflight=200000")
	f := func(size, code int) {
		t.Helper()
		if response, _ := s.open(t).send(request("/mutate", padded(size))); response.StatusCode != code {
			t.Errorf("%d bytes: got %s, want %d", size, response.Status, code)
		}
	}
	const twice = headerBytesMax + 400 // what of a request may be counted twice, and the header
	f(most-twice, http.StatusOK)
	f(most+1, http.StatusTooManyRequests)
	f(bodyBytesMax+1, http.StatusRequestEntityTooLarge)
	s.open(t).answers(false)
}

// TestDrain goes on answering during the delay, and closes with each answer.
func TestDrain(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--shutdown-delay-duration=2s")
	x := s.open(t)
	x.answers(false)
	s.stop()
	until(t, "the server drains", func() bool {
		response, err := http.Get(s.ops + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode == http.StatusServiceUnavailable
	})
	for _, x := range []*exchange{x, s.open(t)} {
		response, _ := x.send(request("/mutate", corpus.MustRead(podCreate)))
		if response.StatusCode != http.StatusOK || !response.Close {
			t.Errorf("got %s, close %v", response.Status, response.Close)
		}
		x.answers(true)
	}
}

// TestConnectionAge ends a connection with an answer when it is old.
func TestConnectionAge(t *testing.T) {
	s := serve(t, nil, "--enable-admission-plugins=AlwaysPullImages", "--max-connection-age=300ms")
	x := s.open(t)
	x.answers(false)
	time.Sleep(400 * time.Millisecond)
	response, _ := x.send(request("/mutate", corpus.MustRead(podCreate)))
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("got %s, close %v", response.Status, response.Close)
	}
	x.answers(true)
}

func TestContainerMemory(t *testing.T) {
	const v2, v1 = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"
	f := func(want int64, files map[string]string) {
		t.Helper()
		got := containerMemory(func(name string) ([]byte, error) {
			if content, ok := files[name]; ok {
				return []byte(content), nil
			}
			return nil, errors.Join(fs.ErrNotExist)
		})
		if got != want {
			t.Errorf("%v: got %d, want %d", files, got, want)
		}
	}
	f(0, nil)
	f(90_000_000, map[string]string{v2: "100000000\n"})
	f(0, map[string]string{v2: "max\n"})
	f(90_000_000, map[string]string{v1: "100000000\n"})
	f(0, map[string]string{v1: "9223372036854771712\n"})
	f(0, map[string]string{v2: "0\n"})
	f(0, map[string]string{v2: ""})
}
