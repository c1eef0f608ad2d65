// Package status makes the status page of a server: one page of HTML without scripts, about what is enabled, what was decided
// and which limits are near. Its numbers are those of the metrics.
package status

import (
	"cmp"
	_ "embed" // the template
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/printable"
)

//go:embed status.html
var text string

var page = template.Must(template.New("status").Funcs(template.FuncMap{"plain": printable.Lines}).Parse(text))

// Page is what the page shows.
type Page struct {
	Now, Started time.Time
	// Host is the host name of the process, in a cluster the name of its pod.
	Host string
	// Since is when the configuration in use took effect, and Digest identifies it.
	Since  time.Time
	Digest string
	Checks []Check
	// Plugins are the enabled plugins in their order.
	Plugins []Plugin
	Limits  []Limit
	// Registrations are the webhook configurations that this process registers.
	Registrations []Registration
	// Replicas is a sentence about all replicas; empty if nothing is known.
	Replicas string
	// Shadow are the differences that the shadow found, the most frequent first, and ShadowReviews the number of reviews that it
	// was asked. IsTried is true if the configuration has a shadow.
	Shadow        []Difference
	ShadowReviews int64
	IsTried       bool
	// ShadowStopped says why the shadow compares no reviews at the moment; empty if it does.
	ShadowStopped string
	// Recent are the last denials and failures, the last one first. RecentMax is 0 if none are kept.
	Recent    []Decision
	RecentMax int

	metrics series
}

// Check is a check of /readyz.
type Check struct {
	Name string
	// State is ok, failed, or noted for a failure that does not affect readiness.
	State, About string
}

// Difference is a change of answers that the shadow found.
type Difference struct {
	About, Example string
	Reviews        int64
}

// Plugin is an enabled plugin.
type Plugin struct{ Name, FailurePolicy, Enforcement string }

// Registration is a webhook configuration that this process registers.
type Registration struct {
	Kind, Name string
	// Webhooks is how many of its webhooks call this server.
	Webhooks int
	// Written is when it was written last, zero if that is not known, and By by whom.
	Written time.Time
	By      string
	// Fault is why it could not be read or written.
	Fault string
}

// Limit is something that has a maximum. With Bytes, the numbers are bytes.
type Limit struct {
	Name      string
	Used, Max float64
	Bytes     bool
}

// Percent returns how much of the limit is used.
func (l Limit) Percent() int {
	if l.Max <= 0 {
		return 0
	}
	return int(math.Ceil(100 * min(l.Used/l.Max, 1)))
}

// Shown returns the used part and the maximum as texts.
func (l Limit) Shown() string {
	if l.Max <= 0 {
		return l.number(l.Used)
	}
	return l.number(l.Used) + " of " + l.number(l.Max)
}

