package imagepolicywebhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// A lender has no memory for answers.
type lender struct{}

func (lender) Lend(context.Context, int64, bool) (giveBack func(), ok bool) { return nil, false }
func (lender) Keep(int64) bool                                              { return false }

// TestNoMemory has no memory for a long answer. This is not a failure of the backend: with defaultAllow,
// such a failure would allow the pod.
func TestNoMemory(t *testing.T) {
	f := func(bytes int, fits bool) {
		t.Helper()
		b := serve(t, says(`{"allowed":true,"reason":"`+strings.Repeat("x", bytes)+`"}`))
		for _, more := range []string{"", `,"allowTTL":-1`} {
			chain, _ := b.chain(t, `,"defaultAllow":true`+more)
			review := codec.Acquire()
			defer review.Release()
			if err := review.Decode(image("a")); err != nil {
				t.Fatal(err)
			}
			ctx := context.WithValue(t.Context(), codec.LenderKey{}, lender{})
			_, err := chain.Review(ctx, review, admission.Validate)
			if fits != (err == nil) || !fits && !errors.Is(err, codec.ErrNoMemory) {
				t.Errorf("%d bytes: got %v, want memory for it: %v", bytes, err, fits)
			}
		}
	}
	f(1000, true)
	f(16<<10, false)
}

// TestClip checks that clip drops only parts of an answer that the API server never gets.
func TestClip(t *testing.T) {
	f := func(reason int, annotations map[string]int, wantReason int, want map[string]int) {
		t.Helper()
		s := status{Reason: strings.Repeat("x", reason), AuditAnnotations: make(map[string]string)}
		for key, n := range annotations {
			s.AuditAnnotations[key] = strings.Repeat("x", n)
		}
		clip(&s)
		got := make(map[string]int)
		for key, value := range s.AuditAnnotations {
			got[key] = len(value)
		}
		if len(s.Reason) != wantReason || !maps.Equal(got, want) {
			t.Errorf("got a reason of %d bytes and %s, want %d and %s", len(s.Reason), fmt.Sprint(got), wantReason, fmt.Sprint(want))
		}
	}
	const most = cachedBytesMax
	f(most-1, nil, most-1, map[string]int{})
	f(most, nil, most, map[string]int{})
	f(most+1, nil, most, map[string]int{})
	f(0, map[string]int{"a": most - 1, "b": 1, "c": 64, "no key": 1}, 0, map[string]int{"a": most - 1, "b": 1, "c": 64})
	f(0, map[string]int{"a": most, "b": 100, "c": 65}, 0, map[string]int{"a": most, "b": 64, "c": 64})
	f(0, map[string]int{"a": most + 1, "b": 100}, 0, map[string]int{"a": most, "b": 64})
}

// TestProtocol has a backend that supports HTTP/2, which the plugin must not use; see answers.Protocols.
func TestProtocol(t *testing.T) {
	var got atomic.Value
	b := new(backendServer)
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Proto)
		says(`{"allowed":true}`)(w, r)
	}))
	b.EnableHTTP2 = true
	b.StartTLS()
	defer b.Close()
	chain, _ := b.chain(t, "")
	if said := message(t, chain, image("a")); said != "" || got.Load() != "HTTP/1.1" {
		t.Errorf("got %q with %v, want HTTP/1.1", said, got.Load())
	}
}
