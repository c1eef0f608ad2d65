package admission_test

import (
	"context"
	"slices"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// excepts is an exception for one plugin, for one resource.
type excepts struct {
	plugin, resource string
	asked            []string // for which plugins Lift was called
	plugins          []string // that are enabled
}

func (e *excepts) Name(plugin string) bool { return plugin == e.plugin }

func (e *excepts) Lift(_ context.Context, review *codec.Review, plugin string) string {
	e.asked = append(e.asked, plugin)
	if review.Resource().Resource == e.resource {
		return "e"
	}
	return ""
}

func (e *excepts) Use(plugins []string) { e.plugins = plugins }

func (e *excepts) List() []admission.Exception { return nil }

func (e *excepts) Unknown() []string { return nil }

// knowing is a plugin that knows exceptions and does nothing.
func knowing(e *excepts) admission.Plugin {
	return admission.Plugin{Name: "Knows", Rules: []admission.Rule{admission.Any()}, Validates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Validate: allow, Exceptions: e}, nil
		}}
}

// TestWorkloadPodsExceptions lifts what a plugin says of the Pods of a workload if the exception is for the Pods, also on
// an endpoint without the plugin that knows exceptions.
func TestWorkloadPodsExceptions(t *testing.T) {
	f := func(e *excepts, spec string, outcome admission.Outcome, asked ...string) {
		t.Helper()
		chain := mustSet(t, map[string]admission.Settings{"Host": {WorkloadPods: admission.WorkloadPodsDeny}},
			podsOnly(validating("Host", denyHostPID)), knowing(e))
		chain = chain.Select(func(p *admission.Plugin, _ *admission.Settings) bool { return p.Name == "Host" })
		review := workloadReview(t, "apps/v1", "Deployment", "deployments", object(spec), "")
		got, err := chain.Review(t.Context(), review, admission.Validate)
		if got != outcome || err != nil || !slices.Equal(e.asked, asked) {
			t.Errorf("%+v: got %v, %v, asked for %q, want %v, %q", e, got, err, e.asked, outcome, asked)
		}
		if texts := review.Response.Warnings(); len(texts) > 0 {
			t.Errorf("%+v: got the warnings %q", e, texts)
		}
		if want := []string{"Host", "Knows"}; !slices.Equal(e.plugins, want) {
			t.Errorf("got the plugins %q, want %q", e.plugins, want)
		}
	}
	f(&excepts{plugin: "Host", resource: "pods"}, badTemplate, admission.OutcomeAllowed, "Host")
	f(&excepts{plugin: "Host", resource: "pods"}, goodTemplate, admission.OutcomeAllowed, "Host") // its warning
	f(&excepts{plugin: "Host", resource: "deployments"}, badTemplate, admission.OutcomeDenied, "Host")
	f(&excepts{plugin: "Other", resource: "pods"}, badTemplate, admission.OutcomeDenied)
}

// TestExplainException says which exception lifted a denial.
func TestExplainException(t *testing.T) {
	chain := mustChain(t, validating("Host", denyHostPID), knowing(&excepts{plugin: "Host", resource: "deployments"}))
	var got []*admission.Explanation
	chain.Explain = func(x *admission.Explanation) { got = append(got, x) }
	review := workloadReview(t, "apps/v1", "Deployment", "deployments", object(`"hostPID":true`), "")
	if outcome, err := chain.Review(t.Context(), review, admission.Validate); outcome != admission.OutcomeAllowed || err != nil {
		t.Fatal(outcome, err)
	}
	if len(got) != 2 || got[0].Outcome != "allowed" || got[0].Exception != "e" || got[1].Exception != "" {
		t.Errorf("got %+v", got)
	}
}
