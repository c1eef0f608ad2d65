package app

import (
	"context"
	"io"
	"log"
	"log/slog"
	"sync"

	"k8s.io/klog/v2"

	"github.com/fastadmit/fastadmit/internal/server"
)

// logLibraries redirects the logs of libraries to w: client-go logs through klog, net/http through package
// log. Otherwise they would write text to the standard error, as often as a backend or an API server
// causes it, and would block if it is not read. A limit of their own keeps them from crowding out other
// lines. end restores the loggers.
func logLibraries(w io.Writer) (end func()) {
	before, output, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(server.NewLog(w)) // and package log
	redirectKlog()
	return func() {
		slog.SetDefault(before)
		log.SetOutput(output)
		log.SetFlags(flags)
	}
}

// redirectKlog makes klog log to slog.Default, once: klog's logger may not change while a watch runs, which may end
// later than the command that started it.
var redirectKlog = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(toDefault{})) })

// toDefault is a handler that passes records on to that of slog.Default.
type toDefault struct{}

func (toDefault) Enabled(ctx context.Context, level slog.Level) bool {
	return slog.Default().Handler().Enabled(ctx, level)
}

func (toDefault) Handle(ctx context.Context, record slog.Record) error {
	return slog.Default().Handler().Handle(ctx, record)
}

func (toDefault) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slog.Default().Handler().WithAttrs(attrs)
}

func (toDefault) WithGroup(name string) slog.Handler { return slog.Default().Handler().WithGroup(name) }
