package policy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

const (
	// policiesMeasuredMax is the maximum number of policies with series of their own.
	// All others are counted as "other". A policy's histograms have 19 series; with 1,000
	// policies that is as much as Prometheus scrapes from a few nodes.
	policiesMeasuredMax = 1000

	// checksMax is the maximum number of series of checks: one for each policy, binding,
	// action and type of error that occurred.
	checksMax = 10_000

	// measuredEvery is of how many evaluations of a policy one is measured, beginning with the first. Two looks at
	// the clock cost as much as a small expression.
	measuredEvery = 16

	otherName = "other"
)

// costBuckets are upper bounds in units of CEL's cost. One expression may cost
// 1,000,000 at most, all of a policy 10,000,000 (k8s.io/apiserver pkg/apis/cel).
var costBuckets = []float64{10, 100, 1e3, 1e4, 1e5, 1e6, 1e7}

// durationBuckets are upper bounds in seconds. Most policies take microseconds; a plugin has 30 s at most.
var durationBuckets = []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1}

// sourceMetrics are the series about the policies of a kind.
type sourceMetrics struct {
	set    *metrics.Set
	plugin string

	mu       sync.RWMutex
	policies map[string]*policyMetrics
	checks   map[checked]*metrics.Counter
	have     int // policies
}

// policyMetrics are the metrics of one policy.
type policyMetrics struct {
	of          *sourceMetrics
	name        string // the value of the label
	cost        *metrics.PrometheusHistogram
	duration    *metrics.PrometheusHistogram
	evaluations atomic.Uint32
}

// A checked identifies a series of checks. Its fields are labels.
type checked struct{ policy, binding, action, errorType string }

func newSourceMetrics(plugin string, set *metrics.Set) *sourceMetrics {
	m := &sourceMetrics{set: set, plugin: plugin, policies: make(map[string]*policyMetrics), checks: make(map[checked]*metrics.Counter)}
	set.UnregisterMetric(fmt.Sprintf(`fastadmit_policies{plugin=%q}`, plugin)) // the gauge of the previous configuration
	set.NewGauge(fmt.Sprintf(`fastadmit_policies{plugin=%q}`, plugin), func() float64 {
		m.mu.RLock()
		defer m.mu.RUnlock()
		return float64(m.have)
	})
	return m
}

func (m *sourceMetrics) newCost(policy string) *metrics.PrometheusHistogram {
	return m.set.GetOrCreatePrometheusHistogramExt(fmt.Sprintf(`fastadmit_policy_cost{plugin=%q,policy=%q}`, m.plugin, policy), costBuckets)
}

func (m *sourceMetrics) newDuration(policy string) *metrics.PrometheusHistogram {
	return m.set.GetOrCreatePrometheusHistogramExt(
		fmt.Sprintf(`fastadmit_policy_duration_seconds{plugin=%q,policy=%q}`, m.plugin, policy), durationBuckets)
}

func (m *sourceMetrics) removeHistograms(policy string) {
	m.set.UnregisterMetric(fmt.Sprintf(`fastadmit_policy_cost{plugin=%q,policy=%q}`, m.plugin, policy))
	m.set.UnregisterMetric(fmt.Sprintf(`fastadmit_policy_duration_seconds{plugin=%q,policy=%q}`, m.plugin, policy))
}

func (m *sourceMetrics) newCounter(c checked) *metrics.Counter {
	return m.set.GetOrCreateCounter(fmt.Sprintf(
		`fastadmit_policy_checks_total{plugin=%q,policy=%q,policy_binding=%q,enforcement_action=%q,error_type=%q}`,
		m.plugin, c.policy, c.binding, c.action, c.errorType))
}

func (m *sourceMetrics) removeCounter(c checked) {
	m.set.UnregisterMetric(fmt.Sprintf(
		`fastadmit_policy_checks_total{plugin=%q,policy=%q,policy_binding=%q,enforcement_action=%q,error_type=%q}`,
		m.plugin, c.policy, c.binding, c.action, c.errorType))
}

// use makes the series of these policies, and removes those of all others.
func (m *sourceMetrics) use(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.have = len(names)
	known := make(map[string]*policyMetrics)
	for _, name := range names {
		if len(known) >= policiesMeasuredMax {
			name = otherName
		}
		if known[name] = m.policies[name]; known[name] == nil {
			known[name] = &policyMetrics{of: m, name: name, cost: m.newCost(name), duration: m.newDuration(name)}
		}
	}
	for name := range m.policies {
		if known[name] == nil {
			m.removeHistograms(name)
		}
	}
	for c := range m.checks {
		if known[c.policy] == nil && c.policy != otherName {
			m.removeCounter(c)
			delete(m.checks, c)
		}
	}
	m.policies = known
}

