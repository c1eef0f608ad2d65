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

// callerNameMax is how many bytes of a user's name and of a namespace tell
// callers apart. Longer names are cut, so that two of them may count as one
// caller. Names of namespaces have at most 63 bytes, and names of users that
// need more are not in use.
const callerNameMax = 256

// A caller is on whose behalf the API server is asked: the plugin, the user of
// the request under review, and the namespace of that request. Controllers make
// requests for all namespaces under one name, so the user alone is not enough.
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

// asCaller returns ctx with the caller: the plugin, and the requester that ctx
// has. Without one, the namespace is that of the object that is asked for. The
// names are copies.
func asCaller(ctx context.Context, plugin, namespace string) context.Context {
	c := caller{callerPlugin: plugin}
	if known, ok := ctx.Value(callerContextKey{}).(caller); ok { // of Detach
		c = known
		c[callerPlugin] = plugin
	} else if r, ok := ctx.Value(CallerKey{}).(Requester); ok {
		c[callerUser], c[callerNamespace] = r.Requester()
		c[callerUser] = tenantOf(c[callerUser])
	}
	if c[callerNamespace] == "" {
		c[callerNamespace] = namespace
	}
	for i := callerUser; i < len(c); i++ {
		c[i] = strings.Clone(c[i][:min(len(c[i]), callerNameMax)])
	}
	return context.WithValue(ctx, callerContextKey{}, c)
}

// tenantOf returns the name that a user's share belongs to: all ServiceAccounts
// of a namespace have one, because whoever may create one may create many.
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

// callerOf returns the caller of a context, an empty one for none.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerContextKey{}).(caller)
	return c
}

// A fairLimiter bounds the rate of requests of the API server. While requests
// have to wait, plugins take turns; within a plugin, users do; and for a user,
// namespaces do. So a caller that asks a lot waits for its own requests, and
// before any other caller's request there is at most one of each caller.
//
// It is a flowcontrol.RateLimiter. It remembers only those that wait: not more
// than there are reviews at work.
type fairLimiter struct {
	tokens *rate.Limiter

	waits   atomic.Int64     // how many requests wait
	givenUp *metrics.Counter // requests whose time ended while they waited

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

// A line is where requests wait: those of one caller, or lines that take turns.
type line struct {
	queue list.List                // of *line or, for one caller, of *turn; the next one is in front
	lines map[string]*list.Element // the lines in queue, by name
}

// A turn is a request that waits.
type turn struct {
	caller  caller
	element *list.Element // in the line of the caller
	granted chan struct{} // closed when it may be made
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

// remove takes t out of the line that path leads to, and forgets lines that are
// empty then.
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

// next returns whose turn it is, and moves the lines that it is in to the end.
func (l *line) next() *turn {
	front := l.queue.Front()
	inside, ok := front.Value.(*line)
	if !ok {
		return front.Value.(*turn)
	}
	l.queue.MoveToBack(front)
	return inside.next()
}

// Wait waits until a request may be made on behalf of the caller that ctx has.
// The error is that of ctx.
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
	case <-t.granted: // meanwhile
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

// Accept waits until a request may be made.
func (l *fairLimiter) Accept() { _ = l.Wait(context.Background()) }

// TryAccept reports whether a request may be made now.
func (l *fairLimiter) TryAccept() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting.isEmpty() && l.tokens.Allow()
}

// QPS returns how many requests may be made a second.
func (l *fairLimiter) QPS() float32 { return float32(l.tokens.Limit()) }

// Stop does nothing: there is nothing to stop when nobody waits.
func (l *fairLimiter) Stop() {}
