package policy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Exceptions are the PolicyExceptions that a Source knows. They implement admission.Exceptions. Several goroutines may
// use them at the same time.
type Exceptions struct {
	cluster *Cluster
	log     *slog.Logger
	series  exceptionSeries
	all     atomic.Pointer[exceptionSet]
	static  []*exception // of manifests

	resources *exceptionResources             // nil without custom resources
	known     func(ctx context.Context) error // waits for them
	isKnown   atomic.Bool                     // all are

	mu       sync.Mutex
	plugins  []string             // that are enabled, nil before Use
	policies []string             // that are evaluated, nil before usePolicies
	reported map[unknownName]bool // in the log
}

// exceptionSet has the exceptions by the names of policies and plugins. It is immutable.
type exceptionSet struct {
	of                *Exceptions
	all               []*exception // sorted by name
	policies, plugins map[string]*namedExceptions
}

// namedExceptions are the exceptions that name a policy or a plugin.
type namedExceptions struct {
	plugin, policy string // the values of labels
	all            []*exception
	index          *match.Index
}

func newExceptions(asked *Cluster, view *cluster.View) *Exceptions {
	return &Exceptions{cluster: asked, log: view.Log(), series: exceptionSeries{set: view.Metrics(), known: make(map[exceptionResult]*metrics.Counter)}}
}

// follow makes what follows the custom resources. known waits for them.
func (x *Exceptions) follow(setup *admission.Setup, known func(ctx context.Context) error) {
	x.resources = &exceptionResources{
		objects: cluster.PolicyExceptions.In(setup.Cluster), of: x,
		setup: &admission.Setup{InterpretCEL: setup.InterpretCEL, Version: setup.Version},
	}
	x.known = known
}

// refresh takes over the custom resources that changed.
func (x *Exceptions) refresh() error {
	custom, err := x.resources.refresh()
	if err == nil {
		x.use(custom)
		x.isKnown.Store(true)
	}
	return err
}

// use replaces the exceptions that are custom resources.
func (x *Exceptions) use(custom []*exception) {
	all := slices.Concat(x.static, custom)
	slices.SortStableFunc(all, func(a, b *exception) int { return strings.Compare(a.name, b.name) })
	if last := x.all.Load(); last != nil && slices.Equal(last.all, all) {
		return
	}
	set := &exceptionSet{of: x, all: all, policies: make(map[string]*namedExceptions), plugins: make(map[string]*namedExceptions)}
	add := func(to map[string]*namedExceptions, name string, e *exception, labels namedExceptions) {
		if to[name] == nil {
			to[name] = &labels
		}
		to[name].all = append(to[name].all, e)
	}
	for _, e := range all {
		for _, name := range e.policies {
			add(set.policies, name, e, namedExceptions{plugin: validatingKind, policy: name})
		}
		for _, name := range e.plugins {
			add(set.plugins, name, e, namedExceptions{plugin: name})
		}
	}
	for _, names := range [...]map[string]*namedExceptions{set.policies, set.plugins} {
		for _, n := range names {
			entries := make([]match.Entry, len(n.all))
			for i, e := range n.all {
				entries[i] = e.matcher.entry()
			}
			n.index = match.NewIndex(entries)
		}
	}
	x.all.Store(set)
	x.series.keep(all)
}

// Name implements admission.Exceptions.
func (x *Exceptions) Name(plugin string) bool {
	return x.all.Load().plugins[plugin] != nil || x.resources != nil && !x.isKnown.Load()
}

// Lift implements admission.Exceptions. No exception lifts what is said against policies, bindings and exceptions.
func (x *Exceptions) Lift(ctx context.Context, review *codec.Review, plugin string) string {
	if review.Resource().Group == cluster.PolicyGroup || x.resources != nil && !x.isKnown.Load() && x.known(ctx) != nil {
		return ""
	}
	set := x.all.Load()
	if set.plugins[plugin] == nil {
		return ""
	}
	d := new(Dispatch)
	d.Begin(ctx, review, x.cluster)
	defer d.End()
	d.Input = d.newInput()
	if e := set.find(d, set.plugins[plugin], time.Now()); e != nil {
		return e.name
	}
	return ""
}

// Excepted returns the name of the exception that lifts what a policy says against the review, empty for none. Call it
// only if the policy says something. It adds an audit annotation that names the exception.
func (d *Dispatch) Excepted(policy string) string {
	if d.exceptions == nil || d.exceptions.policies[policy] == nil {
		return ""
	}
	if d.asked != policy {
		d.asked, d.excepted = policy, d.lift(policy, time.Now())
	}
	return d.excepted
}

// exceptionKey is the key of the audit annotation of a policy whose denial is lifted.
const exceptionKey = "policy-exception"

func (d *Dispatch) lift(policy string, now time.Time) string {
	if d.Prepare() != nil { // the namespace cannot be read
		return ""
	}
	e := d.exceptions.find(d, d.exceptions.policies[policy], now)
	if e == nil {
		return ""
	}
	_ = d.Response.Annotate(AnnotationKey(policy, exceptionKey), e.name) // the key is valid
	return e.name
}

// find returns an exception that is for the review, nil if there is none. It counts the exception, or one that would
// have been for the review if it had not expired. What cannot be evaluated is not for the review.
func (s *exceptionSet) find(d *Dispatch, of *namedExceptions, now time.Time) *exception {
	places := of.index.Find(d.Ctx, d.Review, &d.sent, d)
	for _, ended := range [...]bool{false, true} {
		for _, place := range places {
			if d.Ctx.Err() != nil {
				return nil
			}
			e := of.all[place]
			if e.hasEnded(now) != ended {
				continue
			}
			switch matches, err := e.matches(d); {
			case err != nil:
				s.of.fail(d.Review, e, of, err)
			case matches && ended:
				s.of.series.count(exceptionResult{e.name, of.plugin, of.policy, exceptionExpired})
				return nil
			case matches:
				e.lifted.Add(1)
				s.of.series.count(exceptionResult{e.name, of.plugin, of.policy, exceptionLifted})
				return e
			}
		}
	}
	return nil
}

