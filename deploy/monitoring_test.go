package deploy_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/corpus"
)

const (
	alertsFile    = "chart/files/alerts.yaml"
	dashboardFile = "chart/files/dashboard.json"
)

// A dashboard contains the parts of a Grafana dashboard that query Prometheus or lead elsewhere.
type dashboard struct {
	UID        string
	Links      []panelLink
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Links                    []panelLink
	FieldConfig              struct {
		Defaults struct{ Links []panelLink }
	}
	Targets []struct{ Expr string }
}

type panelLink struct{ Title, URL string }

// variables are the dashboard's, in the order in which they depend on each other.
var variables = []string{"cluster", "namespace", "plugin", "policy"}

// evaluated returns the expression of a panel as Grafana sends it if all values of the variables are selected.
func evaluated(expression string) string {
	expression = strings.ReplaceAll(expression, "$__rate_interval", "1m")
	for _, name := range variables {
		expression = strings.ReplaceAll(expression, `"$`+name+`"`, `".*"`)
	}
	return expression
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// rules are Prometheus' alert rules.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	}
}

func readRules(t *testing.T) (r rules) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(readFile(t, alertsFile)), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// expressions returns the expressions of all panels and alerts, by panel or alert.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, p := range readDashboard(t).Panels {
		for i, target := range p.Targets {
			all[fmt.Sprintf("panel %s, %d", p.Title, i)] = evaluated(target.Expr)
		}
	}
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			all["alert "+r.Alert] = r.Expr
		}
	}
	return all
}

// TestAlerts runs the unit tests of the alerts. Each alert must have one in which it fires.
func TestAlerts(t *testing.T) {
	t.Parallel()
	run(t, tool(t, "promtool"), "check", "rules", "--lint=all", "--lint-fatal", alertsFile)
	run(t, tool(t, "promtool"), "test", "rules", "testdata/alerts_test.yaml")
	tests, manual := readFile(t, "testdata/alerts_test.yaml"), readFile(t, "../docs/operations.md")
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			quiet, fires := "alertname: "+r.Alert+"\n        exp_alerts: []", "alertname: "+r.Alert+"\n        exp_alerts:\n"
			if !strings.Contains(tests, quiet) || !strings.Contains(tests, fires) {
				t.Errorf("%s: got no unit test in which it fires, or none in which it does not", r.Alert)
			}
			checkRunbook(t, r.Alert, r.Annotations["runbook_url"])
			if link := "[" + r.Alert + "](runbooks/" + r.Alert + ".md)"; !strings.Contains(manual, link) {
				t.Errorf("%s: docs/operations.md has no %s, want it in the table of alerts", r.Alert, link)
			}
			if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: got labels %v and annotations %v, want severity, summary and description", r.Alert, r.Labels, r.Annotations)
			}
		}
	}
}

// checkRunbook checks that the URL leads to a page of the repository that is about the alert.
func checkRunbook(t *testing.T, alert, url string) {
	t.Helper()
	if want := "https://github.com/fastadmit/fastadmit/blob/main/docs/runbooks/" + alert + ".md"; url != want {
		t.Errorf("%s: got the runbook_url %q, want %s", alert, url, want)
	}
	page := readFile(t, "../docs/runbooks/"+alert+".md")
	text := regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(page, "") // without comments of scripts
	headings := regexp.MustCompile(`(?m)^##? .*$`).FindAllString(text, -1)
	if want := []string{"# " + alert, "## Meaning", "## Impact", "## Diagnosis", "## Mitigation"}; !slices.Equal(headings, want) {
		t.Errorf("docs/runbooks/%s.md: got headings %q, want %q", alert, headings, want)
	}
}

// queries returns the queries of all runbooks, one from each line of their blocks.
func queries(t *testing.T) (all []string) {
	t.Helper()
	pages, err := filepath.Glob("../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		for _, m := range regexp.MustCompile("(?ms)^```promql\n(.*?)^```$").FindAllStringSubmatch(readFile(t, page), -1) {
			all = append(all, strings.Split(strings.TrimSpace(m[1]), "\n")...)
		}
	}
	if len(all) < 40 {
		t.Errorf("got %d queries in docs/runbooks, want more", len(all))
	}
	return all
}

// TestExpressionsParse lets Prometheus parse the expressions of the dashboard, and the queries of the runbooks, as rules.
func TestExpressionsParse(t *testing.T) {
	t.Parallel()
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var all []rule
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, rule{fmt.Sprintf("panel:%d", len(all)), evaluated(target.Expr)})
		}
	}
	for i, query := range queries(t) {
		all = append(all, rule{fmt.Sprintf("runbook:%d", i), query})
	}
	file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": all}}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, tool(t, "promtool"), "check", "rules", "--lint=none", writeFile(t, "rules.yaml", string(file)))
}

// ofKubeAPIServer are the metrics of kube-apiserver v1.36 in expressions (k8s.io/apiserver
// pkg/admission/metrics). An e2e test checks them with Prometheus.
var ofKubeAPIServer = []string{
	"apiserver_admission_webhook_admission_duration_seconds_bucket",
	"apiserver_admission_webhook_fail_open_count",
	"apiserver_admission_webhook_rejection_count",
}

