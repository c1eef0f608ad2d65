package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/server/servertest"
)

// A refusal is a request that the server refuses.
type refusal struct {
	raw    []byte
	code   int
	reason string
}

// refusals returns a request for each kind of refusal by a server with the plugins Fails and
// Exits.
func refusals() map[string]refusal {
	head := func(line string, headers ...string) []byte {
		return []byte(line + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n" + strings.Join(headers, "\r\n") + "\r\n\r\n")
	}
	known := []string{"Authorization: Bearer secret", "Content-Type: application/json"}
	large := fmt.Sprintf("Content-Length: %d", bodyBytesMax+1)
	return map[string]refusal{
		"no review":        {servertest.Request("/validate", []byte("{}"), known...), 400, "BadRequest"},
		"no HTTP":          {[]byte("\x00\x01\r\n\r\n"), 400, "BadRequest"},
		"no token":         {servertest.Request("/validate", nil), 401, "Unauthorized"},
		"no token, large":  {servertest.Request("/validate", servertest.Padded(1_000_000)), 401, "Unauthorized"},
		"path":             {head("GET /nowhere"), 404, "NotFound"},
		"method":           {head("GET /validate"), 405, "MethodNotAllowed"},
		"slow":             {servertest.Request("/validate", corpus.MustRead(servertest.PodCreate), known...)[:1000], 408, "Timeout"},
		"chunked":          {head("POST /validate", "Transfer-Encoding: chunked"), 411, "LengthRequired"},
		"large":            {head("POST /validate", large), 413, "RequestEntityTooLarge"},
		"large, with data": {append(head("POST /validate", large), servertest.Padded(1_000_000)...), 413, "RequestEntityTooLarge"},
		"type":             {head("POST /validate", "Content-Length: 0"), 415, "UnsupportedMediaType"},
		"no room":          {servertest.Request("/validate", servertest.Padded(300_000), known...), 429, "TooManyRequests"},
		"header":           {head("POST /validate", "Baggage: "+strings.Repeat("x", headerBytesMax)), 431, "RequestHeaderFieldsTooLarge"},
		"failure":          {servertest.Request("/validate/fails", corpus.MustRead(servertest.PodCreate), known...), 500, "InternalError"},
		"no return":        {servertest.Request("/validate/exits", corpus.MustRead(servertest.PodCreate), known...), 500, "InternalError"},
	}
}

// serveRefusing returns a server that refuses the requests in refusals, and the first
// request of a connection. A request may take three seconds to arrive.
func serveRefusing(t *testing.T) (*patient, []byte) {
	t.Helper()
	p := servePatiently(t, timeouts{read: 3 * time.Second}, validating("Fails", func(context.Context, *codec.Review) admission.Result {
		return admission.Errored(io.ErrUnexpectedEOF)
	}), validating("Exits", func(context.Context, *codec.Review) admission.Result {
		runtime.Goexit()
		return admission.Allowed()
	}))
	p.server.load.bytesMax = 200_000
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	servertest.WriteFile(t, tokens, "secret,kube-apiserver,1\n")
	p.server.callers.TokenFile = tokens
	if err := p.server.callers.Load(); err != nil {
		t.Fatal(err)
	}
	return p, servertest.Request("/validate/alwaysadmit", corpus.MustRead(servertest.PodCreate), "Authorization: Bearer secret",
		"Content-Type: application/json")
}

// endWrites ends the write timeout of all connections, none of which writes.
func (p *patient) endWrites(t *testing.T) {
	t.Helper()
	p.connections.table.each(func(of peer) {
		if err := of.(*conn).SetWriteDeadline(time.Unix(0, 1)); err != nil {
			t.Error(err)
		}
	})
}

// TestRefusalsOnOldConnections refuses requests on connections whose last answer was so long
// ago that its write timeout is over.
func TestRefusalsOnOldConnections(t *testing.T) {
	for name, r := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, first := serveRefusing(t)
			x := p.Open(t)
			if response, body := x.Send(first); response.StatusCode != http.StatusOK {
				t.Fatalf("the first request: got %s %s", response.Status, body)
			}
			p.endWrites(t)
			response, body := x.Send(r.raw)
			if response.StatusCode != r.code || !bytes.Contains(body, []byte(`"reason":"`+r.reason+`"`)) {
				t.Errorf("got %s %s, want %d %s", response.Status, body, r.code, r.reason)
			}
			p.answersAgain(t, x, first, response.Close)
		})
	}
}

// answersAgain sends a request again, or checks that the connection was closed properly.
func (p *patient) answersAgain(t *testing.T, x *servertest.Exchange, raw []byte, closed bool) {
	t.Helper()
	if closed {
		if rest, err := io.ReadAll(x.Reader); err != nil || len(rest) > 0 {
			t.Errorf("got %q, %v, want the end", rest, err)
		}
		return
	}
	p.endWrites(t)
	if response, body := x.Send(raw); response.StatusCode != http.StatusOK {
		t.Errorf("afterwards: got %s %s", response.Status, body)
	}
}

// TestRefusalsByOpenSSL does the same with openssl. In continuous integration, where CI is
// set, it is not skipped.
func TestRefusalsByOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("CI is set, and openssl cannot be run: %v; install it (on Debian, apt-get install openssl)", err)
	}
	if err != nil {
		t.Skipf("openssl cannot be run: %v", err)
	}
	answer := regexp.MustCompile(`HTTP/1\.1 (\d+) `)
	for name, r := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, first := serveRefusing(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			client := exec.CommandContext(ctx, openssl, "s_client", "-quiet", "-connect", p.Address)
			out, errs := new(servertest.Buffer), new(servertest.Buffer)
			client.Stdout, client.Stderr = out, errs
			in, err := client.StdinPipe()
			if err == nil {
				err = client.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			answers := func(n int) func() bool {
				return func() bool {
					return len(answer.FindAllString(out.String(), -1)) == n && strings.HasSuffix(out.String(), "}")
				}
			}
			send := func(raw []byte) {
				_, _ = in.Write(raw) // fails if openssl has seen the end of the connection
			}
			send(first)
			servertest.Until(t, "the first answer came", answers(1))
			p.endWrites(t)
			send(r.raw)
			servertest.Until(t, "the refusal came", answers(2))
			if !strings.Contains(out.String(), "Connection: close") {
				_ = client.Process.Kill() // the connection stays open
			}
			_ = client.Wait() // its exit code is that of its input
			if got := answer.FindAllStringSubmatch(out.String(), -1); len(got) != 2 || got[1][1] != fmt.Sprint(r.code) ||
				!strings.Contains(out.String(), `"reason":"`+r.reason+`"`) || strings.Contains(errs.String(), "bad record mac") {
				t.Errorf("got %s %s, want %d %s", out, errs, r.code, r.reason)
			}
		})
	}
}
