package bench

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// Latencies are recorded with three significant digits, between these bounds. A request takes
	// at most 30 s, but it may be sent long after it was due.
	latencyMin    = 100 * time.Nanosecond
	latencyMax    = time.Hour
	latencyDigits = 3

	// slotsMax is the maximum number of slots in the timeline. When it is reached, the slots double
	// in width. slotMin is their width at first.
	slotsMax = 240
	slotMin  = 100 * time.Millisecond
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(latencyMin), int64(latencyMax), latencyDigits)
}

func recordIn(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(int64(min(max(d, latencyMin), latencyMax))) // the value is always in bounds
}

// A sample is the measurement of one request.
type sample struct {
	recording *Recording
	due       time.Duration // when it should have been sent
	sent      time.Duration // when it was sent
	done      time.Duration
	bytes     int // of the answer's body
	retries   int
	verdict   verdict
	wrong     *wrong
}

// A recorder adds up samples. It is safe for concurrent use.
type recorder struct {
	mu         sync.Mutex
	latency    *hdrhistogram.Histogram
	lag        *hdrhistogram.Histogram
	handshakes *hdrhistogram.Histogram

	requests, failed, retries int64
	requestBytes, answerBytes int64
	last                      time.Duration // when the last one was done
	faults                    map[Fault]*FaultCount
	kinds                     map[string]*KindCount
	slot                      time.Duration
	slots                     []Slot
}

func newRecorder() *recorder {
	return &recorder{
		latency: newHistogram(), lag: newHistogram(), handshakes: newHistogram(),
		faults: make(map[Fault]*FaultCount), kinds: make(map[string]*KindCount), slot: slotMin,
	}
}

func (r *recorder) record(s *sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	latency := s.done - s.due
	recordIn(r.latency, latency)
	recordIn(r.lag, s.sent-s.due)
	r.requests++
	r.retries += int64(s.retries)
	r.requestBytes += int64(s.recording.Bytes())
	r.answerBytes += int64(s.bytes)
	r.last = max(r.last, s.done)

	kind := r.kinds[s.recording.Kind]
	if kind == nil {
		kind = &KindCount{Kind: s.recording.Kind}
		r.kinds[s.recording.Kind] = kind
	}
	kind.add(s, latency)
	slot := r.slotAt(s.done)
	slot.Requests++
	slot.Slowest = max(slot.Slowest, microseconds(latency))
	if s.wrong != nil {
		r.failed++
		slot.Failed++
		r.fault(s)
	}
}

func (r *recorder) fault(s *sample) {
	fault := r.faults[s.wrong.fault]
	if fault == nil {
		fault = &FaultCount{Fault: s.wrong.fault, Example: s.recording.Name + ": " + s.wrong.err.Error()}
		r.faults[s.wrong.fault] = fault
	}
	fault.Count++
}

// slotAt returns the slot of the timeline that a time belongs to.
func (r *recorder) slotAt(at time.Duration) *Slot {
	for int(at/r.slot) >= slotsMax {
		for i := 0; i < len(r.slots); i += 2 {
			merged := r.slots[i]
			if i+1 < len(r.slots) {
				merged.merge(&r.slots[i+1])
			}
			r.slots[i/2] = merged
		}
		r.slots = r.slots[:(len(r.slots)+1)/2]
		r.slot *= 2
	}
	i := int(at / r.slot)
	for len(r.slots) <= i {
		r.slots = append(r.slots, Slot{})
	}
	return &r.slots[i]
}

func (r *recorder) handshake(d time.Duration) {
	r.mu.Lock()
	recordIn(r.handshakes, d)
	r.mu.Unlock()
}

// progress returns counts so far.
func (r *recorder) progress() (requests, failed int64, p99 time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.failed, time.Duration(r.latency.ValueAtQuantile(99))
}

// result returns the measurement. Do not use the recorder afterwards.
func (r *recorder) result() *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	result := &Result{
		Requests: r.requests, Failed: r.failed, Retries: r.retries,
		Seconds: r.last.Seconds(),
		Latency: newLatency(r.latency), Lag: newLatency(r.lag), Handshakes: newLatency(r.handshakes),
		SlotSeconds: r.slot.Seconds(), Timeline: r.slots,
		histogram: r.latency,
	}
	if r.last > 0 {
		result.Rate = float64(r.requests) / r.last.Seconds()
	}
	if r.requests > 0 {
		result.RequestBytes = float64(r.requestBytes) / float64(r.requests)
		result.AnswerBytes = float64(r.answerBytes) / float64(r.requests)
	}
	for _, fault := range slices.SortedFunc(maps.Values(r.faults), func(a, b *FaultCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Fault, b.Fault))
	}) {
		result.Faults = append(result.Faults, *fault)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
		result.Kinds = append(result.Kinds, *r.kinds[kind])
	}
	return result
}
