package server

import (
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// logQueueMax is how many lines wait to be written. A line has at most 16 KiB, see
	// logTextBytesMax, so they take 2 MiB at most.
	logQueueMax = 128

	// logFlushMax bounds how long the last lines are waited for at the end.
	logFlushMax = time.Second
)

// errLogFull is why a line is dropped.
var errLogFull = errors.New("the log takes no more lines")

// LogQueue passes lines to a writer from a goroutine of its own. Whoever logs
// does not wait for the writer: a pipe whose reader has stopped would stall the
// answers to reviews.
type LogQueue struct {
	mu     sync.Mutex
	closed bool
	lines  chan []byte
	ended  chan struct{} // closed when all lines are written
}

// NewLogQueue returns a queue of lines for w.
func NewLogQueue(w io.Writer) *LogQueue {
	q := &LogQueue{lines: make(chan []byte, logQueueMax), ended: make(chan struct{})}
	go func() {
		defer close(q.ended)
		for line := range q.lines {
			_, _ = w.Write(line) // there is nobody to tell
		}
	}()
	return q
}

// Write implements io.Writer. It fails if as many lines are waiting as may.
func (q *LogQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || len(q.lines) == cap(q.lines) {
		return 0, errLogFull
	}
	q.lines <- append([]byte(nil), line...)
	return len(line), nil
}

// Close waits until all lines are written, for a second at most. It does not close the writer.
func (q *LogQueue) Close() {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		close(q.lines)
	}
	q.mu.Unlock()
	select {
	case <-q.ended:
	case <-time.After(logFlushMax):
	}
}
