package app

import (
	"io"
	"log"
	"log/slog"

	"k8s.io/klog/v2"

	"github.com/fastadmit/fastadmit/internal/server"
)

// logLibraries has libraries write to w what they log: client-go, by klog, and net/http, by package
// log. They would write to the standard error themselves, as text, as often as a backend or an API
// server causes it, and they would wait if nobody reads it. Their lines have a limit of their own, so
// that they do not keep others out. The returned function ends that.
func logLibraries(w io.Writer) (end func()) {
	before, output, flags := slog.Default(), log.Writer(), log.Flags()
	own := server.NewLog(w)
	klog.SetSlogLogger(own)
	slog.SetDefault(own) // and package log
	return func() {
		klog.ClearLogger()
		slog.SetDefault(before)
		log.SetOutput(output)
		log.SetFlags(flags)
	}
}