func (l Limit) number(n float64) string {
	if !l.Bytes {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	const mebi = 1 << 20
	return strconv.FormatFloat(n/mebi, 'f', 1, 64) + " MiB"
}

// Write writes the page. metrics are those of the process in the text format of Prometheus.
func (p *Page) Write(w io.Writer, metrics string) error {
	p.metrics = parse(metrics)
	return page.Execute(w, p)
}

// Version returns the version of the binary and of Go.
func (p *Page) Version() string {
	for _, s := range p.metrics["fastadmit_build_info"] {
		return s.labels["version"] + ", " + s.labels["goversion"]
	}
	return ""
}

// Failed returns the number of checks that fail.
func (p *Page) Failed() (count int) {
	for _, c := range p.Checks {
		if c.State != "ok" {
			count++
		}
	}
	return count
}

// Row is a row of a table of decisions.
type Row struct {
	Name, About string
	// Counts are the numbers of decisions, in the order of Outcomes.
	Counts []float64
	// Median and P99 are upper bounds of these durations; "" without any.
	Median, P99 string
}

// Outcomes are the columns of decisions.
func (*Page) Outcomes() (all []string) {
	for _, outcome := range admission.Outcomes() {
		all = append(all, outcome.String())
	}
	return all
}

// Endpoints returns a row for each endpoint that has answered reviews.
func (p *Page) Endpoints() []Row {
	return p.rows("fastadmit_requests_total", "fastadmit_request_duration_seconds", func(s *sample) string { return "/" + s.labels["webhook"] }, true)
}

// PluginRows returns a row for each enabled plugin and phase.
func (p *Page) PluginRows() (rows []Row) {
	all := p.rows("fastadmit_plugin_decisions_total", "fastadmit_plugin_duration_seconds", func(s *sample) string {
		return s.labels["plugin"] + " " + s.labels["phase"]
	}, false)
	for _, plugin := range p.Plugins {
		for _, row := range all {
			if name, phase, _ := strings.Cut(row.Name, " "); name == plugin.Name {
				row.Name, row.About = name, fmt.Sprintf("%s, failure policy %s%s", phase, plugin.FailurePolicy, plugin.Enforcement)
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// rows returns a row for each name that of returns for the samples of a counter. With asked, it leaves out those that count nothing.
func (p *Page) rows(counter, histogram string, of func(*sample) string, asked bool) (rows []Row) {
	counts, buckets := make(map[string][]float64), make(map[string][]bucket)
	outcomes := p.Outcomes()
	for _, s := range p.metrics[counter] {
		name := of(s)
		if counts[name] == nil {
			counts[name] = make([]float64, len(outcomes))
		}
		if i := slices.Index(outcomes, s.labels["decision"]); i >= 0 {
			counts[name][i] += s.value
		}
	}
	for _, s := range p.metrics[histogram+"_bucket"] {
		most, _ := strconv.ParseFloat(s.labels["le"], 64)
		buckets[of(s)] = append(buckets[of(s)], bucket{most, s.value})
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		row := Row{Name: name, Counts: counts[name], Median: latency(buckets[name], 0.5), P99: latency(buckets[name], 0.99)}
		if !asked || slices.Max(row.Counts) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// Policies returns a row for each policy, binding and action that was ever violated or failed, the most frequent first.
func (p *Page) Policies() (rows []Row) {
	for _, s := range p.metrics["fastadmit_policy_checks_total"] {
		if s.value == 0 {
			continue
		}
		about := s.labels["enforcement_action"]
		if kind := s.labels["error_type"]; kind != "" && kind != "no_error" {
			about += ", " + kind
		}
		name := s.labels["policy"]
		if binding := s.labels["policy_binding"]; binding != "" && binding != name {
			name += ", binding " + binding
		}
		rows = append(rows, Row{Name: name, About: about, Counts: []float64{s.value}})
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(b.Counts[0], a.Counts[0]) })
	return rows[:min(len(rows), policiesMax)]
}

// Cost is a row about a policy: how often it was evaluated, the cost of an evaluation, and how long it took.
type Cost struct {
	Row
	Duration, DurationP99 string
}

type policyKey struct{ policy, plugin string }

// ofPolicies returns the buckets of a histogram for each policy.
func (p *Page) ofPolicies(histogram string) map[policyKey][]bucket {
	all := make(map[policyKey][]bucket)
	for _, s := range p.metrics[histogram+"_bucket"] {
		most, _ := strconv.ParseFloat(s.labels["le"], 64)
		of := policyKey{s.labels["policy"], s.labels["plugin"]}
		all[of] = append(all[of], bucket{most, s.value})
	}
	return all
}

// Costs returns a row for each policy that was evaluated, the most expensive first.
func (p *Page) Costs() (rows []Cost) {
	buckets, durations := p.ofPolicies("fastadmit_policy_cost"), p.ofPolicies("fastadmit_policy_duration_seconds")
	worst := make(map[policyKey]float64)
	for of, all := range buckets {
		if worst[of] = quantile(all, 0.99); all[len(all)-1].count > 0 {
			row := Row{
				Name: of.policy, About: of.plugin, Counts: []float64{all[len(all)-1].count}, Median: cost(quantile(all, 0.5)), P99: cost(worst[of]),
			}
			rows = append(rows, Cost{row, latency(durations[of], 0.5), latency(durations[of], 0.99)})
		}
	}
	slices.SortFunc(rows, func(a, b Cost) int {
		return cmp.Or(cmp.Compare(worst[policyKey{b.Name, b.About}], worst[policyKey{a.Name, a.About}]),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.About, b.About))
	})
	return rows[:min(len(rows), policiesMax)]
}

// cost returns an upper bound of a cost as a text.
func cost(most float64) string {
	if math.IsInf(most, 1) {
		return "more"
	}
	return "≤ " + strconv.FormatFloat(most, 'f', 0, 64)
}

// Certificates returns the certificates with the time when they expire.
func (p *Page) Certificates() (rows []Row) {
	add := func(name string, expires float64) {
		if expires <= 0 {
			return
		}
		at := time.Unix(int64(expires), 0)
		days := int(at.Sub(p.Now) / (24 * time.Hour))
		rows = append(rows, Row{Name: name, About: fmt.Sprintf("%s UTC, in %d days", at.UTC().Format(time.DateTime), days)})
	}
	for _, s := range p.metrics["fastadmit_serving_certificate_expiry_timestamp_seconds"] {
		add("serving certificate", s.value)
	}
	names := map[string]string{"ca": "CA that signs it", "registered": "CA in the caBundle of the registered webhooks"}
	for _, s := range p.metrics["fastadmit_certificate_expiry_timestamp_seconds"] {
		if name := names[s.labels["resource"]]; name != "" {
			add(name, s.value)
		}
	}
	return rows
}

// policiesMax is the maximum number of rows of policies.
const policiesMax = 200

// A bucket has the number of samples up to a duration in seconds.
type bucket struct{ most, count float64 }

// quantile returns the upper bound of the bucket in which the quantile is. It sorts the buckets.
func quantile(all []bucket, q float64) float64 {
	slices.SortFunc(all, func(a, b bucket) int { return cmp.Compare(a.most, b.most) })
	for _, b := range all {
		if b.count >= q*all[len(all)-1].count {
			return b.most
		}
	}
	return math.Inf(1)
}

// latency returns an upper bound of a quantile of durations in seconds as a text, "" without any.
func latency(all []bucket, q float64) string {
	most := quantile(all, q)
	switch {
	case len(all) == 0 || all[len(all)-1].count == 0:
		return ""
	case math.IsInf(most, 1):
		return "> " + seconds(all[max(len(all)-2, 0)].most)
	}
	return "≤ " + seconds(most)
}

func seconds(n float64) string { return time.Duration(n * float64(time.Second)).String() }

// Ago returns a time and how long ago it was.
func (p *Page) Ago(t time.Time) string {
	return t.UTC().Format(time.DateTime) + " UTC, " + p.Now.Sub(t).Round(time.Second).String() + " ago"
}

// series are samples by name.
type series map[string][]*sample

type sample struct {
	labels map[string]string
	value  float64
}

// parse parses metrics in the text format of Prometheus.
func parse(text string) series {
	all := make(series)
	for line := range strings.Lines(text) {
		if name, s, ok := parseLine(strings.TrimSuffix(line, "\n")); ok {
			all[name] = append(all[name], s)
		}
	}
	return all
}

func parseLine(line string) (name string, s *sample, ok bool) {
	s = &sample{labels: make(map[string]string)}
	at := strings.IndexAny(line, "{ ")
	if at <= 0 || line[0] == '#' {
		return "", nil, false
	}
	name, line = line[:at], line[at:]
	if line[0] == '{' {
		for line = line[1:]; !strings.HasPrefix(line, "}"); line = strings.TrimPrefix(line, ",") {
			key, rest, found := strings.Cut(line, "=")
			quoted, err := strconv.QuotedPrefix(rest)
			if !found || err != nil {
				return "", nil, false
			}
			value, err := strconv.Unquote(quoted)
			if err != nil {
				return "", nil, false
			}
			s.labels[key], line = value, rest[len(quoted):]
		}
		line = line[1:]
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	s.value = value
	return name, s, err == nil
}
