package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/semaphore"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// manyLabels returns a plugin whose answers are longer than the buffers of two sockets: 8 MB for 6 MB of
// labels. It reserves as little memory for reviews as any small review.
func manyLabels() admission.Plugin {
	return admission.Plugin{
		Name: "ManyLabels", Rules: []admission.Rule{admission.Any()}, Mutates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: func(_ context.Context, review *codec.Review) admission.Result {
				for i := range 3 {
					review.Object.SetString(strings.Repeat("l", 2<<20), "metadata", "labels", fmt.Sprint(i))
				}
				return admission.Allowed()
			}}, nil
		},
	}
}

// ask sends a review over a connection with a small receive buffer, and does not read the answer.
func (p *patient) ask(t *testing.T) net.Conn {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = setReceiveBuffer(fd, 16<<10) })
	}}
	raw, err := dialer.Dial("tcp", p.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	x := tls.Client(raw, servertest.TLS)
	if _, err := x.Write(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate))); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestUnreadAnswers has clients that do not read their answers. The answers fill the memory for reviews, so
// a further review is refused. When the clients have been too slow for some time, their connections are
// closed, and the review gets the memory.
func TestUnreadAnswers(t *testing.T) {
	p := servePatiently(t, timeouts{}, manyLabels())
	one := p.oneAnswer(t)
	reserved := func(want int64) {
		t.Helper()
		servertest.Until(t, fmt.Sprintf("%d bytes are reserved", want), func() bool { return p.server.memory.reserved() == want })
	}
	p.reviewMemory(2*one - 1)
	p.ask(t)
	reserved(one)
	p.answer(t, http.StatusTooManyRequests)
	p.closeAll(t)

	for _, most := range []int64{2 * one, 2*one + 1} {
		p.reviewMemory(most)
		p.ask(t)
		reserved(one)
		p.ask(t)
		reserved(2 * one)
		closed := p.server.metrics.webhooks.evictedUnread.Get()
		p.answer(t, http.StatusTooManyRequests)
		if got := p.server.metrics.webhooks.evictedUnread.Get(); got != closed {
			t.Errorf("closed %d connections after the first look, want none", got-closed)
		}
		servertest.Until(t, "the next one gets an answer", func() bool {
			response, _ := p.Open(t).Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate)))
			return response.StatusCode == http.StatusOK
		})
		// Closing one connection makes enough room. It depends on the time whether the same check also
		// finds the other one.
		if got := p.server.metrics.webhooks.evictedUnread.Get(); got < closed+1 || got > closed+2 {
			t.Errorf("closed %d connections, want 1 or 2", got-closed)
		}
		p.closeAll(t)
	}
}

// oneAnswer returns the memory of an answer of manyLabels.
func (p *patient) oneAnswer(t *testing.T) int64 {
	t.Helper()
	p.ask(t)
	servertest.Until(t, "an answer counts", func() bool { return p.server.memory.reserved() >= 8<<20 })
	one := p.server.memory.reserved()
	p.closeAll(t)
	return one
}

// closeAll closes all connections.
func (p *patient) closeAll(t *testing.T) {
	t.Helper()
	p.connections.table.each(func(of peer) { of.giveUp() })
	servertest.Until(t, "nothing is reserved", func() bool { return p.server.memory.reserved() == 0 })
	p.server.looked.Store(0)
}

// reviewMemory sets the memory for reviews. No part of it is for small reviews only. No memory may be reserved yet.
func (p *patient) reviewMemory(most int64) {
	p.server.memory = newReviewMemory(most)
	p.server.memory.makeRoom = p.server.dropUnread
	p.server.memory.small.max, p.server.memory.large.max = 0, most
	p.server.memory.small.room, p.server.memory.large.room = semaphore.NewWeighted(0), semaphore.NewWeighted(most)
}

// answer sends a further review and checks the code of its answer.
func (p *patient) answer(t *testing.T, code int) {
	t.Helper()
	response, body := p.Open(t).Send(servertest.Request("/mutate", corpus.MustRead(servertest.PodCreate)))
	if response.StatusCode != code ||
		code == http.StatusTooManyRequests && (!strings.Contains(string(body), "no memory for an answer of ") ||
			response.Header.Get("Retry-After") != "1") {
		t.Errorf("got %s %.300s, want %d", response.Status, body, code)
	}
}

// TestLargeReviewAfterUnreadAnswer has a large review wait for the memory of an answer that
// its client does not read.
func TestLargeReviewAfterUnreadAnswer(t *testing.T) {
	p := servePatiently(t, timeouts{}, manyLabels())
	one := p.oneAnswer(t)
	p.reviewMemory(one)
	p.ask(t)
	servertest.Until(t, "an answer counts", func() bool { return p.server.memory.reserved() == one })
	response, body := p.Open(t).Send(servertest.Request("/validate", servertest.Padded(100_000)))
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s %s", response.Status, body)
	}
}

// TestIsUnread checks from which pace of reading an answer counts as unread.
func TestIsUnread(t *testing.T) {
	now := time.Now()
	f := func(name string, passed time.Duration, read int64, want bool) {
		t.Helper()
		var a answering
		if a.isUnread(0, now) {
			t.Errorf("%s: unread before it begins", name)
		}
		if a.begin(now) != now || a.isUnread(1<<20, now.Add(time.Minute)) {
			t.Errorf("%s: unread at the first look", name)
		}
		if got := a.isUnread(1<<20+read, now.Add(time.Minute+passed)); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		a.end()
		if a.begin(now.Add(time.Hour)); a.isUnread(1<<20, now.Add(time.Hour+time.Minute)) {
			t.Errorf("%s: unread at the first look at the next answer", name)
		}
	}
	f("not watched for long enough", unreadPause-1, 0, false)
	f("nothing is read", unreadPause, 0, true)
	f("less than enough", unreadPause, unreadPace-1, true)
	f("enough", unreadPause, unreadPace, false)
	f("more than enough", unreadPause, unreadPace+1, false)
	f("less than enough for two seconds", 2*unreadPause, 2*unreadPace-1, true)
}

