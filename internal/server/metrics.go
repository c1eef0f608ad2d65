package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/valyala/fasthttp"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// durationBuckets are upper bounds in seconds. An answer takes microseconds;
// kube-apiserver gives up after 30 s at the latest.
var durationBuckets = []float64{
	50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10, 30,
}

// refusalCodes are the values of the label "code".
var refusalCodes = [...]int{
	fasthttp.StatusBadRequest, fasthttp.StatusUnauthorized, fasthttp.StatusForbidden, fasthttp.StatusNotFound, fasthttp.StatusMethodNotAllowed, fasthttp.StatusRequestTimeout,
	fasthttp.StatusLengthRequired, fasthttp.StatusRequestEntityTooLarge, fasthttp.StatusUnsupportedMediaType,
	fasthttp.StatusTooManyRequests, fasthttp.StatusRequestHeaderFieldsTooLarge, fasthttp.StatusInternalServerError,
}

// serverMetrics are the series of a server. All of them are made before a
// configuration is served, so that no request's content can add one. Those of
// plugins that are no longer enabled stay.
type serverMetrics struct {
	set           *metrics.Set
	requestBytes  *metrics.Counter
	responseBytes *metrics.Counter
	refusals      [len(refusalCodes)]*metrics.Counter

	noMemory, tooLarge *metrics.Counter // reviews

	handshakeErrors *metrics.Counter

	webhooks, ops *portMetrics
}

// portMetrics are about the connections of a port.
type portMetrics struct {
	open, most                                 atomic.Int64
	evictedFull, evictedAddress, evictedUnread *metrics.Counter
	refused                                    *metrics.Counter
	acceptErrors                               *metrics.Counter
}

func (m *serverMetrics) port(name string) *portMetrics {
	p := new(portMetrics)
	m.set.NewGauge(fmt.Sprintf("fastadmit_connections{port=%q}", name), func() float64 { return float64(p.open.Load()) })
	m.set.NewGauge(fmt.Sprintf("fastadmit_connections_max{port=%q}", name), func() float64 { return float64(p.most.Load()) })
	closed := func(reason string) *metrics.Counter {
		return m.set.NewCounter(fmt.Sprintf("fastadmit_connections_shed_total{port=%q,reason=%q}", name, reason))
	}
	p.evictedFull, p.evictedAddress, p.refused = closed("full"), closed("address"), closed("refused")
	p.evictedUnread = closed("unread")
	p.acceptErrors = m.set.NewCounter(fmt.Sprintf("fastadmit_accept_errors_total{port=%q}", name))
	return p
}

// pluginMetrics are those of a plugin.
type pluginMetrics struct {
	phases [2]*phaseMetrics // by admission.Phase
	panics *metrics.Counter
}

// phaseMetrics are those of a plugin in a phase.
type phaseMetrics struct {
	decisions  []*metrics.Counter // by admission.Outcome
	duration   *metrics.PrometheusHistogram
	notStarted *metrics.Counter // of all plugins in the phase
}

// endpointMetrics are those of an endpoint.
type endpointMetrics struct {
	decisions [len(codec.Operations)][]*metrics.Counter // by admission.Outcome
	duration  *metrics.PrometheusHistogram
	overruns  *metrics.Counter // of all endpoints of the phase
}

func newServerMetrics(set *metrics.Set, load *load) *serverMetrics {
	metrics.ExposeMetadata(true) // for the whole process, which has no other page of metrics
	m := &serverMetrics{set: set}
	m.set.NewGauge("fastadmit_requests_in_flight", func() float64 { return float64(load.requests.Load()) })
	m.set.NewGauge("fastadmit_request_bytes_in_flight", func() float64 { return float64(load.bytes.Load()) })
	m.webhooks, m.ops = m.port("webhooks"), m.port("ops")
	m.requestBytes = m.set.NewCounter("fastadmit_request_bytes_total")
	m.responseBytes = m.set.NewCounter("fastadmit_response_bytes_total")
	m.noMemory = m.set.NewCounter("fastadmit_review_memory_refusals_total")
	m.tooLarge = m.set.NewCounter("fastadmit_too_large_objects_total")
	m.handshakeErrors = m.set.NewCounter("fastadmit_tls_handshake_errors_total")
	for i, code := range refusalCodes {
		m.refusals[i] = m.set.NewCounter(fmt.Sprintf(`fastadmit_refused_requests_total{code="%d"}`, code))
	}
	return m
}

