package server

import (
	"sync/atomic"
	"time"
)

const (
	// unreadPause is how long a client is watched that reads its answer, while others need
	// the memory: one that reads less than unreadPace bytes in a second is too slow.
	unreadPause = time.Second
	unreadPace  = arrivalPace

	// unreadLooks is the least time from one look at all connections to the next, which
	// takes 0.2 ms with as many as there may be in a container with 512 MiB.
	unreadLooks = 50 * time.Millisecond
)

// answering is an answer that is being written.
type answering struct {
	begun atomic.Int64 // when the first byte of it was, of sinceStart; 0 if there is none

	// Of the last look at it, guarded by the connTable: which answer it was, when the look
	// was, and how many bytes the connection had written.
	seen        int64
	seenAt      time.Time
	seenWritten int64
}

// begin says that a part of the answer is written now, and returns when the first part was.
func (a *answering) begin(now time.Time) time.Time {
	if begun := a.begun.Load(); begun != 0 {
		return processStart.Add(time.Duration(begun))
	}
	a.begun.Store(sinceStart(now))
	return now
}

// end says that the answer was written.
func (a *answering) end() { a.begun.Store(0) }

// isUnread reports whether less than unreadPace of the answer was read since the last look,
// if that was unreadPause ago. The connection has written so many bytes until now.
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

// dropUnread closes the connections of clients that do not read their answers: they hold memory
// that others need.
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
