package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"
)

// newOpsServer returns the server of the ops port: metrics, health and, if
// wanted, profiles, in plain HTTP. It is net/http: nothing here is hot.
func newOpsServer(m *serverMetrics, live, ready []Check, profiling bool, pages ...opsPage) *http.Server {
	mux := http.NewServeMux()
	for _, page := range pages {
		mux.HandleFunc("GET "+page.path, local(page.answer))
	}
	mux.HandleFunc("GET /metrics", newMetricsPages(m).serve)
	mux.HandleFunc("GET /healthz", health(live))
	mux.HandleFunc("GET /livez", health(live))
	mux.HandleFunc("GET /readyz", health(ready))
	if profiling {
		mux.HandleFunc("GET /debug/pprof/", local(pprof.Index)) // and all profiles by name
		mux.HandleFunc("GET /debug/pprof/cmdline", local(pprof.Cmdline))
		mux.HandleFunc("GET /debug/pprof/profile", local(pprof.Profile))
		mux.HandleFunc("GET /debug/pprof/symbol", local(pprof.Symbol))
		mux.HandleFunc("GET /debug/pprof/trace", local(pprof.Trace))
	}
	return &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    headerBytesMax,
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
}

// An opsPage is answered to callers on the same machine.
type opsPage struct {
	path   string
	answer http.HandlerFunc
}

// connKey is the key of the connection in the context of a request.
type connKey struct{}

// local answers those on the same machine only, kubectl port-forward and kubectl exec among them:
// a profile costs processor time, and pages say what is in memory and who was denied what.
func local(answer http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		if !isLocal(request) {
			http.Error(w, fmt.Sprintf("%s: got a call from %s, want one over the loopback interface, as by kubectl port-forward", request.URL.Path, request.RemoteAddr),
				http.StatusForbidden)
			return
		}
		answer(w, request)
	}
}

// isLocal reports whether a request comes over the loopback interface.
func isLocal(request *http.Request) bool {
	from, err := netip.ParseAddrPort(request.RemoteAddr)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// Check is a check of a health endpoint: it reports whether a part of the process works.
type Check struct {
	Name string
	// Ask reports whether the check passes. about is shown with it, on the same machine only;
	// it may be empty.
	Ask func() (ok bool, about string)
	// Informs is for a check that does not affect the code of the answer. It says why.
	// Without it, the endpoint answers 503 while the check fails.
	Informs string
}

// health answers "ok", or 503 if a check fails, with a line for each check if
// one does or if ?verbose asks for it. The lines are those of kube-apiserver's
// health endpoints (k8s.io/apiserver pkg/server/healthz), which withhold the reasons, too:
// they name objects of the cluster, and can quote a file.
func health(checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, request *http.Request) {
		if c, ok := request.Context().Value(connKey{}).(*opsConn); ok {
			c.table.admit(&c.member) // others that come do not take its place
		}
		var lines strings.Builder
		code, result := http.StatusOK, "ok"
		for _, c := range checks {
			ok, about := c.Ask()
			sign, state := '+', "ok"
			switch {
			case !ok && c.Informs != "":
				sign, state = '-', "failed without affecting readiness, because "+c.Informs
			case !ok:
				code, result = http.StatusServiceUnavailable, "failed"
				sign, state = '-', "failed"
			}
			switch {
			case about == "":
			case !isLocal(request):
				state += ": reason withheld, it is in the log and shown over the loopback interface, as by kubectl port-forward"
			default:
				state += ": " + strings.ReplaceAll(about, "\n", "\n    ")
			}
			fmt.Fprintf(&lines, "[%c]%s %s\n", sign, c.Name, state)
		}
		if !request.URL.Query().Has("verbose") && code == http.StatusOK {
			lines.Reset()
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(code)
		fmt.Fprintf(w, "%s%s\n", lines.String(), result)
	}
}