// ofPrometheus are the series that Prometheus makes of its rules.
var ofPrometheus = []string{"ALERTS"}

// ofManager are metrics that fastadmit has only if it keeps its certificates, which needs a
// cluster, as in e2e.
var ofManager = []string{"fastadmit_certificate_expiry_timestamp_seconds", "fastadmit_certificate_failures_total", "fastadmit_registered"}

// ofAPIServer are metrics that fastadmit has only if it calls an API server, as in e2e.
var ofAPIServer = []string{"fastadmit_cluster_requests_waiting", "fastadmit_cluster_requests_given_up_total"}

// ofPolicies are metrics that fastadmit has only with policies, after one was violated or could not
// be evaluated, as in e2e.
var ofPolicies = []string{"fastadmit_policy_checks_total", "fastadmit_policy_cost_bucket"}

// ofWebhooks are metrics that fastadmit has only with webhook configurations as custom resources,
// as in e2e.
var ofWebhooks = []string{"fastadmit_webhook_configurations_invalid"}

// ofTraffic are metrics that fastadmit has only with a shadow, or if it records reviews. The table of metrics, which another test
// compares with the code, must have them.
var ofTraffic = []string{
	"fastadmit_shadow_differences_total", "fastadmit_shadow_skipped_total", "fastadmit_shadow_stuck_reviews",
	"fastadmit_recordings_dropped_total",
}

var (
	metricName = regexp.MustCompile(`\b(?:fastadmit|apiserver|go|process)_[a-z_]+\b|\bALERTS\b`)
	labelValue = regexp.MustCompile(`(\w+)=~?"([^"]*)"`)
)

// metricsIn returns the metrics in an expression.
func metricsIn(expression string) []string {
	return metricName.FindAllString(labelValue.ReplaceAllString(expression, ""), -1)
}

// TestMetricsExist checks that a running fastadmit has the metrics of all expressions.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	scraped := scrape(t)
	known := make(map[string]bool)
	for line := range strings.Lines(scraped) {
		name, _, _ := strings.Cut(strings.Fields(line)[0], "{")
		known[name] = true
	}
	documented := readFile(t, "../docs/metrics.md")
	ofOthers := slices.Concat(ofKubeAPIServer, ofPrometheus, ofManager, ofAPIServer, ofPolicies, ofWebhooks)
	for _, n := range ofTraffic {
		known[n] = strings.Contains(documented, "`"+n+"`")
	}
	for of, expression := range expressions(t) {
		names := metricsIn(expression)
		if len(names) == 0 {
			t.Errorf("%s: got no metric in %s", of, expression)
		}
		for _, n := range names {
			if !known[n] && !slices.Contains(ofOthers, n) {
				t.Errorf("%s: nobody has %s", of, n)
			}
		}
		if strings.Contains(expression, "apiserver_") || strings.Contains(expression, "ALERTS") {
			continue // it cannot be compared here
		}
		for _, m := range labelValue.FindAllStringSubmatch(expression, -1) {
			if m[2] == ".*" {
				continue // all values of a variable
			}
			for want := range strings.SplitSeq(m[2], "|") {
				if !strings.Contains(scraped, fmt.Sprintf("%s=%q", m[1], want)) {
					t.Errorf("%s: no series has %s=%q", of, m[1], want)
				}
			}
		}
	}
}

// ofLibrary are metrics to which Prometheus' lint objects. VictoriaMetrics/metrics has chosen their
// names and types.
var ofLibrary = map[string]string{
	"go_cgo_calls_count":                     "counts, and is not called _total",
	"go_gc_forced_count":                     "counts, and is not called _total",
	"go_cpu_count":                           "is called like the count of a histogram",
	"process_io_read_bytes_total":            "counts, and says that it is a gauge",
	"process_io_read_syscalls_total":         "counts, and says that it is a gauge",
	"process_io_storage_read_bytes_total":    "counts, and says that it is a gauge",
	"process_io_storage_written_bytes_total": "counts, and says that it is a gauge",
	"process_io_write_syscalls_total":        "counts, and says that it is a gauge",
	"process_io_written_bytes_total":         "counts, and says that it is a gauge",
}

// TestPromlint runs Prometheus' own lint on the metrics of a running fastadmit.
func TestPromlint(t *testing.T) {
	t.Parallel()
	_, stderr, _ := try(t, scrape(t), tool(t, "promtool"), "check", "metrics")
	met := make(map[string]bool)
	for line := range strings.Lines(stderr) {
		name, _, _ := strings.Cut(line, " ")
		if met[name] = true; ofLibrary[name] == "" {
			t.Errorf("promtool check metrics: %s", line)
		}
	}
	for name, why := range ofLibrary {
		if !met[name] {
			t.Errorf("%s: Prometheus does not object to it, although it %s", name, why)
		}
	}
}

