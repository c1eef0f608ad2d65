package server

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/semaphore"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// TestRetainedOfStrangers has strangers send headers of which fasthttp retains many times
// the length. Nothing counts for them, and the connections stay open. Those of HTTP/1.0 end.
func TestRetainedOfStrangers(t *testing.T) {
	p := servePatiently(t, timeouts{})
	f := func(name, raw string, closed bool) {
		t.Helper()
		if response, _ := p.Open(t).Send([]byte(raw + "\r\n")); response.StatusCode != http.StatusNotFound || response.Close != closed {
			t.Errorf("%s: got %s, close %v, want 404, close %v", name, response.Status, response.Close, closed)
		}
	}
	const head = " HTTP/1.1\r\nHost: a\r\n"
	f("ordinary", "GET /nowhere"+head, false)
	f("a long path", "GET /"+strings.Repeat("p", 15_000)+head, false)
	f("many arguments", "GET /?"+strings.Repeat("&", 1000)+head, false)
	f("many lines", "GET /"+head+strings.Repeat("A:b\r\n", 3000), false)
	f("the last one", "GET /"+head+"Connection: close\r\n", true)
	f("many lines of HTTP/1.0", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n"+strings.Repeat("A:b\r\n", 3000), true)
	f("a large body", string(servertest.Request("/nowhere", servertest.Padded(60_000)))+"GET /nowhere"+head, false)
	if got := p.server.retained.Load(); got != 0 {
		t.Errorf("got %d bytes counted for strangers", got)
	}
}

// TestRetained checks that connections of known callers retain memory up to their common
// limit.
func TestRetained(t *testing.T) {
	p := servePatiently(t, timeouts{}, admission.Plugin{
		Name: "Labels", Rules: []admission.Rule{admission.Any()}, Mutates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: func(_ context.Context, review *codec.Review) admission.Result {
				review.Object.SetString(strings.Repeat("l", 30_000), "metadata", "labels", "l")
				return admission.Allowed()
			}}, nil
		},
	})
	review := func(x *servertest.Exchange, size int, closed bool) {
		t.Helper()
		if response, body := x.Send(servertest.Request("/validate", servertest.Padded(size))); response.StatusCode != http.StatusOK ||
			response.Close != closed {
			t.Errorf("%d bytes: got %s %.200s, close %v, want 200, close %v", size, response.Status, body, response.Close, closed)
		}
	}
	first := p.Open(t)
	review(first, 60_000, false)
	one := p.server.retained.Load()
	if one < 60_000 || one > 80_000 {
		t.Fatalf("got %d bytes for a body of 60,000", one)
	}
	review(first, 60_000, false)
	review(first, 90_000, false) // nothing of it is retained
	review(first, 60_000, false)
	p.server.retainedMax = 3 * one
	second, third := p.Open(t), p.Open(t)
	review(second, 60_000, false)
	review(third, 60_000, false)
	fourth := p.Open(t)
	review(fourth, len(corpus.MustRead(servertest.PodCreate)), false) // nothing of it is retained
	review(first, 60_000, false)
	if got := p.server.retained.Load(); got != 3*one {
		t.Errorf("got %d bytes with a limit of %d", got, 3*one)
	}
	third.Conn.Close()
	servertest.Until(t, "the third one is gone", func() bool { return p.server.retained.Load() == 2*one })
	p.server.retainedMax = 2*one + 60_000 // less than one that is rounded up to a power of two
	review(p.Open(t), 60_000, false)
	if got := p.server.retained.Load(); got != 2*one {
		t.Errorf("got %d bytes without room for one more, want %d", got, 2*one)
	}
	p.server.retainedMax = 3 * one
	review(p.Open(t), 60_000, false)

	p.server.retainedMax = 1 << 30
	p.Open(t).Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate)))
	if got := p.server.retained.Load() - 3*one; got < 40_000 {
		t.Errorf("got %d bytes for an answer of more than 40,000", got)
	}
}

// TestRefusalsRetainNothing has a long refusal of a stranger's request: no memory is
// retained for the next request.
func TestRefusalsRetainNothing(t *testing.T) {
	ctx, s := new(fasthttp.RequestCtx), newIdleServer(new(servertest.Buffer))
	written := func() string {
		t.Helper()
		var b bytes.Buffer
		if _, err := ctx.Response.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		if got := cap(ctx.Response.SwapBody(nil)); got != 0 || s.memory.reserved() != 0 {
			t.Errorf("got %d bytes kept, %d reserved", got, s.memory.reserved())
		}
		return b.String()
	}
	refuse := func(bytes int) {
		s.refuse(ctx, http.StatusInternalServerError, "InternalError", strings.Repeat("x", bytes))
	}
	refuse(codec.MessageBytesMax - 2)
	if got := len(written()); got < codec.MessageBytesMax {
		t.Errorf("got %d bytes", got)
	}
	s.memory.small.max, s.memory.small.room = 1, semaphore.NewWeighted(1)
	s.memory.large.max, s.memory.large.room = 1, semaphore.NewWeighted(1)
	refuse(codec.MessageBytesMax - 2)
	if got := len(written()); got > 2*shortMessageMax {
		t.Errorf("without memory: got %d bytes", got)
	}
	s.memory = newReviewMemory(1 << 20)
	s.refuse(ctx, http.StatusInternalServerError, "InternalError", strings.Repeat("x", codec.MessageBytesMax+1))
	if body := string(ctx.Response.Body()); !strings.Contains(body, "... (truncated, ") || len(body) > codec.MessageBytesMax+1000 {
		t.Errorf("got %d bytes, want a message that is cut", len(body))
	}
	ctx.Request.SetBody(make([]byte, 60_000))
	s.retain(ctx, new(conn)) // as for a stranger
	if got := cap(ctx.Request.Body()); got != 0 {
		t.Errorf("got %d bytes kept of the request", got)
	}
}
