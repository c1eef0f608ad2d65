package webhook_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
)

// TestFloods has a webhook that sends an endless answer, or endless data before or after one. The call
// fails in time and uses little memory.
func TestFloods(t *testing.T) {
	const peakMax = 32 << 20 // an answer of 8 MiB, and its buffers
	lasts := time.Second
	if testing.Short() {
		lasts /= 4 // the race detector needs no long ones
	}
	f := func(name, first, piece string) {
		t.Helper()
		b := newBackend(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			defer conn.Close()
			pieces := []byte(strings.Repeat(piece, 64<<10/len(piece)))
			_, err = conn.Write([]byte(first))
			for err == nil {
				_, err = conn.Write(pieces)
			}
		})
		chain := b.chain(admission.Validate, upstreamConfig, hook{name: "a.example.com", path: "/"})
		peak := peakOf(t, func() {
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			if r := askIn(ctx, t, chain, admission.Validate, pod); r.message == "" {
				t.Errorf("%s: got no failure", name)
			}
		})
		if peak > peakMax {
			t.Errorf("%s: got %d KiB, want at most %d KiB", name, peak>>10, peakMax>>10)
		}
	}
	const ok = "HTTP/1.1 200 OK\r\n"
	f("lines of a header", ok, "a: b\r\n")
	f("a line of a header", ok+"a: ", "b")
	f("a status", "HTTP/1.1 200 ", "b")
	f("informational answers", "", "HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n")
	f("large informational answers", "", fmt.Sprintf("HTTP/1.1 103 Early Hints\r\na: %s\r\n\r\n", strings.Repeat("b", 32<<10)))
	f("chunks of a byte", ok+"Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n")
	f("chunk extensions", ok+"Transfer-Encoding: chunked\r\n\r\n1;", "a=b;")
	f("trailers", ok+"Transfer-Encoding: chunked\r\n\r\n0\r\n", "a: b\r\n")
	f("a body", ok+"Content-Type: application/json\r\n\r\n", " ")
}
