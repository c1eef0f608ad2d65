package app

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"
)

const (
	// logsPerSecond and logsBurst bound the log: a cluster that is denied a
	// thousand requests a second must not cost a thousand lines.
	logsPerSecond = 20
	logsBurst     = 100
)

// sampledLog passes on as many records as its limiter allows, and says with
// each how many it dropped before.
type sampledLog struct {
	slog.Handler
	limiter *rate.Limiter
	dropped *atomic.Int64
}

// newLog returns the log of the server: JSON lines, sampled.
func newLog(w io.Writer) *slog.Logger {
	return slog.New(sampledLog{
		Handler: slog.NewJSONHandler(w, nil),
		limiter: rate.NewLimiter(logsPerSecond, logsBurst),
		dropped: new(atomic.Int64),
	})
}

// Handle implements slog.Handler.
func (h sampledLog) Handle(ctx context.Context, record slog.Record) error {
	if !h.limiter.Allow() {
		h.dropped.Add(1)
		return nil
	}
	if n := h.dropped.Swap(0); n > 0 {
		record.AddAttrs(slog.Int64("dropped", n))
	}
	return h.Handler.Handle(ctx, record)
}
