package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
)

// seriesOf counts the series of a set whose names begin with a prefix.
func seriesOf(set *metrics.Set, prefix string) (n int) {
	for _, name := range set.ListMetricNames() {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("policy-%d", i))
	}
	return all
}

// TestPoliciesMeasured uses one policy fewer than the maximum with their own series,
// the maximum, and more. The additional policies share one series.
func TestPoliciesMeasured(t *testing.T) {
	set := metrics.NewSet()
	m := newSourceMetrics("P", set)
	for _, n := range []int{0, 1, policiesMeasuredMax - 1, policiesMeasuredMax, policiesMeasuredMax + 1, policiesMeasuredMax + 2,
		policiesMeasuredMax, 1, 0} {
		m.use(names(n))
		want := min(n, policiesMeasuredMax+1)
		if got := seriesOf(set, "fastadmit_policy_cost{"); got != want {
			t.Errorf("%d policies: got %d histograms of costs, want %d", n, got, want)
		}
		if got := seriesOf(set, "fastadmit_policy_duration_seconds{"); got != want {
			t.Errorf("%d policies: got %d histograms of durations, want %d", n, got, want)
		}
		for i, name := range names(n) {
			wantName := name
			if i >= policiesMeasuredMax {
				wantName = otherName
			}
			if got := m.of(name); got == nil || got.name != wantName {
				t.Errorf("%d policies: got %v of %s", n, got, name)
			}
		}
		if m.of("another") != nil != (n > policiesMeasuredMax) {
			t.Errorf("%d policies: got %v of an unknown one", n, m.of("another"))
		}
		if beyond := m.of("another"); beyond != nil {
			(&Policy[int]{metrics: beyond}).CountViolation(&Binding{Name: "b"}, "Deny")
			const other = `fastadmit_policy_checks_total{plugin="P",policy="other",policy_binding="other",`
			if got := seriesOf(set, "fastadmit_policy_checks_total{"); got != 1 || seriesOf(set, other) != 1 {
				t.Errorf("%d policies: got %d series of checks, want that of others", n, got)
			}
		}
		var text strings.Builder
		set.WritePrometheus(&text)
		if want := fmt.Sprintf("fastadmit_policies{plugin=\"P\"} %d\n", n); !strings.Contains(text.String(), want) {
			t.Errorf("%d policies: got %.200s, want %s", n, &text, want)
		}
	}
}

// TestChecksMeasured counts one check fewer than the maximum of series, the maximum,
// and more, each once. Then it deletes some of the policies.
func TestChecksMeasured(t *testing.T) {
	const series = "fastadmit_policy_checks_total{"
	const policies, bindings = 100, checksMax / 100
	set := metrics.NewSet()
	m := newSourceMetrics("P", set)
	m.use(names(policies))
	p := func(i int) *Policy[int] {
		return &Policy[int]{metrics: m.of(fmt.Sprintf("policy-%d", i))}
	}
	binding := func(j int) *Binding {
		b := new(Binding)
		b.Name = fmt.Sprintf("binding-%d", j)
		return b
	}
	n := 0
	for i := range policies {
		for j := range bindings {
			p(i).CountViolation(binding(j), "Deny")
			if n++; n >= checksMax-1 && seriesOf(set, series) != n {
				t.Errorf("%d checks: got %d series", n, seriesOf(set, series))
			}
		}
	}
	for k := range 3 { // beyond them
		p(k).CountViolation(binding(bindings), "Deny")
		p(k).CountViolation(binding(0), "Deny")
	}
	if got := seriesOf(set, series); got != checksMax+1 {
		t.Errorf("%d checks and more: got %d series, want one more", n, got)
	}
	count := func(policy, binding, action, errorType string) uint64 {
		return m.newCounter(checked{policy, binding, action, errorType}).Get()
	}
	if got := count(otherName, otherName, "deny", noError); got != 3 {
		t.Errorf("got %d checks that have no series, want 3", got)
	}
	if got := count("policy-1", "binding-0", "deny", noError); got != 2 {
		t.Errorf("got %d of a check that has one, want 2", got)
	}
	gone := p(1)
	m.use(names(1))
	if got := seriesOf(set, series); got != bindings+1 {
		t.Errorf("after all policies but one are gone: got %d series, want %d and that of others", got, bindings)
	}
	gone.CountViolation(binding(0), "Deny")
	if got := count(otherName, otherName, "deny", noError); got != 4 {
		t.Errorf("a policy that is gone: got %d checks of others, want 4", got)
	}
	if got := seriesOf(set, series); got != bindings+1 {
		t.Errorf("a policy that is gone: got %d series", got)
	}
}

