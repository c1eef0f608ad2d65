package shadow

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/compare"
)

const (
	// groupsMax is the maximum number of groups of differences: more than anybody reads. Further differences are only
	// grouped by plugin and answers.
	groupsMax = 200

	// aboutBytesMax is the longest text about both answers. All groups together take up to 1 MiB.
	aboutBytesMax = 4 << 10

	// nameBytesMax is the longest name of a review. The names of Kubernetes have up to 253 bytes.
	nameBytesMax = 512

	// policiesMax is the maximum number of policies with series of their own. All others are counted as "other".
	policiesMax = 200
)

// A reason is why a review was skipped.
type reason uint8

const (
	notSkipped reason = iota
	skippedLoad
	skippedQueue
	skippedMemory
	skippedTime
	skippedReload
	skippedLeftOut
	skippedError
	skippedPanic
	skippedStuck
	reasonCount
)

func (r reason) String() string {
	return [...]string{"", "load", "queue", "memory", "time", "reload", "left_out", "error", "panic", "stuck"}[r]
}

// counters are the metrics.
type counters struct {
	set     *metrics.Set
	reviews *metrics.Counter
	skipped [reasonCount]*metrics.Counter

	policies map[string]bool // those with series; only the worker uses it
}

func newCounters(set *metrics.Set) *counters {
	c := &counters{
		set: set, policies: make(map[string]bool),
		reviews: set.NewCounter("fastadmit_shadow_reviews_total"),
	}
	for r := notSkipped + 1; r < reasonCount; r++ {
		c.skipped[r] = set.NewCounter(fmt.Sprintf("fastadmit_shadow_skipped_total{reason=%q}", r))
	}
	return c
}

// skip counts a review that is not compared.
func (c *counters) skip(t *Trial, why reason) {
	c.skipped[why].Inc()
	t.found.skipped[why].Add(1)
}

// fail counts a failure of a plugin.
func (c *counters) fail(plugin string) {
	c.set.GetOrCreateCounter(fmt.Sprintf("fastadmit_shadow_plugin_failures_total{plugin=%q}", plugin)).Inc()
}

// policyLabel matches the names of policies that become labels.
var policyLabel = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9./:_-]{0,252}$`)

func (c *counters) differ(d *Difference) {
	policy := d.Policy
	if policy != "" && !c.policies[policy] {
		if len(c.policies) >= policiesMax || !policyLabel.MatchString(policy) {
			policy = "other"
		} else {
			c.policies[policy] = true
		}
	}
	c.set.GetOrCreateCounter(fmt.Sprintf("fastadmit_shadow_differences_total{plugin=%q,policy=%q,from=%q,to=%q}",
		d.Plugin, policy, d.From, d.To)).Inc()
}

// A Report has the differences since the configuration was loaded.
type Report struct {
	Since         time.Time        `json:"since"`
	Configuration string           `json:"configuration"` // its digest
	Reviews       int64            `json:"reviews"`       // that were compared
	Differing     int64            `json:"differing"`
	Skipped       map[string]int64 `json:"skipped"` // by reason
	// Stopped says why no reviews are compared at the moment; empty if they are.
	Stopped string `json:"stopped,omitempty"`
	// Differences are groups of differences, the largest first.
	Differences []Difference `json:"differences"`
}

// A Difference is a group of reviews whose answers differ in the same way.
type Difference struct {
	Plugin string `json:"plugin"` // empty if it is not known, or if there are several
	Policy string `json:"policy,omitempty"`
	// From and To are the answers: allowed, patched, warned, denied or failed. If they are the same, the message, or
	// what is patched, is different.
	From      string    `json:"from"`
	To        string    `json:"to"`
	Namespace string    `json:"namespace,omitempty"`
	Resource  string    `json:"resource,omitempty"` // empty if there are too many groups
	Reviews   int64     `json:"reviews"`
	Last      time.Time `json:"last"`
	Example   Example   `json:"example"`
}

// Where returns what the reviews are about, as "pods in shop".
func (d *Difference) Where() string {
	where := cmp.Or(d.Resource, "other resources")
	if d.Namespace != "" {
		where += " in " + d.Namespace
	}
	return where
}

// Change returns how the answers differ, as "allowed to denied by PodSecurity".
func (d *Difference) Change() string {
	change := d.From + " to " + d.To
	if d.From == d.To {
		change = d.From + " differently"
	}
	if d.Plugin == "" {
		return change + " by several plugins"
	}
	return strings.TrimSpace(change + " by " + d.Plugin + " " + d.Policy)
}

// An Example is the first review of a group.
type Example struct {
	Endpoint  string `json:"endpoint"`
	UID       string `json:"uid"`
	User      string `json:"user"`
	Operation string `json:"operation"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	About     string `json:"about"` // both answers
}

type group struct{ plugin, policy, from, to, namespace, resource string }

// differences are the differences of a Trial.
type differences struct {
	skipped [reasonCount]atomic.Int64

	mu     sync.Mutex
	report Report // without Skipped and Differences
	groups map[group]*Difference
}

func (f *differences) begin(digest string) {
	f.report = Report{Since: time.Now().UTC(), Configuration: digest}
	f.groups = make(map[group]*Difference)
}