// The maximum number of series. For each plugin: counters of 35 operations and outcomes and a
// histogram of 21 series for each of two endpoints, counters of 7 outcomes and a histogram for each
// of two phases, and its panics. For each kind of objects in the cache: four series, and four
// results of four verbs. The rest is for six endpoints, the server and its certificates.
const (
	seriesOfPlugin = 170
	seriesOfKind   = 20
	seriesOfServer = 450
)

// TestCardinality checks the bound on series in docs/operations.md. Calls do not add series, see
// scrapeWith.
func TestCardinality(t *testing.T) {
	t.Parallel()
	plugins := allPlugins(t)
	for _, enabled := range [][]string{plugins, {"AlwaysPullImages"}} {
		scraped := scrape(t)
		if len(enabled) == 1 {
			scraped = scrapeWith(t, enabled...)
		}
		kinds := strings.Count(scraped, "\nfastadmit_cluster_synced{")
		if got, most := own(scraped), seriesOfServer+seriesOfPlugin*len(enabled)+seriesOfKind*kinds; got > most || got < most/2 {
			t.Errorf("%d plugins: got %d series, want at most %d, and not a bound that says nothing", len(enabled), got, most)
		}
	}
	want := fmt.Sprintf("at most %d series, %d more for each plugin, and %d for each kind of objects in the cache", seriesOfServer,
		seriesOfPlugin, seriesOfKind)
	if text := strings.Join(strings.Fields(readFile(t, "../docs/operations.md")), " "); !strings.Contains(text, want) {
		t.Errorf("docs/operations.md: want it to say %q", want)
	}
}

// own counts fastadmit's own series, without those of every process.
func own(scraped string) int { return strings.Count("\n"+scraped, "\nfastadmit_") }

var scraped struct {
	sync.Once
	metrics string
}

// scrape returns the metrics of a fastadmit with all plugins.
func scrape(t *testing.T) string {
	t.Helper()
	scraped.Do(func() { scraped.metrics = scrapeWith(t, allPlugins(t)...) })
	return scraped.metrics
}

func allPlugins(t *testing.T) (names []string) {
	t.Helper()
	for line := range strings.Lines(run(t, binary, "plugins")) {
		if name, _, _ := strings.Cut(line, " "); name != "NAME" {
			names = append(names, name)
		}
	}
	return names
}

// accounts are the service accounts of the recorded Pods. Without them, ServiceAccount would wait.
func accounts() string {
	var items string
	for _, namespace := range [...]string{"default", "kube-system", "shop"} {
		for _, name := range [...]string{"default", "web"} {
			items += fmt.Sprintf("---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s, namespace: %s}\n", name, namespace)
		}
	}
	return items
}

// scrapeWith does what scrape does with these plugins, after calls that were allowed, patched,
// denied, unreadable and refused.
func scrapeWith(t *testing.T, plugins ...string) string {
	t.Helper()
	var configured []string
	for name, configuration := range configurations {
		configured = append(configured, fmt.Sprintf("{name: %s, configuration: %s}", name, configuration))
	}
	admission := "{apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration, plugins: [" + strings.Join(configured, ",") + "]}"
	cmd := exec.Command(binary, "serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0",
		"--allow-unauthenticated-writes", "--enable-admission-plugins="+strings.Join(plugins, ","), "--admission-control-config-file="+
			writeFile(t, "admission.yaml", admission),
		"--cluster-state-dir="+filepath.Dir(writeFile(t, "accounts.yaml", accounts())))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it is no longer needed
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address := regexp.MustCompile(`serving on (https://[^\s,]+), metrics on (http://[^\s,]+)`).FindStringSubmatch(line)
	if address == nil {
		t.Fatalf("got %q, %v, want a line with the addresses", line, err)
	}
	before := own(getMetrics(t, address[2]))
	callAll(t, address[1], plugins)
	scraped := getMetrics(t, address[2])
	if after := own(scraped); after != before {
		t.Errorf("got %d series after calls, want the %d before", after, before)
	}
	if !regexp.MustCompile(`(?m)^fastadmit_requests_total\{.*decision="patched"\} [1-9]`).MatchString(scraped) ||
		!regexp.MustCompile(`(?m)^fastadmit_refused_requests_total\{code="4.."\} [1-9]`).MatchString(scraped) {
		t.Error("got no call that was patched, or none that was refused")
	}
	return scraped
}

// callAll sends the recordings to every endpoint.
func callAll(t *testing.T, address string, plugins []string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	paths := []string{"/", "/mutate", "/mutate/fail", "/mutate/ignore", "/validate", "/validate/fail", "/validate/ignore"}
	for _, plugin := range plugins {
		paths = append(paths, "/mutate/"+plugin, "/validate/"+plugin)
	}
	for _, path := range paths {
		for _, body := range append(corpus.Names(), "") {
			sent := []byte("{}")
			if body != "" {
				sent = corpus.MustRead(body)
			}
			response, err := client.Post(address+path+"?timeout=10s", "application/json", bytes.NewReader(sent))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
		}
	}
}

func getMetrics(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get(address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
