package oracle_test

import (
	"testing"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

// accepts returns a function that compares whether both sides accept a configuration. If they
// differ on purpose, listed describes how.
func accepts(t *testing.T, row *tally.Row) func(config, listed string) {
	return func(config, listed string) {
		t.Helper()
		row.Cases++
		_, want := oracle.NewUpstream(t.Context(), row.Plugin, config, oracle.World{})
		_, got := oracle.NewOurs(find(t, row.Plugin, handlers.DefaultOptions()), config, oracle.World{})
		switch {
		case (got == nil) == (want == nil) && listed != "":
			t.Errorf("%s: got %v from both, want a difference: %s", config, got, listed)
		case (got == nil) == (want == nil):
		case listed != "":
			row.Listed = append(row.Listed, listed)
		default:
			t.Errorf("%s: got %v, want %v", config, got, want)
			row.Different = append(row.Different, config)
		}
	}
}

// TestConfigurations compares whether both sides accept a configuration.
func TestConfigurations(t *testing.T) {
	row := tally.Row{Plugin: "EventRateLimit", Test: "configurations"}
	f := accepts(t, &row)
	const head = "apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\n"
	f("", "")
	f("rubbish", "")
	f("{}", "")
	f(head, "")
	f(head+"limits: []", "")
	f(head+"limits: [{type: Server, qps: 1, burst: 1}]", "")
	f(head+"limits: [{type: Server, qps: 0, burst: 1}]", "")
	f(head+"limits: [{type: Server, qps: 1, burst: 0}]", "")
	f(head+"limits: [{type: Server, qps: -1, burst: 1}]", "")
	f(head+"limits: [{type: Server, qps: 1}]", "")
	f(head+"limits: [{type: server, qps: 1, burst: 1}]", "")
	f(head+"limits: [{type: Namespace, qps: 1, burst: 1, cacheSize: -1}]", "")
	f(head+"limits: [{type: Server, qps: 1, burst: 1, cacheSize: -1}]", "")
	f(head+"limits: [{type: User, qps: 1, burst: 1}, {type: User, qps: 1, burst: 1}]", "")
	f(head+"limits: [{type: User, qps: 4294967296, burst: 1}]", "")
	f(head+"limits: [{type: User, qps: '1', burst: 1}]", "")
	f("apiVersion: eventratelimit.admission.k8s.io/v1beta1\nkind: Configuration\nlimits: [{type: User, qps: 1, burst: 1}]", "")
	f("apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Other\nlimits: [{type: User, qps: 1, burst: 1}]", "")
	f(`{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":[{"type":"User","qps":1,"burst":1}]}`, "")
	f(head+"limits: [{type: User, qps: 1, burst: 1, qpss: 2}]", "an unknown field is an error")
	f(head+"limits: [{type: User, qps: 1, burst: 1, burst: 2}]", "a duplicate field is an error")
	mustWrite(t, row)
}
