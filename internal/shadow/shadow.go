// Package shadow asks a second chain of plugins the reviews that were answered, and counts how its answers differ.
// Nobody gets its answers. It writes nothing to the cluster, and reviews that it has no time or memory for are
// skipped.
package shadow

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/memory"
	"github.com/fastadmit/fastadmit/internal/recording"
	"github.com/fastadmit/fastadmit/internal/turns"
)

const (
	// ProcessorPercentDefault is how much of one processor the shadow uses by default. A review takes less than 0.1 ms
	// of a processor, so that is a thousand reviews a second, ten times as many as most clusters send.
	ProcessorPercentDefault = 10

	// memoryDefault is the memory of the shadow if the process has no memory limit.
	memoryDefault = 64 << 20

	// queueMax is the maximum number of reviews that wait.
	queueMax = 64

	// reviewMax is how long one review may take. Nobody waits for it, but the ones behind it do.
	reviewMax = 3 * time.Second

	// closeMax is how long Close waits for the review in progress.
	closeMax = time.Second

	// A share of the memory is for the bodies that wait, the rest for the review in progress. bodyTakes is the least
	// memory that a review takes for each byte of its body.
	waitingShare = 4
	bodyTakes    = 8
)

// Options configure a Shadow.
type Options struct {
	Turns *turns.Turns
	// Busy reports whether the server has so much to do that the shadow is to do nothing.
	Busy func() bool
	// MemoryOf returns how much memory a review with this body may take.
	MemoryOf func(body []byte) int64
	Log      *slog.Logger
	Metrics  *metrics.Set
}

// A Config is what the shadow tries.
type Config struct {
	// Chain has the plugins. Plugins made them.
	Chain *admission.Chain
	// Changed are the names of the plugins that are not enabled, or have other settings, outside of the shadow.
	Changed []string
	// LeftOut are the names of the plugins that are enabled and not in the chain. Reviews that they
	// denied or changed are skipped.
	LeftOut []string
	// ProcessorPercent is how much of one processor the shadow may use.
	ProcessorPercent int64
	// MemoryMax is how many bytes of memory it may use. 0 means a share of the process' memory limit.
	MemoryMax int64
}

// A Shadow reviews in the background. Several goroutines may use it at the same time.
type Shadow struct {
	o       Options
	queue   chan job
	queued  atomic.Int64 // bytes of the jobs in the queue
	current atomic.Pointer[Trial]
	counted atomic.Pointer[counters] // nil before the first Trial
	start   sync.Once
	stop    func()
	ctx     context.Context // ends with stop
	ended   chan struct{}   // closed when the worker has ended
	stuck   atomic.Int64    // reviews that do not return
	started atomic.Bool
}

// New returns a Shadow that tries nothing yet.
func New(o *Options) *Shadow {
	s := &Shadow{o: *o, queue: make(chan job, queueMax), ended: make(chan struct{})}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// A Trial is what a Shadow tries, from Use until it is given something else.
type Trial struct {
	shadow *Shadow
	Config
	waitingMax, reviewMax int64           // bytes
	known                 map[string]bool // plugins of the chain, and those that are left out
	found                 differences
	stuck                 atomic.Int64 // its reviews that do not return
}

// A job is an answered review, and what it is to be asked.
type job struct {
	*recording.Copy
	trial *Trial
}

// Use makes the Shadow try something else, nothing if c is nil. Reviews that wait for the previous Trial are
// skipped. digest identifies the configuration. The result is for the reviews that are answered from now on; it is nil
// if c is.
func (s *Shadow) Use(c *Config, digest string) *Trial {
	if c == nil {
		s.current.Store(nil)
		return nil
	}
	s.start.Do(func() {
		s.counted.Store(newCounters(s.o.Metrics))
		s.o.Metrics.NewGauge("fastadmit_shadow_stuck_reviews", func() float64 { return float64(s.stuck.Load()) })
		s.started.Store(true)
		go s.run()
	})
	t := &Trial{shadow: s, Config: *c, known: make(map[string]bool)}
	for _, p := range c.Chain.Plugins() {
		t.known[p.Name] = true
	}
	for _, name := range c.LeftOut {
		t.known[name] = true
	}
	most := c.MemoryMax
	if most == 0 {
		most = memory.Share(memory.ShadowShare, memoryDefault)
	}
	t.waitingMax = most / waitingShare
	t.reviewMax = most - t.waitingMax
	t.found.begin(digest)
	s.current.Store(t)
	return t
}

// Take hands an answered review to the shadow, unless that has too much to do. It copies the review, and never
// waits. The strings of answer must not be views of the review.
func (t *Trial) Take(answer *recording.Answer, review *codec.Review, body []byte) {
	s := t.shadow
	counted := s.counted.Load()
	switch {
	case s.o.Busy():
		counted.skip(t, skippedLoad)
		return
	case t.isStopped():
		counted.skip(t, skippedStuck)
		return
	case int64(len(body))*bodyTakes > t.reviewMax:
		counted.skip(t, skippedMemory)
		return
	case len(s.queue) == cap(s.queue) || s.queued.Load()+int64(len(body)) > t.waitingMax:
		counted.skip(t, skippedQueue)
		return
	}
	j := job{recording.NewCopy(answer, review, body), t}
	s.queued.Add(j.Bytes())
	select {
	case s.queue <- j:
	default:
		s.release(j)
		counted.skip(t, skippedQueue)
	}
}

// release subtracts a job from the bytes in the queue, and releases its review.
func (s *Shadow) release(j job) {
	s.queued.Add(-j.Bytes())
	j.Release()
}

// Close ends the shadow. Reviews that wait are dropped. It waits for the one in progress, but at most closeMax.
func (s *Shadow) Close() {
	s.current.Store(nil)
	s.stop()
	if !s.started.Load() {
		return
	}
	select {
	case <-s.ended:
	case <-time.After(closeMax):
	}
}

// Plugins returns the plugins of a table for the shadow. They write nothing to the cluster: they get read-only
// views, and to those with side effects each review is a dry run. They have logs and metrics of their own.
func Plugins(table []admission.Plugin, log *slog.Logger, set *metrics.Set) []admission.Plugin {
	table = slices.Clone(table)
	for i := range table {
		p := &table[i]
		create, hasSideEffects := p.New, p.SideEffects != ""
		p.New = func(setup admission.Setup) (admission.Handler, error) {
			setup.Metrics = set
			if setup.Cluster != nil {
				setup.Cluster = setup.Cluster.ReadOnly(log, set)
			}
			h, err := create(setup)
			if hasSideEffects {
				h.Admit, h.Validate = asDryRun(h.Admit), asDryRun(h.Validate)
			}
			return h, err
		}
	}
	return table
}

// asDryRun returns a function of a handler, which may be nil, that sees dry runs.
func asDryRun(decide func(context.Context, *codec.Review) admission.Result) func(context.Context, *codec.Review) admission.Result {
	if decide == nil {
		return nil
	}
	return func(ctx context.Context, review *codec.Review) admission.Result {
		review.AsDryRun(true)
		defer review.AsDryRun(false)
		return decide(ctx, review)
	}
}

// isOf reports whether a message begins with the name of a plugin.
func isOf(plugin, message string) bool { return strings.HasPrefix(message, plugin+": ") }
