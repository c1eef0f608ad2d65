package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is the measurement of a run, without the warm-up. Times are in microseconds
// unless stated otherwise.
type Result struct {
	Target string `json:"target"`      // name
	Load   string `json:"load"`        // Load.String
	Model  Model  `json:"connections"` // of the connections
	Mix    string `json:"mix"`         // Mix.String

	Started     time.Time `json:"started"`
	Seconds     float64   `json:"seconds"` // from the start to the last answer
	Interrupted bool      `json:"interrupted,omitempty"`

	// Requests is the number of requests that were sent. Failed is the number of those
	// that have a Fault. Unsent is the number of requests of an open loop that were due
	// in the Duration of the load but could not be sent in it. Retries is the number of
	// repeated requests; Requests does not include them.
	Requests int64 `json:"requests"`
	Failed   int64 `json:"failed"`
	Unsent   int64 `json:"unsent,omitempty"`
	Retries  int64 `json:"retries,omitempty"`
	// Offered is the rate of the load, 0 in a closed loop. Rate is the number of
	// requests divided by Seconds, failed ones included. Both are per second.
	Offered float64 `json:"offeredPerSecond,omitempty"`
	Rate    float64 `json:"requestsPerSecond"`

	// Latency is the time from when a request was due to its answer, failed requests
	// included. Lag is the part of it before the request was sent. A long lag means that
	// the load generator was too slow, or too many requests were in flight.
	Latency Latency `json:"latency"`
	Lag     Latency `json:"lag"`

	// Opened and Closed count connections. Handshakes is the time that TLS handshakes
	// took.
	Opened     int64   `json:"connectionsOpened"`
	Closed     int64   `json:"connectionsClosed"`
	Handshakes Latency `json:"handshakes"`

	// RequestBytes and AnswerBytes are the average lengths of the bodies.
	RequestBytes float64 `json:"requestBytes"`
	AnswerBytes  float64 `json:"answerBytes"`

	Faults []FaultCount `json:"faults,omitempty"` // the most frequent first
	Kinds  []KindCount  `json:"kinds"`            // sorted by name

	// Timeline divides the run into slots of SlotSeconds.
	SlotSeconds float64 `json:"slotSeconds"`
	Timeline    []Slot  `json:"timeline"`

	// Server is the resource usage of the server, nil if the target has neither
	// MetricsURL nor PID.
	Server *ServerUse `json:"server,omitempty"`
	// Notes are warnings, for example that profiles are missing or the generator was late.
	Notes []string `json:"notes,omitempty"`

	histogram *hdrhistogram.Histogram
	decisions map[string]bool // by name of the recording: allowed
}

// Latency is a distribution of times, in microseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
	// Points is the whole distribution, with more points at high percentiles.
	Points []Point `json:"points,omitempty"`
}

// Point is a percentile of a distribution.
type Point struct {
	Percentile float64 `json:"percentile"` // from 0 to 100
	Value      float64 `json:"value"`      // in microseconds
}

// FaultCount counts the requests with one fault.
type FaultCount struct {
	Fault   Fault  `json:"fault"`
	Count   int64  `json:"count"`
	Example string `json:"example"` // the first one, with its recording
}

// KindCount counts the requests of one kind. Each of them is allowed, denied or failed.
// Patched counts those of the allowed ones that have a patch.
type KindCount struct {
	Kind     string  `json:"kind"`
	Requests int64   `json:"requests"`
	Allowed  int64   `json:"allowed"`
	Denied   int64   `json:"denied"`
	Patched  int64   `json:"patched"`
	Failed   int64   `json:"failed"`
	Mean     float64 `json:"meanLatency"`
}

func (k *KindCount) add(s *sample, latency time.Duration) {
	k.Requests++
	k.Mean += (microseconds(latency) - k.Mean) / float64(k.Requests)
	switch {
	case s.wrong != nil:
		k.Failed++
	case !s.verdict.allowed:
		k.Denied++
	default:
		k.Allowed++
		if s.verdict.patched {
			k.Patched++
		}
	}
}

// Slot counts the requests that ended in one slot of the timeline.
type Slot struct {
	Requests int64   `json:"requests"` // failed ones included
	Failed   int64   `json:"failed,omitempty"`
	Slowest  float64 `json:"slowest"` // the longest latency in microseconds
}

func (s *Slot) merge(other *Slot) {
	s.Requests += other.Requests
	s.Failed += other.Failed
	s.Slowest = max(s.Slowest, other.Slowest)
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// newLatency summarizes a histogram.
func newLatency(h *hdrhistogram.Histogram) Latency {
	l := Latency{Count: h.TotalCount()}
	if l.Count == 0 {
		return l
	}
	at := func(percentile float64) float64 { return microseconds(time.Duration(h.ValueAtQuantile(percentile))) }
	l.Mean = h.Mean() / float64(time.Microsecond)
	l.P50, l.P90, l.P99, l.P999, l.Max = at(50), at(90), at(99), at(99.9), at(100)
	const ticksPerHalf = 5 // points until half of the remaining requests
	for _, bracket := range h.CumulativeDistributionWithTicks(ticksPerHalf) {
		l.Points = append(l.Points, Point{Percentile: bracket.Quantile, Value: microseconds(time.Duration(bracket.ValueAt))})
	}
	return l
}

// noteLag adds a note if the generator was so late that the latencies measure the generator, not
// the server.
func (r *Result) noteLag() {
	const part, least = 0.5, 1000 // a part of the p99 latency, and microseconds
	if r.Lag.P99 > part*r.Latency.P99 && r.Lag.P99 > least {
		r.Notes = append(r.Notes, "the generator sent late (p99 "+Time.Format(r.Lag.P99)+
			"): it had too little processor time, or as much in flight as it may; the latencies include that")
	}
}
