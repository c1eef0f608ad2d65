//go:build !race

package bench

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fastadmit/fastadmit/internal/allocs"
)

// Sending and checking a request allocates nothing, so that the generator takes little of the
// machine's time.
func TestRequestsAllocateNothing(t *testing.T) {
	recordings, err := Bundled("v1")
	if err != nil {
		t.Fatal(err)
	}
	config := &Config{Target: Target{URL: "https://x"}, Load: Load{Count: 1}, Mix: mix(t, recordings...)}
	if err := config.complete(); err != nil {
		t.Fatal(err)
	}
	r := &runner{config: config, head: newHead(&config.Target, config.Timeout, config.Model), checker: newChecker(config)}
	w := &worker{random: rand.New(rand.NewPCG(1, 2))}
	recorder := newRecorder()
	const before, after = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"`, `","allowed":true}}`
	var body []byte
	var n int64
	step := func() {
		r.prepare(w, n)
		n++
		w.answer.Reset()
		body = append(append(append(body[:0], before...), w.uid...), after...)
		w.answer.SetBodyRaw(body)
		s := sample{recording: w.recording, done: time.Millisecond}
		if _, s.wrong = r.checker.check(&w.parser, w.recording, w.buffer[w.body:], w.uid, &w.answer); s.wrong != nil {
			t.Fatal(s.wrong)
		}
		recorder.record(&s)
	}
	for range len(config.Mix.sequence) {
		step()
	}
	if allocations := allocs.PerRun(1000, step); allocations != 0 {
		t.Errorf("got %g allocations per request, want 0", allocations)
	}
}
