package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// TestLargeResults has 100 MB of objects, each with a message of the same length, which is truncated. Results are
// written in all formats, and as reports, without staying in memory.
func TestLargeResults(t *testing.T) {
	const bytes, heapMax, writtenMin = 1 << 20, 128 << 20, 32 << 10 // messages are cut
	objects := 100
	if testing.Short() {
		objects = 10 // enough for the race detector
	}
	s := newStand(t)
	s.serveReports(openReports, "reports", "clusterreports")
	s.lists["/api/v1/pods"] = nil
	text := strings.Repeat("x", bytes)
	s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/pods" {
			return false
		}
		s.mu.Unlock() // reports are written meanwhile
		defer s.mu.Lock()
		fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`)
		for i := range objects {
			if i > 0 {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, `{"metadata":{"name":"p%04d","namespace":"ns0","uid":"u%[1]d","annotations":{"a":%q}}}`, i, text)
		}
		fmt.Fprint(w, "]}")
		return true
	}
	long := errors.New(strings.Repeat("<", bytes))
	chain := chainOf(t, admission.Plugin{
		Name: "Refuses", Rules: []admission.Rule{admission.Any()}, Validates: true, OutOfTree: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: func(context.Context, *codec.Review) admission.Result { return admission.Denied(long) }}, nil
		},
	})
	reports, err := NewReports(t.Context(), s.config(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var writers []report.Writer
	var total counter
	for _, format := range report.Formats() {
		writer, err := report.New(format, &total, report.Options{})
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, writer)
	}
	begin, seen := time.Now(), 0
	peak := heapPeak(func() {
		err = Run(t.Context(), s.options(chain, "pods"), func(r *report.Result) error {
			seen++
			for _, w := range writers {
				if err := w.Write(r); err != nil {
					return err
				}
			}
			if err := reports.Write(t.Context(), r); err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			clear(s.written)
			return nil
		})
	})
	if err != nil || seen != objects || len(s.writes) != objects || total < counter(objects*writtenMin) {
		t.Errorf("got %v, %d results, %d reports, %d bytes", err, seen, len(s.writes), total)
	}
	if peak > heapMax {
		t.Errorf("got %d MiB of memory, want at most %d", peak>>20, heapMax>>20)
	}
	t.Logf("%s, %d MiB written, %d MiB of memory", time.Since(begin), total>>20, peak>>20)
}

// counter counts the bytes that are written.
type counter int64

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return io.Discard.Write(b)
}

// heapPeak returns by how much the heap grows while f runs.
func heapPeak(f func()) int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	before, peak := stats.HeapAlloc, uint64(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		select {
		case <-done:
			return max(0, int64(peak)-int64(before))
		case <-time.After(5 * time.Millisecond):
			runtime.ReadMemStats(&stats)
			peak = max(peak, stats.HeapAlloc)
		}
	}
}
