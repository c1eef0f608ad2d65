package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/prometheus"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
)

// moduleFolder returns the folder of a module that a go.mod requires.
func moduleFolder(t *testing.T, requiring, module string) string {
	t.Helper()
	return strings.TrimSpace(walkthrough.Run(t, nil, "go", "-C", requiring, "list", "-m", "-f", "{{.Dir}}", module))
}

// defineMonitoring installs the Prometheus operator's CRDs, whose objects the chart's preset
// monitoring.yaml creates.
func (s *test) defineMonitoring(t *testing.T) {
	t.Helper()
	dir := moduleFolder(t, "../../tools/deploy", "github.com/prometheus-operator/prometheus-operator")
	s.MustKubectl(t, "", "create", "-f", filepath.Join(dir, "example/prometheus-operator-crd"))
	s.AwaitCRDs(t)
}

// preset returns a file of the chart.
func preset(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/chart/presets", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// monitored checks that a Prometheus scrapes all pods and evaluates all alerts, from the objects
// that the preset created.
func (s *test) monitored(t *testing.T) {
	var rules struct{ Groups []struct{ Rules []any } }
	s.spec(t, "prometheusrule", &rules)
	address := address + ":9090"
	cluster.Start(t, "prometheus", nil, walkthrough.Tool(t, "prometheus"), "--config.file", s.scraping(t), "--storage.tsdb.path",
		t.TempDir(), "--web.listen-address", address)
	p := prometheus.Server("http://" + address)
	for _, expression := range []string{
		`count(up{job="fastadmit", namespace="fastadmit"} == 1) == 2`,
		`count(fastadmit_registered{job="fastadmit"} == 1) == 2`,
		`sum(fastadmit_plugin_decisions_total{job="fastadmit", plugin="DefaultTolerationSeconds"}) > 0`,
		`sum(process_cpu_seconds_total{job="fastadmit"}) > 0`,
	} {
		cluster.Await(t, expression, func() error {
			if err := s.works(); err != nil { // requests that are counted
				return err
			}
			return p.Has(expression)
		})
	}
	alerts := 0
	for _, group := range rules.Groups {
		alerts += len(group.Rules)
	}
	if alerts < 10 {
		t.Errorf("got %d alerts in the PrometheusRule, want at least 10", alerts)
	}
	cluster.Await(t, "the alerts", func() error { return p.Evaluates(alerts) })
}

// spec reads the spec of the release's only object of a kind.
func (s *test) spec(t *testing.T, kind string, into any) {
	t.Helper()
	err := json.Unmarshal([]byte(s.MustKubectl(t, "", "get", kind, "fastadmit", "-n", "fastadmit", "-o", "jsonpath={.spec}")), into)
	if err != nil {
		t.Fatal(err)
	}
}

// notInLabels are the characters that Prometheus replaces in names of labels.
var notInLabels = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// scraping returns a file with the configuration that the Prometheus operator makes of the
// ServiceMonitor and the PrometheusRule (its pkg/prometheus/promcfg.go).
func (s *test) scraping(t *testing.T) string {
	t.Helper()
	var monitor struct {
		JobLabel  string
		Selector  struct{ MatchLabels map[string]string }
		Endpoints []struct{ Port, Path, Scheme string }
	}
	s.spec(t, "servicemonitor", &monitor)
	if len(monitor.Endpoints) != 1 || len(monitor.Selector.MatchLabels) == 0 {
		t.Fatalf("got ServiceMonitor %+v, want one endpoint and a selector", monitor)
	}
	endpoint := monitor.Endpoints[0]
	label := func(name string) string {
		return "__meta_kubernetes_service_label_" + notInLabels.ReplaceAllString(name, "_")
	}
	relabel := []map[string]any{
		{"source_labels": []string{"__meta_kubernetes_endpointslice_port_name"}, "regex": endpoint.Port, "action": "keep"},
		{"source_labels": []string{label(monitor.JobLabel)}, "target_label": "job"},
		{"source_labels": []string{"__meta_kubernetes_namespace"}, "target_label": "namespace"},
		{"source_labels": []string{"__meta_kubernetes_pod_name"}, "target_label": "pod"},
	}
	for name, value := range monitor.Selector.MatchLabels {
		relabel = append(relabel, map[string]any{"source_labels": []string{label(name)}, "regex": value, "action": "keep"})
	}
	var rules any
	s.spec(t, "prometheusrule", &rules)
	return s.asFile(t, "prometheus.yaml", map[string]any{
		"global":     map[string]any{"scrape_interval": "2s", "evaluation_interval": "2s"},
		"rule_files": []string{s.asFile(t, "alerts.yaml", rules)},
		"scrape_configs": []map[string]any{{
			"job_name": "servicemonitor", "metrics_path": endpoint.Path, "scheme": endpoint.Scheme, "relabel_configs": relabel,
			"kubernetes_sd_configs": []map[string]any{{
				"role": "endpointslice", "kubeconfig_file": s.kubeconfig, "namespaces": map[string]any{"names": []string{"fastadmit"}},
			}},
		}},
	})
}

// asFile writes a file in JSON, which is YAML too.
func (s *test) asFile(t *testing.T, name string, content any) string {
	t.Helper()
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", name, err))
	}
	return cluster.WriteFile(t, name, text)
}
