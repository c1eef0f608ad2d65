package server

import (
	"sync/atomic"
	"time"
)

const (
	// unreadPause is the time over which the pace of a client that reads its answer is measured
	// while others need the memory. A client that reads less than unreadPace bytes per second is
	// too slow.
	unreadPause = time.Second
	unreadPace  = arrivalPace

	// unreadLooks is the minimum time between two checks of all connections. A check takes 0.2 ms
	// with the maximum number of connections in a container with 512 MiB.
	unreadLooks = 50 * time.Millisecond
)

// answering is an answer that is being written.
type answering struct {
	begun atomic.Int64 // the time of the first byte, as of sinceStart; 0 between answers

	// The last check, guarded by the connTable: which answer it saw, when it was, and how many
	// bytes the connection had written by then.
	seen        int64
	seenAt      time.Time
	seenWritten int64
}

// begin must be called when a part of the answer is written. It returns the time of the first part.
func (a *answering) begin(now time.Time) time.Time {
	if begun := a.begun.Load(); begun != 0 {
		return processStart.Add(time.Duration(begun))
	}
	a.begun.Store(sinceStart(now))
	return now
}

// end must be called when the answer was written.
func (a *answering) end() { a.begun.Store(0) }

// isUnread reports whether the client has read the answer more slowly than unreadPace since the last
// check, if that was at least unreadPause ago. written is the number of bytes that the connection has
// written so far.
func (a *answering) isUnread(written int64, now time.Time) bool {
	begun := a.begun.Load()
	if begun == 0 {
		return false
	}
	passed := now.Sub(a.seenAt)
	if begun == a.seen && passed < unreadPause {
		return false
	}
	unread := begun == a.seen && float64(written-a.seenWritten) < unreadPace*passed.Seconds()
	a.seen, a.seenAt, a.seenWritten = begun, now, written
	return unread
}

// dropUnread closes the connections of clients that do not read their answers, because others need the
// memory of these.
func (s *Server) dropUnread() {
	now, table, last := time.Now(), s.connections.Load(), s.looked.Load()
	if table == nil || sinceStart(now)-last < int64(unreadLooks) || !s.looked.CompareAndSwap(last, sinceStart(now)) {
		return
	}
	table.each(func(p peer) {
		if c := p.(*conn); c.answering.isUnread(c.transport.written.Load(), now) && c.giveUp() {
			s.metrics.webhooks.evictedUnread.Inc()
		}
	})
}
