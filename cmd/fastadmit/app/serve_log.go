package app

import (
	"io"
	"log"
	"log/slog"

	"k8s.io/klog/v2"

	"github.com/fastadmit/fastadmit/internal/server"
)

// logLibraries redirects the logs of libraries to w: client-go logs through klog, net/http through package
// log. Otherwise they would write text to the standard error, as often as a backend or an API server
// causes it, and would block if it is not read. A limit of their own keeps them from crowding out other
// lines. end restores the loggers.
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
