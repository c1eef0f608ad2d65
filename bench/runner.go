package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fastjson"
)

// retriesMax is how often kube-apiserver repeats a request if the server answers 429 or 5xx with
// Retry-After (k8s.io/client-go/rest/request.go).
const retriesMax = 10

// A runner runs loads against a target.
type runner struct {
	config   *Config
	head     head
	pool     *pool
	checker  *checker
	recorder atomic.Pointer[recorder]

	mu      sync.Mutex
	workers []*worker // free workers
	made    uint64    // number of workers so far; it seeds the next one
}

// A worker sends one request at a time. It owns all buffers for that, so that sending does not
// allocate.
type worker struct {
	random    *rand.Rand
	parser    fastjson.Parser
	answer    fasthttp.Response
	recording *Recording // the recording in buffer
	buffer    []byte     // space for the headers, then the body
	body      int        // offset of the body
	head      int        // offset of the headers
	uid       []byte     // a view of the body
}

func newRunner(config *Config) (*runner, error) {
	r := &runner{config: config, head: newHead(&config.Target, config.Timeout, config.Model), checker: newChecker(config)}
	r.recorder.Store(newRecorder())
	r.pool = newPool(&config.Target, config.Model, func(d time.Duration) { r.recorder.Load().handshake(d) })
	c, err := r.pool.get(time.Now().Add(dialTimeout))
	if err != nil {
		return nil, fmt.Errorf("cannot connect to %s: %w", config.Target.URL, err)
	}
	r.pool.put(c)
	return r, nil
}

// run warms up, then measures.
func (r *runner) run(ctx context.Context) (*Result, error) {
	load := r.config.Load
	if load.WarmUp > 0 {
		warmUp := load
		warmUp.Duration, warmUp.Count = load.WarmUp, 0
		if _, err := r.phase(ctx, &warmUp, true); err != nil {
			return nil, err
		}
	}
	watch, err := startWatch(ctx, &r.config.Target, r.config.PprofDir, &load)
	if err != nil {
		return nil, err
	}
	opened, closed := r.pool.opened.Load(), r.pool.closed.Load()
	started := time.Now()
	result, err := r.phase(ctx, &load, false)
	if err != nil {
		return nil, err
	}
	result.Target, result.Load, result.Model, result.Mix = r.config.Target.Name, load.String(), r.config.Model, r.config.Mix.String()
	result.Started, result.Interrupted = started, ctx.Err() != nil
	result.Opened, result.Closed = r.pool.opened.Load()-opened, r.pool.closed.Load()-closed
	result.decisions = r.decisions()
	watch.finish(result)
	result.noteLag()
	return result, nil
}

// decisions returns the decision for each recording that was answered.
func (r *runner) decisions() map[string]bool {
	decisions := make(map[string]bool)
	for i, recording := range r.config.Mix.recordings {
		if decision := r.checker.learned[i].decision.Load(); decision != 0 {
			decisions[recording.Name] = decision == learnedAllowed
		}
	}
	return decisions
}

// phase runs a load until it ends.
func (r *runner) phase(ctx context.Context, load *Load, warmUp bool) (*Result, error) {
	clock, err := newWallClock()
	if err != nil {
		return nil, err
	}
	defer clock.close()
	recorder := newRecorder()
	r.recorder.Store(recorder)
	l := &loop{load: load, clock: clock, record: recorder.record, worker: r.worker, free: r.free, prepare: r.prepare, call: r.call}
	stop := r.report(recorder, clock, warmUp)
	l.run(ctx, r.config.Seed)
	stop()
	result := recorder.result()
	result.Offered, result.Unsent = load.Rate, l.unsent
	return result, nil
}

// report calls Progress every second until it is stopped.
func (r *runner) report(recorder *recorder, clock clock, warmUp bool) (stop func()) {
	if r.config.Progress == nil {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		var before int64
		var at time.Duration
		for {
			select {
			case <-end:
				return
			case <-ticker.C:
			}
			requests, failed, p99 := recorder.progress()
			now := clock.now()
			r.config.Progress(Progress{
				Target: r.config.Target.Name, WarmUp: warmUp, Elapsed: now, Requests: requests, Failed: failed,
				Rate: float64(requests-before) / (now - at).Seconds(), P99: p99,
			})
			before, at = requests, now
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// worker returns a free worker, or a new one.
func (r *runner) worker() *worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := len(r.workers) - 1; last >= 0 {
		w := r.workers[last]
		r.workers = r.workers[:last]
		return w
	}
	r.made++
	return &worker{random: rand.New(rand.NewPCG(r.config.Seed, 1+r.made))}
}

func (r *runner) free(w *worker) {
	r.mu.Lock()
	r.workers = append(r.workers, w)
	r.mu.Unlock()
}

// prepare prepares the nth request.
func (r *runner) prepare(w *worker, n int64) {
	recording := r.config.Mix.at(n)
	if w.recording != recording {
		w.recording = recording
		w.body = r.head.bytesMax()
		w.buffer = append(append(w.buffer[:0], make([]byte, w.body)...), recording.body...)
		headers := r.head.appendTo(w.buffer[:0], len(recording.body))
		w.head = w.body - len(headers)
		copy(w.buffer[w.head:], headers) // the headers end where the body begins
	}
	w.uid = recording.freshen(w.buffer[w.body:], w.random)
}

// call sends the prepared request and checks the answer.
func (r *runner) call(w *worker, clock clock, s *sample) {
	s.recording = w.recording
	deadline := time.Now().Add(r.config.Timeout)
	s.wrong = r.exchange(w, deadline)
	for s.wrong == nil && r.config.Model == APIServer && s.retries < retriesMax {
		wait, again := retryAfter(&w.answer)
		if !again {
			break
		}
		if time.Until(deadline) <= wait {
			s.wrong = faulty(FaultTimeout, "got %d with Retry-After: %s, which is after the timeout", w.answer.StatusCode(), w.answer.Header.Peek("Retry-After"))
			break
		}
		time.Sleep(wait)
		s.retries++
		s.wrong = r.exchange(w, deadline)
	}
	s.done = clock.now()
	if s.wrong == nil {
		s.bytes = len(w.answer.Body())
		s.verdict, s.wrong = r.checker.check(&w.parser, w.recording, w.buffer[w.body:], w.uid, &w.answer)
	}
}

// exchange sends the request once.
func (r *runner) exchange(w *worker, deadline time.Time) *wrong {
	c, err := r.pool.get(deadline)
	if err != nil {
		if isTimeout(err) {
			return &wrong{FaultTimeout, err}
		}
		return &wrong{FaultConnect, err}
	}
	if err := c.exchange(w.buffer[w.head:], w.body-w.head, r.config.Model == APIServer, deadline, &w.answer); err != nil {
		r.pool.drop(c)
		if isTimeout(err) {
			return &wrong{FaultTimeout, err}
		}
		return &wrong{FaultBroken, err}
	}
	if w.answer.ConnectionClose() || c.reader.Buffered() > 0 {
		r.pool.drop(c)
		return nil
	}
	r.pool.put(c)
	return nil
}

// retryAfter reports whether kube-apiserver would repeat the request, and after how long
// (k8s.io/client-go/rest/with_retry.go).
func retryAfter(answer *fasthttp.Response) (wait time.Duration, again bool) {
	if code := answer.StatusCode(); code != fasthttp.StatusTooManyRequests && code < fasthttp.StatusInternalServerError {
		return 0, false
	}
	seconds, err := strconv.Atoi(string(answer.Header.Peek("Retry-After")))
	return time.Duration(seconds) * time.Second, err == nil && seconds >= 0
}