// of returns the metrics of a policy.
func (m *sourceMetrics) of(policy string) *policyMetrics {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if own := m.policies[policy]; own != nil {
		return own
	}
	return m.policies[otherName]
}

// check counts a check.
func (m *sourceMetrics) check(c checked) {
	m.mu.RLock()
	counter := m.checks[c]
	m.mu.RUnlock()
	if counter == nil {
		counter = m.newCheck(c)
	}
	counter.Inc()
}

func (m *sourceMetrics) newCheck(c checked) *metrics.Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.checks) >= checksMax {
		c.policy, c.binding = otherName, otherName
	}
	if m.policies[c.policy] == nil { // a review that still evaluates a deleted policy
		c.policy, c.binding = otherName, otherName
	}
	counter := m.newCounter(c)
	m.checks[c] = counter
	return counter
}

// The values of the label error_type, upstream's but for the last two
// (k8s.io/apiserver pkg/admission/plugin/policy/validating/metrics).
const (
	noError            = "no_error"
	compileError       = "compile_error"
	invalidError       = "invalid_error"
	outOfBudget        = "out_of_budget"
	outOfMemory        = "out_of_memory"
	configurationError = "configuration_error"
)

// Values of the metric label enforcement_action, as in k8s.io/apiserver
// pkg/admission/plugin/policy/validating/metrics.
const (
	// ActionAllow means that the request is allowed, because the policy ignores errors.
	ActionAllow = "allow"
	// ActionDeny means that the request is denied.
	ActionDeny = "deny"
)

// CountViolation counts a request for which an expression is false. action is the
// validation action of the binding that applies to it.
func (p *Policy[E]) CountViolation(b *Binding, action admissionregistrationv1.ValidationAction) {
	p.count(b, strings.ToLower(string(action)), noError)
}

// CountError counts an expression that cannot be evaluated. action is the result for the
// request: ActionAllow, ActionDeny or a validation action. message is the error.
func (p *Policy[E]) CountError(b *Binding, action, message string) {
	p.count(b, strings.ToLower(action), errorTypeOf(message))
}

// errorTypeOf returns the type of an error, as upstream's ErrorType.
func errorTypeOf(message string) string {
	switch {
	case strings.HasPrefix(message, "compilation"):
		return compileError
	case strings.HasPrefix(message, "validation failed due to running out of cost budget"):
		return outOfBudget
	case strings.HasPrefix(message, "validation failed due to running out of memory budget"):
		return outOfMemory
	}
	return invalidError
}

// CountConditionErrors makes c count the match conditions of a plugin, its webhooks or its policies that
// cannot be evaluated. With the failure policy Ignore, users see nothing of them: what they protect is
// skipped. set may be nil.
func CountConditionErrors(c *cel.Compiler, plugin string, set *metrics.Set) {
	if set == nil {
		return
	}
	c.ConditionFailed = func(err error) {
		set.GetOrCreateCounter(fmt.Sprintf(`fastadmit_match_condition_errors_total{plugin=%q,error_type=%q}`, plugin, errorTypeOf(err.Error()))).Inc()
	}
}

// countMisconfigured counts a request for which the policy could not be matched or its
// parameters could not be found.
func (p *Policy[E]) countMisconfigured(b *Binding) {
	action := ActionDeny
	if p.Ignores {
		action = ActionAllow
	}
	p.count(b, action, configurationError)
}

func (p *Policy[E]) count(b *Binding, action, errorType string) {
	if p.metrics == nil {
		return
	}
	c := checked{policy: p.metrics.name, action: action, errorType: errorType}
	if b != nil {
		c.binding = b.Name
	}
	if c.policy == otherName {
		c.binding = otherName
	}
	p.metrics.of.check(c)
}

// Begin begins an evaluation of the policy for a binding. CountEvaluation takes the result: when it began if it is measured, otherwise the
// zero time.
func (p *Policy[E]) Begin() time.Time {
	if p.metrics == nil || p.metrics.evaluations.Add(1)%measuredEvery != 1 {
		return time.Time{}
	}
	return time.Now()
}

// CountEvaluation records an evaluation of the policy for one binding: the cost of its expressions, in the units of cel.Input.Spent, and
// the time since begun.
func (p *Policy[E]) CountEvaluation(cost int64, begun time.Time) {
	if p.metrics == nil {
		return
	}
	p.metrics.cost.Update(float64(cost))
	if !begun.IsZero() {
		p.metrics.duration.UpdateDuration(begun)
	}
}
