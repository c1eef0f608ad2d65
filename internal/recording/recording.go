// Package recording writes answered reviews to a folder. A recording consists of two files:
// <name>.json has the AdmissionReview as kube-apiserver sent it, and <name>.answer has the Answer.
// Secrets are replaced, see Redact.
//
// Names begin with the time, so sorted names are in the order of the reviews. Before the extension,
// they end in .allowed, .denied or .failed: the decision that the load generator expects.
package recording

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/codec"
)

// DefaultDir is the folder of recordings in the container of the chart, and the one that
// "fastadmit recordings" reads without an argument.
const DefaultDir = "/var/lib/fastadmit/recordings"

const (
	// reviewBytesMax is the largest review that is recorded. The largest object that etcd
	// stores by default has 1.5 MiB, and an update has it twice.
	reviewBytesMax = 4 << 20

	// queueMax is the maximum number of reviews that wait to be written: those of three seconds at
	// the default rate.
	queueMax = 64

	// queueBytesMax is the maximum number of bytes of waiting reviews: four of the largest.
	queueBytesMax = 4 * reviewBytesMax

	// pooledBytesMax is the largest text of a job whose memory is pooled for another job. Nine in
	// ten reviews are smaller.
	pooledBytesMax = 64 << 10

	// closeMax is how long Close waits until the last reviews are written.
	closeMax = time.Second
)

// Decision is the kind of an answer.
type Decision string

// The decisions. A review failed if it was answered with an HTTP error.
const (
	Allowed Decision = "allowed"
	Denied  Decision = "denied"
	Failed  Decision = "failed"
)

// Answer describes the answer to a recorded review.
type Answer struct {
	Time     time.Time `json:"time"`
	Endpoint string    `json:"endpoint"` // path of the webhook without the slash before it, such as "validate/fail"
	Decision Decision  `json:"decision"`
	Plugin   string    `json:"plugin,omitempty"`  // that denied the review, or failed
	Message  string    `json:"message,omitempty"` // of a failure
	// Configuration identifies the configuration that answered.
	Configuration string `json:"configuration,omitempty"`
	// LeftOut are the paths of the fields of the review whose values were replaced, because they
	// are secret. If there are any, the answer has no patch.
	LeftOut []string `json:"leftOut,omitempty"`
	// Review is the AdmissionReview with the response. A failed review has none.
	Review json.RawMessage `json:"review,omitempty"`
}

// Options configure a Recorder.
type Options struct {
	Dir string
	// Sample records one of so many allowed reviews; 0 records none. All denied and failed reviews
	// are recorded.
	Sample int64
	// Rate is the maximum number of reviews that are recorded in a second.
	Rate int64
	// Resources are the resources whose reviews are recorded, with group and subresource, such as
	// "pods", "deployments.apps" and "pods/exec". Empty means all.
	Resources []string
	// FilesMax, BytesMax and AgeMax bound the number, the size and the age of recordings. The oldest
	// recordings are removed first.
	FilesMax, BytesMax int64
	AgeMax             time.Duration
	// Secrets writes reviews unchanged, with all secrets.
	Secrets bool

	Log     *slog.Logger
	Metrics *metrics.Set
}

// A Recorder writes reviews in the background. Take never waits.
type Recorder struct {
	o         Options
	resources []resource
	seen      atomic.Uint64 // allowed reviews
	rate      rate
	queue     chan *Copy
	queued    atomic.Int64 // bytes in the queue
	folder    folder
	counted   counters
	stop      func()
	stopped   chan struct{} // closed by stop
	ended     chan struct{} // closed when all is written
	warned    time.Time
}

type resource struct{ group, resource, subresource string }

type counters struct {
	written                                   *metrics.Counter
	full, fast, large, broken, disk, redacted *metrics.Counter
}

// New returns a Recorder, which writes from a goroutine of its own until Close. It makes the
// folder when it first writes. If that fails, reviews are dropped, counted and logged.
func New(o *Options) *Recorder {
	r := newRecorder(o)
	go r.run()
	return r
}

