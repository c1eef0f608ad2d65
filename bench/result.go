package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a run measured. Times are in microseconds where they do not
// say otherwise.
type Result struct {
	Target string `json:"target"`
	Load   string `json:"load"`
	Model  Model  `json:"connections"`
	Mix    string `json:"mix"`

	Started     time.Time `json:"started"` // of what counts
	Seconds     float64   `json:"seconds"` // until the last answer
	Interrupted bool      `json:"interrupted,omitempty"`

	// Requests are those that were sent, and Failed those of them without a
	// right answer. Unsent were due in an open loop, but the time was over, or
	// as many were in flight as may be.
	Requests int64 `json:"requests"`
	Failed   int64 `json:"failed"`
	Unsent   int64 `json:"unsent,omitempty"`
	Retries  int64 `json:"retries,omitempty"`
	// Offered is the rate that the load asked for, 0 in a closed loop, and Rate
	// the one that was answered, in requests per second.
	Offered float64 `json:"offeredPerSecond,omitempty"`
	Rate    float64 `json:"requestsPerSecond"`

	// Latency is from when a request was due to its answer, of all requests,
	// failed ones included. Lag is from when it was due to when it was sent:
	// the part of the latency that the generator may be to blame for.
	Latency Latency `json:"latency"`
	Lag     Latency `json:"lag"`

	// Opened and Closed are connections. Handshakes is the time of the TLS
	// handshakes among the requests.
	Opened     int64   `json:"connectionsOpened"`
	Closed     int64   `json:"connectionsClosed"`
	Handshakes Latency `json:"handshakes"`

	RequestBytes float64 `json:"requestBytes"` // on average, bodies
	AnswerBytes  float64 `json:"answerBytes"`

	Faults []FaultCount `json:"faults,omitempty"`
	Kinds  []KindCount  `json:"kinds"`

	SlotSeconds float64 `json:"slotSeconds"`
	Timeline    []Slot  `json:"timeline"`

	// Server is the server's side, if the target says where to read it.
	Server *ServerUse `json:"server,omitempty"`
	// Notes are what is to be known to read the numbers right.
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
	// Points is the whole distribution, denser to its end.
	Points []Point `json:"points,omitempty"`
}

// Point says that a share of the requests, in percent, took up to a time.
type Point struct {
	Percentile float64 `json:"percentile"`
	Value      float64 `json:"value"`
}

// FaultCount is how often something was wrong, with the first example.
type FaultCount struct {
	Fault   Fault  `json:"fault"`
	Count   int64  `json:"count"`
	Example string `json:"example"`
}

// KindCount is what was answered to the recordings of a kind.
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

// Slot is a piece of the timeline: the answers that came in it.
type Slot struct {
	Requests int64   `json:"requests"`
	Failed   int64   `json:"failed,omitempty"`
	Slowest  float64 `json:"slowest"`
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
	const ticksPerHalf = 5 // points until half of what is left
	for _, bracket := range h.CumulativeDistributionWithTicks(ticksPerHalf) {
		l.Points = append(l.Points, Point{Percentile: bracket.Quantile, Value: microseconds(time.Duration(bracket.ValueAt))})
	}
	return l
}

// noteLag adds a note when the generator was late so much that the latencies
// tell of it rather than of the server.
func (r *Result) noteLag() {
	const part, least = 0.5, 1000 // of the p99 latency; microseconds
	if r.Lag.P99 > part*r.Latency.P99 && r.Lag.P99 > least {
		r.Notes = append(r.Notes, "the generator sent late (p99 "+Time.Format(r.Lag.P99)+
			"): it had too little processor time, or as much in flight as it may; the latencies include that")
	}
}