func (f *differences) add(all []Difference) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Reviews++
	if len(all) > 0 {
		f.report.Differing++
	}
	for i := range all {
		d := &all[i]
		key := group{d.Plugin, d.Policy, d.From, d.To, d.Namespace, d.Resource}
		if f.groups[key] == nil && len(f.groups) >= groupsMax {
			d.Policy, d.Namespace, d.Resource = "", "", ""
			key = group{plugin: d.Plugin, from: d.From, to: d.To}
		}
		found := f.groups[key]
		if found == nil {
			found = d
			f.groups[key] = found
		}
		found.Reviews++
		found.Last = d.Last
	}
}

// Report returns the differences of what is tried now. ok is false if nothing is.
func (s *Shadow) Report() (report Report, ok bool) {
	t := s.current.Load()
	if t == nil {
		return report, false
	}
	f := &t.found
	f.mu.Lock()
	defer f.mu.Unlock()
	report = f.report
	report.Stopped = t.stopped()
	report.Skipped = make(map[string]int64)
	for r := range f.skipped {
		if n := f.skipped[r].Load(); n > 0 {
			report.Skipped[reason(r).String()] = n
		}
	}
	report.Differences = make([]Difference, 0, len(f.groups))
	for _, d := range f.groups {
		report.Differences = append(report.Differences, *d)
	}
	slices.SortFunc(report.Differences, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(b.Reviews, a.Reviews), cmp.Compare(a.Plugin, b.Plugin), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.From, b.From),
			cmp.Compare(a.To, b.To), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Resource, b.Resource))
	})
	return report, true
}

// count counts a compared review, and logs its differences.
func (w *worker) count(t *Trial, of *described, before, after *compare.Outcome, all []compare.Difference) {
	counted := w.counted.Load()
	counted.reviews.Inc()
	found := make([]Difference, len(all))
	for i := range all {
		d := &found[i]
		d.Plugin, d.Policy = w.cause(&all[i], before, after)
		d.From, d.To = words(all[i].Change, before, after)
		d.Namespace, d.Resource, d.Last = of.namespace, of.resource, time.Now().UTC()
		about := all[i].About
		if of.isSecret && all[i].Change == compare.ChangedPatch {
			about = "the stored Secret changes"
		}
		d.Example = Example{
			Endpoint: of.endpoint, UID: of.uid, User: of.user, Operation: of.operation, Namespace: of.namespace, Name: of.name,
			About: strings.Clone(codec.TruncateString(about, aboutBytesMax)),
		}
		counted.differ(d)
		w.log(d, all[i].Change)
	}
	t.found.add(found)
}

// log logs a difference. Of the contents of objects, it logs what messages quote.
func (w *worker) log(d *Difference, change string) {
	about := d.Example.About
	if change == compare.ChangedPatch {
		about = "the stored object changes"
	}
	e := &d.Example
	w.o.Log.Info("the shadow answers something else", "plugin", d.Plugin, "policy", d.Policy, "from", d.From, "to", d.To,
		"endpoint", e.Endpoint, "uid", e.UID, "user", e.User, "operation", e.Operation, "resource", d.Resource,
		"namespace", d.Namespace, "name", e.Name, "message", about)
}

// The plugins whose messages name policies.
const (
	validatingPolicies = "ValidatingAdmissionPolicy"
	mutatingPolicies   = "MutatingAdmissionPolicy"
)

// cause returns the plugin and the policy that a difference is attributed to. The plugin is one of the chain, or one
// that is enabled outside of it, so that texts of users do not become labels.
func (w *worker) cause(d *compare.Difference, before, after *compare.Outcome) (plugin, policy string) {
	t := w.trial
	plugin = d.Plugin
	if d.Change == compare.ChangedPatch {
		plugin = t.patchedBy(slices.Concat(after.PatchedBy, before.PatchedBy))
	}
	if d.Change == compare.ChangedWarnings && plugin == "" && compare.PolicyOf(before, after) != "" {
		plugin = validatingPolicies
	}
	if !t.known[plugin] {
		plugin = ""
	}
	if plugin == validatingPolicies || plugin == mutatingPolicies {
		policy = strings.Clone(codec.TruncateString(compare.PolicyOf(before, after), nameBytesMax))
	}
	return plugin, policy
}

// patchedBy returns the plugin that causes another stored object: the one that differs, or that alone changed it.
func (t *Trial) patchedBy(names []string) string {
	names = slices.DeleteFunc(names, func(name string) bool { return !t.known[name] })
	if changed := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(t.Changed, name) }); len(changed) > 0 {
		names = changed
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) == 1 {
		return names[0]
	}
	return ""
}

// Words for answers, besides the decisions.
const (
	patched = "patched"
	warned  = "warned"
)

// words returns what a difference is from and to.
func words(change string, before, after *compare.Outcome) (from, to string) {
	of := func(o *compare.Outcome) string {
		switch {
		case change == compare.ChangedPatch && len(o.Patch) > 0:
			return patched
		case change == compare.ChangedWarnings && len(o.Warnings) > 0:
			return warned
		}
		return string(o.Decision)
	}
	return of(before), of(after)
}
