package deploy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/prometheus"
	"github.com/fastadmit/fastadmit/e2e/walkthrough"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

// watched lets a real Prometheus scrape the pods and the API server, with the alerts as its rules.
// It checks that each expression of the dashboard and each series of an alert has data, except the
// series that this kind of installation does not have.
func (s *stand) watched(t *testing.T, lacking ...string) {
	// These installations try and record nothing, and no alert fires.
	lacking = append(lacking, "fastadmit_shadow_", "fastadmit_recordings_", "ALERTS")
	lacks := func(text string) bool {
		return slices.ContainsFunc(lacking, func(name string) bool { return strings.Contains(text, name) })
	}
	p := s.startPrometheus(t)
	// This creates the series of failed calls: a webhook with a name like ours that does not
	// answer.
	s.unanswered(t)
	for what, expression := range dashboardExpressions(t) {
		if lacks(expression) && !strings.Contains(expression, " or ") {
			continue
		}
		cluster.Await(t, what, func() error {
			_ = s.service("shop") // a call that is counted
			_ = s.pulls()
			return p.Has(expression)
		})
	}
	for alert, expression := range alertExpressions(t) {
		selectors, err := p.Selectors(expression)
		if err != nil {
			t.Fatal(err)
		}
		if len(selectors) == 0 {
			t.Errorf("alert %s: got no selector in %s", alert, expression)
		}
		for _, selector := range selectors {
			if lacks(selector) {
				continue
			}
			cluster.Await(t, "alert "+alert, func() error { return p.Has(selector) })
		}
	}
	cluster.Await(t, "rules to be evaluated", func() error { return p.Evaluates(len(alertExpressions(t))) })
}

// unanswered registers a webhook that does not answer for each failure policy, and makes a call for
// each.
func (s *stand) unanswered(t *testing.T) {
	t.Helper()
	const configuration = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",` +
		`"metadata":{"name":"nobody.io"},` +
		`"webhooks":[
{"name":"validate-%[1]s.nobody.io","failurePolicy":"%[2]s","sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":1,
"clientConfig":{"url":"https://127.0.0.1:1"},"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],` +
		`"resources":["configmaps"]}]}]}`
	makes := func() error {
		_, stderr, err := s.Kubectl(t, "", "create", "configmap", "c", "-n", "shop", "--dry-run=server")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, stderr)
		}
		return err
	}
	s.MustKubectl(t, fmt.Sprintf(configuration, "fail", "Fail"), "apply", "-f", "-")
	cluster.Await(t, "a call to fail", func() error { return cluster.WantError(makes(), "failed calling webhook") })
	s.MustKubectl(t, fmt.Sprintf(configuration, "ignore", "Ignore"), "apply", "-f", "-")
	cluster.Await(t, "a call to be let through", makes)
	t.Cleanup(func() { s.MustKubectl(t, "", "delete", "validatingwebhookconfiguration", "nobody.io") })
}

// variable is a variable of the dashboard in a selector.
var variable = regexp.MustCompile(`=~"\$\w+"`)

// dashboardExpressions returns the expressions of all panels.
func dashboardExpressions(t *testing.T) map[string]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content(t, chart+"/files/dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, panel := range dashboard.Panels {
		for i, target := range panel.Targets {
			// Without a limit, the panel is empty.
			expression, _, _ := strings.Cut(target.Expr, " < 2^62")
			expression = strings.ReplaceAll(expression, "$__rate_interval", "60s")
			// All values of the variables, also none.
			all[fmt.Sprintf("panel %s, %d", panel.Title, i)] = variable.ReplaceAllString(expression, `=~".*"`)
		}
	}
	return all
}

// alertExpressions returns the expressions of all alerts.
func alertExpressions(t *testing.T) map[string]string {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(content(t, chart+"/files/alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, rule := range file.Groups[0].Rules {
		all[rule.Alert] = rule.Expr
	}
	return all
}

// startPrometheus starts a Prometheus that finds the pods as one in the cluster does. A scrape may
// not take longer than its interval, and a busy API server needs seconds to write its metrics.
func (s *stand) startPrometheus(t *testing.T) prometheus.Server {
	t.Helper()
	alerts := cluster.WriteFile(t, "alerts.yaml", content(t, chart+"/files/alerts.yaml"))
	config := cluster.WriteFile(t, "prometheus.yaml", fmt.Appendf(nil, `
global: {scrape_interval: 10s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- job_name: fastadmit
  kubernetes_sd_configs: [{role: endpointslice, kubeconfig_file: %q, namespaces: {names: [fastadmit]}}]
  relabel_configs:
  - {source_labels: [__meta_kubernetes_service_name, __meta_kubernetes_endpointslice_port_name], regex: fastadmit-metrics;metrics, `+
		`action: keep}
  - {source_labels: [__address__], regex: '10[.](.*)', target_label: __address__, replacement: '127.$1'}
- job_name: apiserver
  scheme: https
  tls_config: {insecure_skip_verify: true}
  authorization: {credentials: %q}
  static_configs: [{targets: [%q]}]
`, alerts, s.kubeconfig, cluster.Token, strings.TrimPrefix(s.Config.Host, "https://")))
	address := testserver.FreeAddress(t)
	cluster.Start(t, "prometheus", nil, walkthrough.Tool(t, "prometheus"), "--config.file", config, "--storage.tsdb.path", t.TempDir(),
		"--web.listen-address", address)
	p := prometheus.Server("http://" + address)
	cluster.Await(t, "Prometheus", func() error { return p.Has("vector(1)") })
	return p
}
