package app

import (
	"io"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"
)

// newOpsServer returns the server of the ops port: metrics, health and, if
// wanted, profiles, in plain HTTP. It is net/http: nothing here is hot.
func newOpsServer(m *serverMetrics, ready *atomic.Bool, profiling bool) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		m.write(w)
	})
	mux.HandleFunc("GET /healthz", health(nil))
	mux.HandleFunc("GET /livez", health(nil))
	mux.HandleFunc("GET /readyz", health(func() []string {
		if !ready.Load() {
			return []string{"serving"}
		}
		return nil
	}))
	if profiling {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index) // and all profiles by name
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    headerBytesMax,
	}
}

// health answers "ok", or 503 with the names of the checks that fail.
func health(failing func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if failing != nil {
			if checks := failing(); len(checks) > 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
				io.WriteString(w, "not ready: "+strings.Join(checks, ", ")+"\n") //nolint:errcheck // the client is gone
				return
			}
		}
		io.WriteString(w, "ok\n") //nolint:errcheck // the client is gone
	}
}
