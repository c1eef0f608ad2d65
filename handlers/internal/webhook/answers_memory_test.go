package webhook_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// peakOf returns the largest number of bytes by which the heap grows while f runs.
func peakOf(t *testing.T, f func()) int64 {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Int64
	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				runtime.ReadMemStats(&now)
				peak.Store(max(peak.Load(), int64(now.HeapAlloc)-int64(before.HeapAlloc)))
			}
		}
	}()
	f()
	close(ended)
	<-stopped
	return peak.Load()
}

// TestAnswersMemory has a webhook with answers of the maximum length, whose elements take the most memory
// when they are decoded. Without a limit, causes took 555 MiB.
func TestAnswersMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("large answers take long; TestAnswers has small ones")
	}
	const size, most = 8<<20 - 1000, 64 << 20 // twice the memory of an answer: the backend has it, too
	texts := map[string]string{
		"/causes":      `"allowed":false,"status":{"details":{"causes":[` + strings.Repeat("{},", size/3) + `{}]}}`,
		"/warnings":    `"allowed":true,"warnings":[` + strings.Repeat(`"",`, size/3) + `""]`,
		"/annotations": `"allowed":true,"auditAnnotations":{` + strings.Repeat(`"":"",`, size/6) + `"":""}`,
		"/unknown":     `"allowed":true,"unknown":[` + strings.Repeat(`[],`, size/3) + `[]]`,
		"/error":       `{"kind":"Status","apiVersion":"v1","details":{"causes":[` + strings.Repeat("{},", size/3) + `{}]}}`,
		"/yaml":        `[` + strings.Repeat("{},", size/3) + `{}]`,
	}
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		switch text := texts[r.URL.Path]; r.URL.Path {
		case "/error":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, text)
		case "/yaml":
			_, _ = io.WriteString(w, text)
		default:
			answer(w, a.Request.UID, text)
		}
	})
	for path := range texts {
		for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
			chain := b.chain(phase, upstreamConfig, hook{name: "a.example.com", path: path, more: `"timeoutSeconds":30`})
			var r result
			peak := peakOf(t, func() { r = ask(t, chain, phase, pod) })
			if failed := strings.Contains(r.message, "failed calling webhook"); peak > most ||
				failed != (path == "/error" || path == "/yaml") {
				t.Errorf("%s: got %d MiB and %s, want %d MiB at most", path, peak>>20, r.message, most>>20)
			}
		}
	}
}

// A lender has no memory for answers.
type lender struct{}

func (lender) Lend(context.Context, int64, bool) (giveBack func(), ok bool) { return nil, false }
func (lender) Keep(int64) bool                                              { return false }

// TestNoMemoryForAnswers has no memory for an answer, or for its patch. This is not a failure of the
// webhook: the review fails although failurePolicy is Ignore, and the circuit stays closed.
func TestNoMemoryForAnswers(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		switch a, _ := readAsked(t, r); r.URL.Path {
		case "/small":
			answer(w, a.Request.UID, `"allowed":true`)
		case "/large":
			answer(w, a.Request.UID, `"allowed":true,"warnings":["`+strings.Repeat("x", 16<<10)+`"]`)
		case "/braces":
			answer(w, a.Request.UID, patched(t, `[{"op":"add","path":"/metadata/labels","value":[`+strings.Repeat("{},", 64)+`{}]}]`))
		}
	})
	f := func(phase admission.Phase, path string, fits bool) {
		t.Helper()
		const config = `{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration",` +
			`"circuit":{"failures":1,"pause":"10m"}}`
		chain := b.chain(phase, config, hook{name: "a.example.com", path: path, more: `"failurePolicy":"Ignore"`})
		ctx := context.WithValue(t.Context(), codec.LenderKey{}, lender{})
		for range 2 {
			if r := askIn(ctx, t, chain, phase, pod); fits != (r.message == "") ||
				!fits && !strings.Contains(r.message, codec.ErrNoMemory.Error()) {
				t.Errorf("%v %s: got %+v, want memory for it: %v", phase, path, r, fits)
			}
		}
	}
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		f(phase, "/small", true)
		f(phase, "/large", false)
	}
	f(admission.Mutate, "/braces", false)
}
