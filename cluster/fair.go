package cluster

import (
	"container/list"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"
)

// callerNameMax is how many bytes of a user's name and of a namespace identify a caller.
// Longer names are truncated, so two of them may count as one caller. Names of
// namespaces have at most 63 bytes, and users have no names that need more.
const callerNameMax = 256

// A caller is the origin of a request to the API server: the plugin, the user of the
// reviewed request, and its namespace. A controller sends requests for all namespaces
// as one user, so the user alone is not enough.
type caller [3]string

const (
	callerPlugin = iota
	callerUser
	callerNamespace
)

// CallerKey is the context key of the Requester whose request is reviewed. Requests
// with contexts without a Requester count as those of one anonymous caller.
type CallerKey struct{}

// A Requester returns the user who sent the reviewed request, and the namespace of the
// request, which may be empty. The strings may be views of the review.
type Requester interface {
	Requester() (user, namespace string)
}

type callerContextKey struct{}

// asCaller returns ctx with the caller: the plugin and the Requester in ctx. If there is
// none, or it has no namespace, the caller gets the namespace of the requested object.
// The names are copied.
func asCaller(ctx context.Context, plugin, namespace string) context.Context {
	c := caller{callerPlugin: plugin}
	if known, ok := ctx.Value(callerContextKey{}).(caller); ok { // set by Detach
		c = known
		c[callerPlugin] = plugin
	} else if r, ok := ctx.Value(CallerKey{}).(Requester); ok {
		c[callerUser], c[callerNamespace] = r.Requester()
		c[callerUser] = tenantOf(c[callerUser])
		if working, ok := r.(interface{ Leave() }); ok {
			working.Leave() // the API server may take long to answer
		}
	}
	if c[callerNamespace] == "" {
		c[callerNamespace] = namespace
	}
	for i := callerUser; i < len(c); i++ {
		c[i] = strings.Clone(c[i][:min(len(c[i]), callerNameMax)])
	}
	return context.WithValue(ctx, callerContextKey{}, c)
}

// tenantOf returns the name under which a user's requests are counted. All
// ServiceAccounts of a namespace count as one, because a user who may create one may
// create many.
func tenantOf(user string) string {
	const prefix = "system:serviceaccount:"
	if name, ok := strings.CutPrefix(user, prefix); ok {
		if namespace, _, ok := strings.Cut(name, ":"); ok {
			return user[:len(prefix)+len(namespace)]
		}
	}
	return user
}

// Detach returns a context without a deadline, for a request to the API server that
// continues after ctx ends. It counts for the same caller. It retains neither ctx nor
// views of the review.
func Detach(ctx context.Context) context.Context {
	c := callerOf(asCaller(ctx, "", ""))
	return context.WithValue(context.Background(), callerContextKey{}, c)
}

// callerOf returns the caller in a context, an empty one if there is none.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerContextKey{}).(caller)
	return c
}

// A fairLimiter bounds the rate of requests to the API server. While requests wait,
// plugins take turns; within a plugin, users do; and for a user, namespaces do. So a
// caller with many requests waits for its own requests, and a request of another caller
// waits for at most one request of each caller.
//
// It is a flowcontrol.RateLimiter. It stores only waiting requests, of which there are
// at most as many as reviews in progress.
type fairLimiter struct {
	tokens *rate.Limiter

	waits   atomic.Int64     // the number of waiting requests
	givenUp *metrics.Counter // requests whose context ended while they waited

	mu          sync.Mutex
	waiting     line
	dispatching bool
}

func newFairLimiter(qps float64, burst int, set *metrics.Set) *fairLimiter {
	l := &fairLimiter{
		tokens:  rate.NewLimiter(rate.Limit(qps), burst),
		givenUp: set.NewCounter("fastadmit_cluster_requests_given_up_total"),
	}
	set.NewGauge("fastadmit_cluster_requests_waiting", func() float64 { return float64(l.waits.Load()) })
	return l
}

// A line is a queue of waiting requests of one caller, or of lines that take turns.
type line struct {
	queue list.List                // of *line or, for one caller, of *turn; the front is next
	lines map[string]*list.Element // the lines in queue, by name
}

// A turn is a waiting request.
type turn struct {
	caller  caller
	element *list.Element // in the line of the caller
	granted chan struct{} // closed when the request may be sent
}

func (l *line) isEmpty() bool { return l.queue.Len() == 0 }

// add puts t at the end of the line that path leads to.
func (l *line) add(t *turn, path []string) {
	if len(path) == 0 {
		t.element = l.queue.PushBack(t)
		return
	}
	e, ok := l.lines[path[0]]
	if !ok {
		if l.lines == nil {
			l.lines = make(map[string]*list.Element)
		}
		e = l.queue.PushBack(new(line))
		l.lines[path[0]] = e
	}
	e.Value.(*line).add(t, path[1:])
}

// remove removes t from the line that path leads to, and lines that are empty then.
func (l *line) remove(t *turn, path []string) {
	if len(path) == 0 {
		l.queue.Remove(t.element)
		return
	}
	e := l.lines[path[0]]
	inside := e.Value.(*line)
	if inside.remove(t, path[1:]); inside.isEmpty() {
		l.queue.Remove(e)
		delete(l.lines, path[0])
	}
}

// next returns the turn that is next, and moves its lines to the end.
func (l *line) next() *turn {
	front := l.queue.Front()
	inside, ok := front.Value.(*line)
	if !ok {
		return front.Value.(*turn)
	}
	l.queue.MoveToBack(front)
	return inside.next()
}

// Wait waits until a request of the caller in ctx may be sent. If ctx ends before, it
// returns its error.
func (l *fairLimiter) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.waiting.isEmpty() && l.tokens.Allow() {
		l.mu.Unlock()
		return nil
	}
	t := &turn{caller: callerOf(ctx), granted: make(chan struct{})}
	l.waiting.add(t, t.caller[:])
	l.waits.Add(1)
	defer l.waits.Add(-1)
	if !l.dispatching {
		l.dispatching = true
		go l.dispatch()
	}
	l.mu.Unlock()
	select {
	case <-t.granted:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-t.granted: // between ctx.Done and the lock
		return nil
	default:
		l.waiting.remove(t, t.caller[:])
		l.givenUp.Inc()
		return ctx.Err()
	}
}

// dispatch grants turns until nobody waits.
func (l *fairLimiter) dispatch() {
	for more := true; more; {
		time.Sleep(l.tokens.Reserve().Delay())
		more = l.grant()
	}
}

// grant grants the next turn. It returns false if nobody waits any more.
func (l *fairLimiter) grant() (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting.isEmpty() {
		t := l.waiting.next()
		l.waiting.remove(t, t.caller[:])
		close(t.granted)
	}
	l.dispatching = !l.waiting.isEmpty()
	return l.dispatching
}

// Accept waits until a request may be sent.
func (l *fairLimiter) Accept() { _ = l.Wait(context.Background()) }

// TryAccept reports whether a request may be sent now.
func (l *fairLimiter) TryAccept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.isEmpty() && l.tokens.Allow()
}

// QPS returns how many requests may be sent each second.
func (l *fairLimiter) QPS() float32 { return float32(l.tokens.Limit()) }

// Stop does nothing: the limiter has no goroutine while no request waits.
func (l *fairLimiter) Stop() {}
