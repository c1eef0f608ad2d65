package server

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	// stuckGrace is how long after its deadline a call is answered without its
	// plugins: they have it to notice that their time is over. kube-apiserver
	// rounds the time that it says up to a second.
	stuckGrace = time.Second

	// watchMax is the most time from one look for overdue calls to the next. The
	// default timeoutSeconds of a webhook is as long, so such a call is found in
	// time. A call with less time that begins after a look is found at the next one:
	// kube-apiserver has given up by then, and only its place is still needed.
	// Looking often would wake up a process that has nothing to do.
	watchMax = 10 * time.Second

	// watchPause is the least time from one look to the next, and finishing looks
	// as often for whether only stuck calls are left.
	watchPause = 50 * time.Millisecond

	// stuckMax is at how many stuck calls /livez fails, so that the process is
	// started anew: each holds a goroutine and a request, for as long as its
	// plugin does.
	stuckMax = 100

	// stacksInterval is how often at most the log has stacks of stuck calls, and
	// stacksMax how many bytes of them: to see them stops the process for a
	// moment.
	stacksInterval = time.Minute
	stacksMax      = 8 << 10

	// abandonedWriteMax bounds the time to write an answer in place of a plugin.
	abandonedWriteMax = 5 * time.Second
)

// A call is a review that plugins work on.
type call struct {
	endpoint        *endpoint
	operation       int // its place in operations
	start, deadline time.Time
}

// begin starts a call: it counts it and reserves memory for its review. If there are too many
// calls or too little memory, or if the connection was ended meanwhile, it refuses the
// request and returns false. A call that was started ends with end.
func (s *Server) begin(ctx *fasthttp.RequestCtx, c *conn, call call, of *callContext) bool {
	if !s.count(c, call) {
		if c.state.isDropped() {
			ctx.SetConnectionClose()
		}
		s.overloaded(ctx)
		return false
	}
	if s.reserve(of) {
		return true
	}
	if s.end(c) {
		s.refuseNoMemory(ctx, of.body)
	}
	return false
}

// count makes a call the one that its connection carries, unless there are too many calls or
// the connection was ended meanwhile.
func (s *Server) count(c *conn, call call) bool {
	s.load.arrived(c)
	if !s.load.begin() {
		return false
	}
	c.call = call
	if !c.state.begin(call.deadline) {
		s.load.end()
		return false
	}
	return true
}

// end ends the call of a connection, because it has an answer. It returns false if the
// watcher has answered the call already: then the connection's goroutine must not write.
func (s *Server) end(c *conn) bool {
	if !c.state.end(c.call.start, c.call.deadline) {
		s.stuck.Add(-1)
		return false
	}
	s.load.end()
	return true
}

// contain ends a request whose handler panicked with v or, if v is nil, ended its goroutine.
func (s *Server) contain(ctx *fasthttp.RequestCtx, c *conn, v any) {
	if v != nil {
		inCall := c.state.inCall() || c.state.isTaken()
		s.log.Error("request panicked", "panic", admission.PanicText(v), "stack", string(debug.Stack()))
		if inCall && !s.end(c) {
			return
		}
		s.refuse(ctx, fasthttp.StatusInternalServerError, "InternalError", "fastadmit failed to answer, see its log")
		return
	}
	if !c.state.takeCall() {
		s.stuck.Add(-1) // it was answered before
		return
	}
	s.abandon(c, "a plugin ended the goroutine of the call")
	s.releaseRetained(c)
	c.Conn = nil // fasthttp never forgets a connection whose goroutine ended: what it keeps must be small
}

// abandon answers a call that was taken from its goroutine, and closes its
// connection.
func (s *Server) abandon(c *conn, why string) {
	s.load.end()
	s.load.forget(c)
	s.metrics.refused(fasthttp.StatusInternalServerError)
	c.call.endpoint.metrics.observe(c.call.operation, admission.OutcomeErrored, c.call.start, c.call.deadline)
	s.log.Error("call failed", "endpoint", c.call.endpoint.name, "operation", string(codec.Operations[c.call.operation]), "error", why)
	status := codec.Status{Code: fasthttp.StatusInternalServerError, Reason: "InternalError", Message: "fastadmit failed to answer: " + why}
	if err := c.SetWriteDeadline(time.Now().Add(abandonedWriteMax)); err == nil {
		_, _ = c.Conn.Write(appendRefusal(nil, &status)) // whoever asked may be gone
	}
	_ = c.Conn.Close()
	c.listener.table.remove(&c.member)
}

// watch answers overdue calls until stop is called. A plugin that does not return cannot be
// ended, but the caller gets an answer, and the call no longer counts as load. The review is
// not used again until the plugin returns.
func (l *listener) watch() (stop func()) {
	ended := make(chan struct{})
	go func() {
		w := watcher{server: l.server}
		look := w.look
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-ended:
				return
			case now := <-timer.C:
				w.now, w.next = now, now.Add(l.server.timeouts.watch)
				l.table.each(look)
				w.answer()
				timer.Reset(max(time.Until(w.next.Add(l.server.timeouts.stuck)), watchPause))
			}
		}
	}()
	return func() { close(ended) }
}

// A watcher looks at all connections for calls that are overdue. It allocates
// nothing as long as there are none.
type watcher struct {
	server  *Server
	now     time.Time
	next    time.Time // the deadline of the call that can be overdue next
	overdue []*conn
}

func (w *watcher) look(p peer) {
	c := p.(*conn)
	if c.state.takeOverdue(w.now.Add(-w.server.timeouts.stuck)) {
		w.overdue = append(w.overdue, c)
	} else if deadline, inCall := c.state.deadline(); inCall && deadline.Before(w.next) {
		w.next = deadline
	}
}

// answer answers the calls that are overdue.
func (w *watcher) answer() {
	if len(w.overdue) == 0 {
		return
	}
	s := w.server
	s.stuck.Add(int64(len(w.overdue)))
	for _, c := range w.overdue {
		go s.abandon(c, "a plugin did not return in the time of the call")
	}
	if w.now.Sub(s.stacksLogged) > stacksInterval {
		s.stacksLogged = w.now
		s.log.Error("plugins did not return in time", "calls", len(w.overdue), "stacks", admission.Stacks("", stacksMax))
	}
	w.overdue = nil
}

// check is a check of /livez.
func (s *Server) check() Check {
	return Check{Name: "plugins", Ask: func() (bool, string) {
		stuck := s.stuck.Load()
		if stuck == 0 {
			return true, ""
		}
		return stuck < stuckMax, fmt.Sprintf("%d calls did not return from a plugin, want less than %d", stuck, stuckMax)
	}}
}
