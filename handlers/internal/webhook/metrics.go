package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/codec"
)

const (
	// webhooksMeasuredMax is the number of webhooks with series of their own. Further webhooks
	// share the name "other". A webhook has a histogram with ten series, and about ten counters
	// of its results.
	webhooksMeasuredMax = 500

	otherName = "other"
)

// durationBuckets are those of kube-apiserver's histogram (k8s.io/apiserver
// pkg/admission/metrics).
var durationBuckets = []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25}

// sourceMetrics are the series about the webhooks of a plugin. They correspond to those of
// kube-apiserver (k8s.io/apiserver pkg/admission/metrics).
type sourceMetrics struct {
	set    *metrics.Set
	plugin string

	mu       sync.Mutex
	webhooks map[string]*webhookMetrics
}

// webhookMetrics are the series of a webhook.
type webhookMetrics struct {
	of   *sourceMetrics
	name string // the value of the label
	took *metrics.PrometheusHistogram
	// exclusions are the counters of excluded, nil before the first request of an operation.
	exclusions [len(codec.Operations)]atomic.Pointer[metrics.Counter]

	mu  sync.Mutex
	now *Webhook // the current webhook with this name
}

func newSourceMetrics(plugin string, set *metrics.Set) *sourceMetrics {
	return &sourceMetrics{set: set, plugin: plugin, webhooks: make(map[string]*webhookMetrics)}
}

// of returns the series of a webhook. From now on, their gauges show w.
func (m *sourceMetrics) of(w *Webhook) *webhookMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := w.Name
	if m.webhooks[name] == nil && len(m.webhooks) >= webhooksMeasuredMax {
		name = otherName
	}
	own := m.webhooks[name]
	if own == nil {
		own = &webhookMetrics{of: m, name: name, took: m.set.GetOrCreatePrometheusHistogramExt(
			fmt.Sprintf(`fastadmit_webhook_admission_duration_seconds{plugin=%q,webhook=%q}`, m.plugin, name), durationBuckets)}
		m.webhooks[name] = own
		own.makeGauges()
	}
	own.mu.Lock()
	own.now = w
	own.mu.Unlock()
	return own
}

func (m *webhookMetrics) makeGauges() {
	set := m.of.set
	set.UnregisterMetric(fmt.Sprintf(`fastadmit_webhook_calls_inflight{plugin=%q,webhook=%q}`, m.of.plugin, m.name)) // that of a configuration before
	set.NewGauge(fmt.Sprintf(`fastadmit_webhook_calls_inflight{plugin=%q,webhook=%q}`, m.of.plugin, m.name), func() float64 {
		return float64(m.current().calls.InFlight())
	})
	set.UnregisterMetric(fmt.Sprintf(`fastadmit_webhook_circuit_open{plugin=%q,webhook=%q}`, m.of.plugin, m.name))
	set.NewGauge(fmt.Sprintf(`fastadmit_webhook_circuit_open{plugin=%q,webhook=%q}`, m.of.plugin, m.name), func() float64 {
		if m.current().circuit.isOpen() {
			return 1
		}
		return 0
	})
	set.UnregisterMetric(fmt.Sprintf(`fastadmit_webhook_circuit_open_tenants{plugin=%q,webhook=%q}`, m.of.plugin, m.name))
	set.NewGauge(fmt.Sprintf(`fastadmit_webhook_circuit_open_tenants{plugin=%q,webhook=%q}`, m.of.plugin, m.name), func() float64 {
		return float64(m.current().circuit.openTenants())
	})
}

func (m *webhookMetrics) current() *Webhook {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// observe counts a call that began at start.
func (m *webhookMetrics) observe(start time.Time, err error) {
	m.took.Update(time.Since(start).Seconds())
	code, result := int32(http.StatusOK), "allowed"
	if failed, ok := errors.AsType[*CallError](err); ok {
		code, result = failed.Code, "failed"
	} else if denied, ok := errors.AsType[*DenialError](err); ok {
		code, result = denied.ErrStatus.Code, "denied"
	}
	m.of.set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_webhook_request_total{plugin=%q,webhook=%q,code=%q,result=%q}`,
		m.of.plugin, m.name, codeLabel(code), result)).Inc()
}

// codeLabel returns the label for a code, which a webhook chooses: one of a fixed set.
func codeLabel(code int32) string {
	if code < 100 || code > codeMax {
		return otherName
	}
	return strconv.Itoa(int(code))
}

// The values of the label error_type, as upstream.
const (
	callingWebhookError = "calling_webhook_error"
	internalError       = "apiserver_internal_error"
	noError             = "no_error"
)

// rejected counts a request that was denied because of the webhook.
func (m *webhookMetrics) rejected(operation codec.Operation, errorType string) {
	m.of.set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_webhook_rejection_total{plugin=%q,webhook=%q,operation=%q,error_type=%q}`,
		m.of.plugin, m.name, string(codec.Operations[operation.Index()]), errorType)).Inc()
}

// failedOpen counts a failure that was ignored.
func (m *webhookMetrics) failedOpen() {
	m.of.set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_webhook_fail_open_total{plugin=%q,webhook=%q}`, m.of.plugin, m.name)).Inc()
}

// excluded counts a request that the match conditions excluded. A request may be so for each of many
// webhooks, so the counter is looked up only once.
func (m *webhookMetrics) excluded(operation codec.Operation) {
	i := operation.Index()
	counter := m.exclusions[i].Load()
	if counter == nil {
		counter = m.of.set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_webhook_match_condition_exclusions_total{plugin=%q,webhook=%q,operation=%q}`,
			m.of.plugin, m.name, string(codec.Operations[i])))
		m.exclusions[i].Store(counter)
	}
	counter.Inc()
}

// limited counts a call that failed because too many were in flight.
func (m *webhookMetrics) limited() {
	m.of.set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_webhook_limited_total{plugin=%q,webhook=%q}`, m.of.plugin, m.name)).Inc()
}

// countInvalid sets the function that counts invalid custom resources.
func (m *sourceMetrics) countInvalid(count func() float64) {
	m.set.UnregisterMetric(fmt.Sprintf(`fastadmit_webhook_configurations_invalid{plugin=%q}`, m.plugin)) // that of a configuration before
	m.set.NewGauge(fmt.Sprintf(`fastadmit_webhook_configurations_invalid{plugin=%q}`, m.plugin), count)
}
