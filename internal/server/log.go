package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/time/rate"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// logsPerSecond and logsBurst bound the log: a cluster that is denied a
	// thousand requests a second must not cost a thousand lines.
	logsPerSecond = 20
	logsBurst     = 100

	// strangersLogsPerSecond and strangersLogsBurst bound lines about failed TLS
	// handshakes, which anybody can cause: they show who it is, not how often.
	strangersLogsPerSecond = 1
	strangersLogsBurst     = 10

	// Container runtimes split a line of the log at 16 KiB (containerd's
	// max_container_log_line_size), and what reads JSON cannot read the parts. A
	// line has one text, such as a message or an error, and at most ten values of
	// a request, such as names.

	// logValueBytesMax is the longest value in the log, as JSON. The names of
	// Kubernetes have up to 253 bytes.
	logValueBytesMax = 640
	// logTextBytesMax is the longest text in the log, as JSON.
	logTextBytesMax = 8 << 10
)

// sampledLog passes on as many records as its limiter allows, and says with
// each how many were dropped before, also by the writer.
type sampledLog struct {
	slog.Handler
	limiter *rate.Limiter
	dropped *atomic.Int64
}

// newStrangersLog returns a log with the same lines, for what anybody on the network can
// cause: it has a limit of its own, so that strangers cannot keep other lines out.
func newStrangersLog(log *slog.Logger) *slog.Logger {
	sampled, ok := log.Handler().(sampledLog)
	if !ok {
		return log
	}
	sampled.limiter, sampled.dropped = rate.NewLimiter(strangersLogsPerSecond, strangersLogsBurst), new(atomic.Int64)
	return slog.New(sampled)
}

// NewLog returns a log for a server: JSON lines of bounded length, sampled.
func NewLog(w io.Writer) *slog.Logger {
	return slog.New(sampledLog{
		Handler: slog.NewJSONHandler(printableWriter{w}, &slog.HandlerOptions{ReplaceAttr: boundAttr}),
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
	n := h.dropped.Swap(0)
	if n > 0 {
		record.AddAttrs(slog.Int64("dropped", n))
	}
	err := h.Handler.Handle(ctx, record)
	if err != nil {
		h.dropped.Add(n + 1)
	}
	return err
}

// boundAttr truncates what an attribute says.
func boundAttr(_ []string, attr slog.Attr) slog.Attr {
	var text string
	switch attr.Value.Kind() {
	case slog.KindString:
		text = attr.Value.String()
	case slog.KindAny:
		text = fmt.Sprint(attr.Value.Any())
	default:
		return attr // numbers and times
	}
	limit := logValueBytesMax
	switch attr.Key {
	case "message", "error", "panic", "stack", "after", "wrong":
		limit = logTextBytesMax
	}
	return slog.String(attr.Key, codec.TruncateString(text, limit))
}

// printableWriter is a writer of JSON in which characters that are not printable, such
// as terminals' control sequences and changes of the direction of text, are written
// as \uXXXX. JSON itself asks for that below U+0020 only.
type printableWriter struct{ io.Writer }

// Write implements io.Writer.
func (w printableWriter) Write(lines []byte) (int, error) {
	isHidden := func(r rune) bool { return r != '\n' && !codec.IsPrintable(r) }
	if !bytes.ContainsFunc(lines, isHidden) {
		return w.Writer.Write(lines)
	}
	var b []byte
	for _, r := range string(lines) {
		if !isHidden(r) {
			b = utf8.AppendRune(b, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
	}
	_, err := w.Writer.Write(b)
	return len(lines), err
}