// TestAnswerEndsInTime reads an answer slowly, in small pieces: the write timeout is for the whole answer.
func TestAnswerEndsInTime(t *testing.T) {
	p := servePatiently(t, timeouts{write: time.Second}, manyLabels())
	x := p.ask(t)
	for read := 0; ; {
		n, err := x.Read(make([]byte, 64<<10))
		if read += n; err != nil {
			break
		}
		if read >= 8<<20 { // as many bytes as an answer has at least; this takes six seconds
			t.Fatalf("read the whole answer, %d bytes", read)
		}
		time.Sleep(50 * time.Millisecond)
	}
	servertest.Until(t, "nothing is reserved", func() bool { return p.server.memory.reserved() == 0 })
}

// TestCounted checks how many bytes of a request count.
func TestCounted(t *testing.T) {
	f := func(header int64, body int, want int64) {
		t.Helper()
		if got := counted(header, body); got != want {
			t.Errorf("a header of %d bytes and a body of %d: got %d, want %d", header, body, got, want)
		}
	}
	f(uncountedMax-1, uncountedMax-1, 0)
	f(uncountedMax, uncountedMax, 0)
	f(uncountedMax+1, uncountedMax, uncountedMax+1)
	f(uncountedMax, uncountedMax+1, 2*uncountedMax)
	f(uncountedMax+1, uncountedMax+1, 3*uncountedMax+1)
}

// TestHeadersCount has a stranger and a known caller send a large header block without the body: the
// header counts.
func TestHeadersCount(t *testing.T) {
	p := servePatiently(t, timeouts{})
	lines := "Content-Type: application/json\r\n" + strings.Repeat("A:b\r\n", 1000)
	body := corpus.MustRead(servertest.PodCreate)
	raw := servertest.Request("/validate", body, lines[:len(lines)-2])
	head := raw[:len(raw)-len(body)]
	var one int64
	begin := func(x *servertest.Exchange) {
		t.Helper()
		before := p.server.load.bytes.Load()
		if _, err := x.Conn.Write(head); err != nil {
			t.Fatal(err)
		}
		servertest.Until(t, "the header counts", func() bool { return p.server.load.bytes.Load() > before })
	}
	known := p.Open(t)
	known.Answers(false)
	begin(known)
	if one = p.server.load.bytes.Load(); one < 96*1000 {
		t.Errorf("got %d bytes for a header of 1,000 lines", one)
	}
	p.server.load.grace, p.server.load.pace = time.Hour, 0
	for _, most := range []int64{2*one - 1, 2 * one, 2*one + 1} {
		p.server.load.bytesMax = most
		x := p.Open(t)
		if most >= 2*one {
			begin(x)
			if response, answer := x.Send(body); response.StatusCode != http.StatusOK {
				t.Errorf("with room for %d bytes: got %s %s", most, response.Status, answer)
			}
		} else if response, _ := x.Send(head); response.StatusCode != http.StatusTooManyRequests || !response.Close {
			t.Errorf("with room for %d bytes: got %s", most, response.Status)
		}
	}
	if response, answer := known.Send(body); response.StatusCode != http.StatusOK {
		t.Errorf("got %s %s", response.Status, answer)
	}
	servertest.Until(t, "nothing counts", func() bool { return p.server.load.bytes.Load() == 0 })
}

// TestOneByte has a stranger without a token declare a body of one byte: the server does not wait for it.
func TestOneByte(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	servertest.WriteFile(t, tokens, "secret,kube-apiserver,1\n")
	s := serve(t, "AlwaysPullImages", nil, func(s *setup) { s.Callers.TokenFile = tokens })
	response, _ := s.Open(t).Send([]byte("POST /validate HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n"))
	if response.StatusCode != http.StatusUnauthorized || !response.Close {
		t.Errorf("got %s, close %v", response.Status, response.Close)
	}
}

// TestDiscard answers a HEAD request whose header is too large to retain: the answer has no body and
// closes the connection.
func TestDiscard(t *testing.T) {
	p := servePatiently(t, timeouts{})
	x := p.Open(t)
	if _, err := io.WriteString(x.Conn, "HEAD /nowhere HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"+strings.Repeat("A:b\r\n",
		1000)+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(x.Conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 404 ") || !strings.HasSuffix(string(answer), "\r\n\r\n") {
		t.Errorf("got %q, %v", answer, err)
	}
	ctx := new(fasthttp.RequestCtx)
	ctx.Request.Header.Set("A", strings.Repeat("b", 10_000))
	ctx.Request.SetBody(make([]byte, 60_000))
	dropRequest(ctx)
	if got := len(ctx.Request.Header.Peek("A")) + cap(ctx.Request.SwapBody(nil)); got != 0 {
		t.Errorf("got %d bytes", got)
	}
}

// TestContextOf checks that contextOf finds the context from the header of its request.
func TestContextOf(t *testing.T) {
	ctx := new(fasthttp.RequestCtx)
	if contextOf(&ctx.Request.Header) != ctx {
		t.Error("got another context")
	}
}