// fail counts an exception that cannot be evaluated. The log has its first error only: whoever sends reviews could fill
// the log.
func (x *Exceptions) fail(review *codec.Review, e *exception, of *namedExceptions, err error) {
	x.series.count(exceptionResult{e.name, of.plugin, of.policy, exceptionFailed})
	if e.failed.Swap(true) {
		return
	}
	text := admission.ShownValue(err.Error())
	if len(admission.HiddenFields(review)) > 0 {
		text = admission.HiddenValue
	}
	x.log.Warn("cannot evaluate a PolicyException, so it lifts nothing", "name", e.name, "plugin", of.plugin, "policy", of.policy, "error", text)
}

// An unknownName is the name of a plugin or a policy that is not evaluated, in an exception.
type unknownName struct{ exception, what, name string }

func (u unknownName) String() string {
	return fmt.Sprintf("%s %q names the %s %q, which is not evaluated, so it lifts nothing of it", ExceptionKind, u.exception, u.what, u.name)
}

// Use implements admission.Exceptions.
func (x *Exceptions) Use(plugins []string) {
	x.mu.Lock()
	x.plugins = plugins
	x.mu.Unlock()
	x.report()
}

// usePolicies takes the names of the policies that are evaluated.
func (x *Exceptions) usePolicies(names []string) {
	x.mu.Lock()
	x.policies = append([]string{}, names...)
	x.mu.Unlock()
	x.report()
}

// Unknown implements admission.Exceptions.
func (x *Exceptions) Unknown() (all []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, u := range x.unknown() {
		all = append(all, u.String())
	}
	return all
}

// List implements admission.Exceptions.
func (x *Exceptions) List() (all []admission.Exception) {
	for _, e := range x.all.Load().all {
		listed := admission.Exception{Name: e.name, Reason: e.reason, Lifted: e.lifted.Load()}
		if !e.expires.IsZero() {
			listed.ExpiresAt = e.expires.Format(time.RFC3339)
		}
		all = append(all, listed)
	}
	return all
}

// unknown returns the names that nothing has. The caller holds x.mu.
func (x *Exceptions) unknown() (all []unknownName) {
	if x.plugins == nil || x.policies == nil {
		return nil
	}
	add := func(what string, named map[string]*namedExceptions, known []string) {
		for name, n := range named {
			if slices.Contains(known, name) {
				continue
			}
			for _, e := range n.all {
				all = append(all, unknownName{e.name, what, name})
			}
		}
	}
	set := x.all.Load()
	add("policy", set.policies, x.policies)
	add("plugin", set.plugins, x.plugins)
	slices.SortFunc(all, func(a, b unknownName) int {
		return cmp.Or(strings.Compare(a.exception, b.exception), strings.Compare(a.what, b.what), strings.Compare(a.name, b.name))
	})
	return all
}

// report logs the names that nothing has, each once.
func (x *Exceptions) report() {
	x.mu.Lock()
	defer x.mu.Unlock()
	reported := make(map[unknownName]bool)
	for _, u := range x.unknown() {
		if reported[u] = true; !x.reported[u] {
			x.log.Warn("a PolicyException names what is not evaluated", "name", u.exception, u.what, u.name)
		}
	}
	x.reported = reported
}

// Values of the label result.
const (
	exceptionLifted  = "lifted"
	exceptionExpired = "expired" // it would have lifted something
	exceptionFailed  = "failed"  // it could not be evaluated
)

// An exceptionResult identifies a series. Its fields are labels.
type exceptionResult struct{ exception, plugin, policy, result string }

// exceptionSeries are the series about exceptions.
type exceptionSeries struct {
	set   *metrics.Set
	mu    sync.RWMutex
	known map[exceptionResult]*metrics.Counter
}

func (s *exceptionSeries) newCounter(r exceptionResult) *metrics.Counter {
	return s.set.GetOrCreateCounter(fmt.Sprintf(
		`fastadmit_policy_exceptions_total{exception=%q,plugin=%q,policy=%q,result=%q}`, r.exception, r.plugin, r.policy, r.result))
}

func (s *exceptionSeries) removeCounter(r exceptionResult) {
	s.set.UnregisterMetric(fmt.Sprintf(
		`fastadmit_policy_exceptions_total{exception=%q,plugin=%q,policy=%q,result=%q}`, r.exception, r.plugin, r.policy, r.result))
}

func (s *exceptionSeries) count(r exceptionResult) {
	s.mu.RLock()
	counter := s.known[r]
	s.mu.RUnlock()
	if counter == nil {
		counter = s.add(r)
	}
	counter.Inc()
}

func (s *exceptionSeries) add(r exceptionResult) *metrics.Counter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= checksMax {
		r.exception, r.policy = otherName, otherName
	}
	counter := s.newCounter(r)
	s.known[r] = counter
	return counter
}

// keep removes the series of all other exceptions.
func (s *exceptionSeries) keep(all []*exception) {
	names := make(map[string]bool)
	for _, e := range all {
		names[e.name] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.known {
		if !names[r.exception] && r.exception != otherName {
			s.removeCounter(r)
			delete(s.known, r)
		}
	}
}