// TestPolicyReturns counts the checks of a policy that was deleted and created again.
func TestPolicyReturns(t *testing.T) {
	set := metrics.NewSet()
	m := newSourceMetrics("P", set)
	const series = `fastadmit_policy_checks_total{plugin="P",policy="policy-1",policy_binding="",enforcement_action="deny",` +
		`error_type="no_error"}`
	f := func(policies int, want string) {
		t.Helper()
		m.use(names(policies))
		if policies > 1 {
			p := &Policy[int]{metrics: m.of("policy-1")}
			p.CountViolation(nil, "Deny")
			p.CountEvaluation(1, p.Begin())
		}
		var text strings.Builder
		set.WritePrometheus(&text)
		if !strings.Contains(text.String(), want) || want == "" && strings.Contains(text.String(), "policy-1") {
			t.Errorf("%d policies: got %s\nwant %s", policies, &text, want)
		}
	}
	f(2, series+" 1\n")
	f(2, series+" 2\n")
	f(1, "")
	f(2, series+" 1\n")
	f(1, "")
	f(2, `fastadmit_policy_cost_count{plugin="P",policy="policy-1"} 1`)
}

// TestErrorTypes counts each type of error by its message, and errors of unknown type.
func TestErrorTypes(t *testing.T) {
	set := metrics.NewSet()
	m := newSourceMetrics("P", set)
	m.use(names(1))
	p := &Policy[int]{metrics: m.of("policy-0")}
	for message, want := range map[string]string{
		"compilation error: x": compileError, "expression 'a' resulted in error: no such key: a": invalidError, "": invalidError,
		"validation failed due to running out of cost budget, no further validation rules will be run":   outOfBudget,
		"validation failed due to running out of memory budget, no further validation rules will be run": outOfMemory,
	} {
		before := m.newCounter(checked{"policy-0", "", ActionDeny, want}).Get()
		p.CountError(nil, "Deny", message)
		if got := m.newCounter(checked{"policy-0", "", ActionDeny, want}).Get(); got != before+1 {
			t.Errorf("%q is not counted as %s", message, want)
		}
	}
	p.countMisconfigured(nil)
	p.Ignores = true
	p.countMisconfigured(nil)
	for _, action := range []string{ActionDeny, ActionAllow} {
		if got := m.newCounter(checked{"policy-0", "", action, configurationError}).Get(); got != 1 {
			t.Errorf("%s of what cannot be told: got %d, want 1", action, got)
		}
	}
	(&Policy[int]{}).CountViolation(nil, "Deny") // nothing is measured
	(&Policy[int]{}).CountEvaluation(1, (&Policy[int]{}).Begin())
	p.CountEvaluation(7, p.Begin())
	var text strings.Builder
	set.WritePrometheus(&text)
	if want := `fastadmit_policy_cost_sum{plugin="P",policy="policy-0"} 7`; !strings.Contains(text.String(), want) {
		t.Errorf("got %s, want %s", &text, want)
	}
	for _, bound := range []string{"10", "100", "1000", "10000", "100000", "1e+06", "1e+07", "+Inf"} {
		want := fmt.Sprintf(`fastadmit_policy_cost_bucket{plugin="P",policy="policy-0",le=%q} 1`, bound)
		if !strings.Contains(text.String(), want) {
			t.Errorf("got %s, want %s", &text, want)
		}
	}
}

// TestDurations evaluates a policy so often that its third evaluation is measured.
func TestDurations(t *testing.T) {
	set := metrics.NewSet()
	m := newSourceMetrics("P", set)
	m.use(names(1))
	p := &Policy[int]{metrics: m.of("policy-0")}
	for i := range 2*measuredEvery + 1 {
		begun := p.Begin()
		if got, want := !begun.IsZero(), i%measuredEvery == 0; got != want {
			t.Errorf("evaluation %d: measured %v, want %v", i, got, want)
		}
		p.CountEvaluation(1, begun)
	}
	var text strings.Builder
	set.WritePrometheus(&text)
	for _, want := range []string{`fastadmit_policy_duration_seconds_count{plugin="P",policy="policy-0"} 3`,
		`fastadmit_policy_duration_seconds_bucket{plugin="P",policy="policy-0",le="1e-06"} `,
		`fastadmit_policy_cost_count{plugin="P",policy="policy-0"} 33`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("got %s, want %s", &text, want)
		}
	}
}