// plugins returns the metrics of each plugin.
func (m *serverMetrics) plugins(plugins []*admission.Plugin) []pluginMetrics {
	all := make([]pluginMetrics, len(plugins))
	for i, plugin := range plugins {
		all[i].panics = m.set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_plugin_panics_total{plugin=%q}`, plugin.Name))
		if plugin.Mutates {
			all[i].phases[admission.Mutate] = m.phase(plugin.Name, admission.Mutate)
		}
		if plugin.Validates {
			all[i].phases[admission.Validate] = m.phase(plugin.Name, admission.Validate)
		}
	}
	return all
}

func (m *serverMetrics) phase(plugin string, phase admission.Phase) *phaseMetrics {
	p := new(phaseMetrics)
	for _, outcome := range admission.Outcomes() {
		p.decisions = append(p.decisions, m.set.GetOrCreateCounter(fmt.Sprintf(
			`fastadmit_plugin_decisions_total{plugin=%q,phase=%q,decision=%q}`, plugin, phase, outcome)))
	}
	p.duration = m.set.GetOrCreatePrometheusHistogramExt(fmt.Sprintf(
		`fastadmit_plugin_duration_seconds{plugin=%q,phase=%q}`, plugin, phase), durationBuckets)
	p.notStarted = m.set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_plugins_not_started_total{phase=%q}`, phase))
	return p
}

// endpoint returns the metrics of the endpoint of that name and phase.
func (m *serverMetrics) endpoint(name string, phase admission.Phase) *endpointMetrics {
	e := new(endpointMetrics)
	for i, operation := range codec.Operations {
		for _, outcome := range admission.Outcomes() {
			e.decisions[i] = append(e.decisions[i], m.set.GetOrCreateCounter(fmt.Sprintf(
				`fastadmit_requests_total{webhook=%q,operation=%q,decision=%q}`, name, operation, outcome)))
		}
	}
	e.duration = m.set.GetOrCreatePrometheusHistogramExt(
		fmt.Sprintf(`fastadmit_request_duration_seconds{webhook=%q}`, name), durationBuckets)
	e.overruns = m.set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_budget_overruns_total{phase=%q}`, phase))
	return e
}

func (p *pluginMetrics) observe(run admission.Run) {
	phase := p.phases[run.Phase]
	phase.decisions[run.Outcome].Inc()
	phase.duration.Update(run.Elapsed.Seconds())
	if run.Outcome == admission.OutcomePanicked {
		p.panics.Inc()
	}
	if errors.Is(run.Err, admission.ErrNotStarted) {
		phase.notStarted.Inc()
	}
}

func (m *serverMetrics) refused(code int) {
	for i, known := range refusalCodes {
		if known == code {
			m.refusals[i].Inc()
		}
	}
}

// observe counts a call whose answer is ready now, which kube-apiserver waits
// for until the deadline. The operation is its place in codec.Operations.
func (e *endpointMetrics) observe(operation int, outcome admission.Outcome, start, deadline time.Time) {
	now := time.Now()
	e.decisions[operation][outcome].Inc()
	e.duration.Update(now.Sub(start).Seconds())
	if !now.Before(deadline) {
		e.overruns.Inc()
	}
}

// write writes all series, the process's own among them, in the text format of
// Prometheus. The library leaves the help texts empty.
func (m *serverMetrics) write(w io.Writer) {
	var page bytes.Buffer
	m.set.WritePrometheus(&page)
	metrics.WriteProcessMetrics(&page)
	for line := range strings.Lines(page.String()) {
		if name, ok := strings.CutPrefix(line, "# HELP "); ok {
			name = strings.TrimSpace(name)
			line = fmt.Sprintf("# HELP %s %s\n", name, describe(name))
		}
		if _, err := io.WriteString(w, line); err != nil {
			return // whoever asked is gone
		}
	}
}
