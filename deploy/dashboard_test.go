package deploy_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repository is where the dashboard's links to documents lead.
const repository = "https://github.com/fastadmit/fastadmit/blob/main/"

// TestDashboardLayout checks that the dashboard begins with a row, that panels have a description and a query, that each has an id of
// its own, and that none covers another.
func TestDashboardLayout(t *testing.T) {
	t.Parallel()
	covered, ids, rows := make(map[[2]int]string), make(map[int]bool), 0
	for i, p := range readDashboard(t).Panels {
		if ids[p.ID] {
			t.Errorf("panel %s: got the id %d, which another has", p.Title, p.ID)
		}
		ids[p.ID] = true
		if isRow := p.Type == "row"; isRow {
			rows++
		} else if i == 0 || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %s: got no row before it, no description or no target", p.Title)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := covered[[2]int{x, y}]; other != "" || x > 23 {
					t.Fatalf("panel %s: got column %d, row %d, where %q is, want 24 columns and a place of its own", p.Title, x, y, other)
				}
				covered[[2]int{x, y}] = p.Title
			}
		}
	}
	if rows < 5 {
		t.Errorf("got %d rows, want more", rows)
	}
}

// labelsOf returns the variables by which the series of a metric are selected: those for which it has a label.
func labelsOf(documented map[string][]string, metric string) []string {
	switch {
	case metric == "ALERTS" || strings.HasPrefix(metric, "apiserver_"):
		return variables[:1] // alerts have no namespace, and that of kube-apiserver is another
	case !strings.HasPrefix(metric, "fastadmit_"):
		return variables[:2]
	}
	has, ok := documented[metric]
	if !ok {
		has = documented[regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(metric, "")]
	}
	return slices.DeleteFunc(slices.Clone(variables), func(name string) bool {
		return !slices.Contains(variables[:2], name) && !slices.Contains(has, name)
	})
}

// documentedLabels reads the labels of all metrics from docs/metrics.md.
func documentedLabels(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	row := regexp.MustCompile("(?m)^\\| `(fastadmit_\\w+)` \\| \\w+ \\| ([^|]*) \\|")
	for _, m := range row.FindAllStringSubmatch(readFile(t, "../docs/metrics.md"), -1) {
		all[m[1]] = strings.Split(m[2], ", ")
	}
	if len(all) < 50 {
		t.Fatalf("got %d metrics in docs/metrics.md, want more", len(all))
	}
	return all
}

// TestDashboardVariables checks that each metric of the panels is selected by every variable for which it has a label, so that a
// choice changes all panels that it is about. The values of a variable depend on those before it.
func TestDashboardVariables(t *testing.T) {
	t.Parallel()
	d, documented := readDashboard(t), documentedLabels(t)
	check := func(where, expression string, selected func(metric string) []string) {
		t.Helper()
		for _, at := range metricName.FindAllStringIndex(expression, -1) {
			if strings.Count(expression[:at[0]], `"`)%2 != 0 {
				continue // in the value of a label
			}
			metric, want := expression[at[0]:at[1]], ""
			for _, name := range selected(metric) {
				want += fmt.Sprintf(`, %s=~"$%s"`, name, name)
			}
			want = strings.TrimPrefix(want, ", ")
			if rest := expression[at[1]:]; want != "" && !strings.HasPrefix(rest, "{"+want+"}") && !strings.HasPrefix(rest, "{"+want+",") {
				t.Errorf("%s: %s is followed by %.100s, want {%s}", where, metric, rest, want)
			}
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			check("panel "+p.Title, target.Expr, func(metric string) []string { return labelsOf(documented, metric) })
		}
	}
	var names []string
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		if !strings.HasPrefix(v.Definition, "label_values(fastadmit_") || !strings.HasSuffix(v.Definition, ", "+v.Name+")") {
			t.Errorf("variable %s: got %s, want the values of the label", v.Name, v.Definition)
		}
		check("variable "+v.Name, v.Definition, func(metric string) []string {
			return slices.DeleteFunc(labelsOf(documented, metric), func(name string) bool { return !slices.Contains(names, name) })
		})
		names = append(names, v.Name)
	}
	if !slices.Equal(names, variables) {
		t.Errorf("got variables %q, want %q", names, variables)
	}
}

// TestDashboardLinks checks that links lead to documents that exist, or to the dashboard with a value for one of its variables, and
// that a panel with a metric of each alert leads to the alert's runbook.
func TestDashboardLinks(t *testing.T) {
	t.Parallel()
	d := readDashboard(t)
	alerts := make(map[string]string) // expressions
	runbooks := make(map[string]string)
	for _, g := range readRules(t).Groups {
		for _, r := range g.Rules {
			alerts[r.Alert], runbooks[r.Alert] = r.Expr, r.Annotations["runbook_url"]
		}
	}
	linked := make(map[string]bool)
	for _, p := range d.Panels {
		var metrics []string
		for _, target := range p.Targets {
			metrics = append(metrics, metricsIn(evaluated(target.Expr))...)
		}
		for _, l := range p.Links {
			shares := slices.ContainsFunc(metricsIn(alerts[l.Title]), func(name string) bool { return slices.Contains(metrics, name) })
			if l.URL != runbooks[l.Title] || !shares {
				t.Errorf("panel %s: got the link %v, want the runbook of an alert with a metric of the panel", p.Title, l)
			}
			linked[l.Title] = true
		}
		for _, l := range p.FieldConfig.Defaults.Links {
			checkDataLink(t, d, p, l)
		}
	}
	for alert := range alerts {
		if !linked[alert] {
			t.Errorf("%s: no panel leads to its runbook", alert)
		}
	}
	for _, l := range d.Links {
		document, ok := strings.CutPrefix(l.URL, repository)
		document, _, _ = strings.Cut(document, "#")
		if _, err := os.Stat("../" + document); !ok || err != nil {
			t.Errorf("got the link %v, %v, want one to a document of the repository", l, err)
		}
	}
}

// checkDataLink checks a link of a panel's series: it names a label that the series has.
func checkDataLink(t *testing.T, d dashboard, p panel, l panelLink) {
	t.Helper()
	m := regexp.MustCompile(`\$\{__field\.labels\.(\w+)\}`).FindStringSubmatch(l.URL)
	if m == nil {
		t.Errorf("panel %s: got the link %v, want one with a label", p.Title, l)
		return
	}
	if by := regexp.MustCompile(`(?:by|and on) \([^)]*\b` + m[1] + `\b`); !by.MatchString(p.Targets[0].Expr) {
		t.Errorf("panel %s: got a link with the label %s, which the series of %s do not have", p.Title, m[1], p.Targets[0].Expr)
	}
	if m[1] == "alertname" {
		if l.URL != repository+"docs/runbooks/"+m[0]+".md" {
			t.Errorf("panel %s: got the link %v, want one to the runbook", p.Title, l)
		}
		return
	}
	prefix, last := "/d/"+d.UID+"?${__url_time_range}&${datasource:queryparam}", "&var-"+m[1]+"="+m[0]
	for _, name := range variables {
		if own := "${" + name + ":queryparam}"; strings.Contains(l.URL, own) == (name == m[1]) {
			t.Errorf("panel %s: got the link %v, want one that keeps the other variables", p.Title, l)
		}
	}
	if !strings.HasPrefix(l.URL, prefix) || !strings.HasSuffix(l.URL, last) {
		t.Errorf("panel %s: got the link %v, want one to the dashboard, from %s to %s", p.Title, l, prefix, last)
	}
}