// newRecorder returns a Recorder that does not write yet.
func newRecorder(o *Options) *Recorder {
	r := &Recorder{o: *o, queue: make(chan *Copy, queueMax), stopped: make(chan struct{}), ended: make(chan struct{})}
	r.stop = sync.OnceFunc(func() { close(r.stopped) })
	for _, name := range o.Resources {
		r.resources = append(r.resources, parseResource(name))
	}
	r.rate.max = o.Rate
	dropped := func(reason string) *metrics.Counter {
		return o.Metrics.NewCounter(fmt.Sprintf("fastadmit_recordings_dropped_total{reason=%q}", reason))
	}
	r.counted = counters{
		written: o.Metrics.NewCounter("fastadmit_recordings_total"), redacted: o.Metrics.NewCounter("fastadmit_recordings_changed_total"),
		full: dropped("queue"), fast: dropped("rate"), large: dropped("size"), broken: dropped("unreadable"), disk: dropped("disk"),
	}
	r.folder = folder{dir: o.Dir, filesMax: o.FilesMax, bytesMax: o.BytesMax, ageMax: o.AgeMax}
	o.Metrics.NewGauge("fastadmit_recordings_files", func() float64 { return float64(r.folder.files.Load()) })
	o.Metrics.NewGauge("fastadmit_recordings_bytes", func() float64 { return float64(r.folder.bytes.Load()) })
	return r
}

// parseResource reads "resource[.group][/subresource]".
func parseResource(name string) (r resource) {
	name, r.subresource, _ = strings.Cut(name, "/")
	r.resource, r.group, _ = strings.Cut(name, ".")
	return r
}

// Take records an answered review, unless the options exclude it. It copies the review. The strings of
// answer must not be views of the review. Take sets Time and Review of its copy of answer.
func (r *Recorder) Take(answer *Answer, review *codec.Review, body []byte) {
	if answer.Decision == Allowed && (r.o.Sample == 0 || r.seen.Add(1)%uint64(r.o.Sample) != 0) || !r.selects(review) {
		return
	}
	now := time.Now()
	switch {
	case len(body) > reviewBytesMax:
		r.counted.large.Inc()
		return
	case !r.rate.take(now):
		r.counted.fast.Inc()
		return
	case len(r.queue) == cap(r.queue) || r.queued.Load()+int64(len(body)) > queueBytesMax:
		r.counted.full.Inc()
		return
	}
	j := NewCopy(answer, review, body)
	j.Time = now.UTC()
	r.queued.Add(j.Bytes())
	select {
	case r.queue <- j:
	default:
		r.release(j)
		r.counted.full.Inc()
	}
}

// release subtracts a review from the bytes in the queue, and releases it.
func (r *Recorder) release(j *Copy) {
	r.queued.Add(-j.Bytes())
	j.Release()
}

func (r *Recorder) selects(review *codec.Review) bool {
	if len(r.resources) == 0 {
		return true
	}
	of := review.Resource()
	for i := range r.resources {
		if w := &r.resources[i]; w.resource == of.Resource && w.group == of.Group && w.subresource == review.SubResource() {
			return true
		}
	}
	return false
}

// Close ends the recording. It waits until all reviews are written, but at most closeMax.
func (r *Recorder) Close() {
	r.stop()
	select {
	case <-r.ended:
	case <-time.After(closeMax):
	}
}

// A rate allows a number of events in each second.
type rate struct {
	max    int64
	second atomic.Int64 // the second, shifted by countBits, and the number of events in it
}

const countBits = 24

func (r *rate) take(now time.Time) bool {
	second := now.Unix() << countBits
	for {
		last := r.second.Load()
		next := last + 1
		if last>>countBits != second>>countBits {
			next = second + 1
		}
		if next&(1<<countBits-1) > r.max {
			return false
		}
		if r.second.CompareAndSwap(last, next) {
			return true
		}
	}
}
