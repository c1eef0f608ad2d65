package app

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// auditNamespacesMax is the maximum number of namespaces that the series of an
// audit name: the first ones with findings. Findings in all others count as those
// of namespace "". With ten plugins that find something in each, that is 5000
// series.
const auditNamespacesMax = 500

// auditMetrics are the metrics of one audit. They are written to a file at its end,
// for a collector: node_exporter's textfile collector, or a Pushgateway.
type auditMetrics struct {
	began      time.Time
	namespaces map[string]bool
	findings   map[auditFinding]int
}

type auditFinding struct{ plugin, namespace, result string }

func newAuditMetrics() *auditMetrics {
	return &auditMetrics{began: time.Now(), namespaces: make(map[string]bool), findings: make(map[auditFinding]int)}
}

// add counts the findings about an object.
func (m *auditMetrics) add(root *report.Result) {
	if !root.IsNews() {
		return
	}
	namespace := root.Namespace
	if !m.namespaces[namespace] {
		if len(m.namespaces) >= auditNamespacesMax {
			namespace = ""
		} else {
			m.namespaces[namespace] = true
		}
	}
	root.Walk(func(r *report.Result, _ int) {
		switch r.Decision {
		case report.Denied, report.Failed:
			m.findings[auditFinding{r.Plugin, namespace, string(r.Decision)}]++
		}
		for _, f := range r.Warnings {
			m.findings[auditFinding{f.Plugin, namespace, "warned"}]++
		}
		for _, f := range r.Audits {
			m.findings[auditFinding{f.Plugin, namespace, "audited"}]++
		}
		for _, f := range r.Ignored {
			m.findings[auditFinding{f.Plugin, namespace, "ignored"}]++
		}
	})
}

// write writes the metrics to a file, whole or not at all.
func (m *auditMetrics) write(name string, s *report.Summary) error {
	set := metrics.NewSet()
	gauge := func(value float64) func() float64 { return func() float64 { return value } }
	for decision, n := range map[report.Decision]int{
		report.Allowed: s.Allowed, report.Denied: s.Denied, report.Failed: s.Failed, report.Broken: s.Broken, report.Skipped: s.Skipped,
	} {
		set.NewGauge(fmt.Sprintf(`fastadmit_audit_objects{decision=%q}`, decision), gauge(float64(n)))
	}
	for f, n := range m.findings {
		set.NewGauge(fmt.Sprintf(`fastadmit_audit_findings{plugin=%q,namespace=%q,result=%q}`, f.plugin, f.namespace, f.result), gauge(float64(n)))
	}
	ended := time.Now()
	set.NewGauge("fastadmit_audit_duration_seconds", gauge(ended.Sub(m.began).Seconds()))
	set.NewGauge("fastadmit_audit_last_run_timestamp_seconds", gauge(float64(ended.Unix())))
	var text bytes.Buffer
	set.WritePrometheus(&text)
	// The temporary folder of the system may be in another file system, so it is
	// not used.
	file, err := os.CreateTemp(filepath.Dir(name), ".fastadmit-*")
	if err != nil {
		return fmt.Errorf("--metrics-file: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // fails if it was renamed
	_, err = file.Write(text.Bytes())
	if err == nil {
		err = file.Chmod(0o644) // so that the collector can read it
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("--metrics-file: %w", err)
	}
	return nil
}
