package server

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/server/status"
)

// shownDifferencesMax is how many differences of the shadow the status page shows.
const shownDifferencesMax = 20

// statusPage answers with the status page.
func (s *Server) statusPage(checks []Check, describe func(context.Context, *status.Page)) http.HandlerFunc {
	host, _ := os.Hostname() // the page is shown without it
	return func(w http.ResponseWriter, r *http.Request) {
		var series, page bytes.Buffer
		s.metrics.write(&series)
		shown := s.status(checks)
		if shown.Host = host; describe != nil {
			describe(r.Context(), shown)
		}
		if err := shown.Write(&page, series.String()); err != nil {
			http.Error(w, "cannot make the page: "+err.Error(), http.StatusInternalServerError)
			return
		}
		header := w.Header()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'")
		_, _ = w.Write(page.Bytes()) // fails if the client is gone
	}
}

// status returns what the status page shows.
func (s *Server) status(checks []Check) *status.Page {
	now := s.serving.Load()
	p := &status.Page{
		Now: time.Now(), Started: s.started, Since: now.since, Digest: now.digest,
		Recent: s.recent.All(), RecentMax: s.recent.Max(),
	}
	for _, c := range checks {
		state := status.Check{Name: c.Name, State: "ok"}
		ok, about := c.Ask()
		switch {
		case !ok && c.Informs != "":
			state.State = "noted"
		case !ok:
			state.State = "failed"
		}
		state.About = about
		p.Checks = append(p.Checks, state)
	}
	now.chain.Each(func(plugin *admission.Plugin, settings *admission.Settings) {
		p.Plugins = append(p.Plugins, statusPlugin(plugin, settings))
	})
	if report, ok := s.shadow.Report(); ok {
		p.IsTried, p.ShadowReviews, p.ShadowStopped = true, report.Reviews, report.Stopped
		for i := range report.Differences[:min(len(report.Differences), shownDifferencesMax)] {
			d := &report.Differences[i]
			p.Shadow = append(p.Shadow, status.Difference{
				About: d.Where() + ": " + d.Change(), Reviews: d.Reviews,
				Example: d.Example.Operation + " " + d.Example.Namespace + "/" + d.Example.Name + "\n" + d.Example.About,
			})
		}
	}
	limit := func(name string, used, most int64, isBytes bool) {
		p.Limits = append(p.Limits, status.Limit{Name: name, Used: float64(used), Max: float64(most), Bytes: isBytes})
	}
	limit("Requests in flight", s.load.requests.Load(), s.load.requestsMax, false)
	limit("Memory for bodies in flight", s.load.bytes.Load(), s.load.bytesMax, true)
	limit("Memory for reviews", s.memory.reserved(), s.memory.large.max+s.memory.small.max, true)
	limit("Memory that connections keep", s.retained.Load(), s.retainedMax, true)
	limit("Memory of the process", processMemory(), memoryLimit(), true)
	limit("Connections for webhooks", s.metrics.webhooks.open.Load(), s.metrics.webhooks.most.Load(), false)
	limit("Connections for metrics and health", s.metrics.ops.open.Load(), s.metrics.ops.most.Load(), false)
	return p
}

// processMemory returns the memory that counts for Go's memory limit.
func processMemory() int64 {
	all := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(all)
	return int64(all[0].Value.Uint64() - all[1].Value.Uint64())
}

// memoryLimit returns Go's memory limit, 0 for none.
func memoryLimit() int64 {
	if most := debug.SetMemoryLimit(-1); most < math.MaxInt64 {
		return most
	}
	return 0
}

// statusPlugin returns an enabled plugin as the page shows it.
func statusPlugin(plugin *admission.Plugin, settings *admission.Settings) status.Plugin {
	shown := status.Plugin{Name: plugin.Name, FailurePolicy: string(admissionregistrationv1.Fail)}
	if settings.FailurePolicy != "" {
		shown.FailurePolicy = string(settings.FailurePolicy)
	}
	var actions []string
	for _, e := range settings.Enforcement {
		actions = append(actions, string(e.Action))
	}
	if len(actions) > 0 {
		shown.Enforcement = ", enforcement " + strings.Join(actions, ", ")
	}
	return shown
}
