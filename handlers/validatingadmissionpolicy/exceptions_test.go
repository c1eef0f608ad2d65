package validatingadmissionpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// excepted is a chain of two plugins: this one with the policies p and q, which have the same binding, and Other, which
// changes, warns and denies.
type excepted struct {
	actions    string // of the bindings
	validation string // of p; q denies
	ignores    bool   // p has the failurePolicy Ignore
	exceptions []string
	settings   admission.Settings // of Other
	other      func(*codec.Review) admission.Result
	series     *metrics.Set
}

const exceptionHead = `{"apiVersion":"policies.fastadmit.io/v1","kind":"PolicyException","metadata":{"name":%q},"spec":{%s,` +
	`"reason":"r","neverExpires":true,` + constraints + `}}`

func (x *excepted) chain(t testing.TB) (*admission.Chain, error) {
	t.Helper()
	var files []admission.File
	add := func(format string, args ...any) {
		files = append(files, admission.File{Name: fmt.Sprint("f", len(files)), Content: fmt.Appendf(nil, format, args...)})
	}
	for name, expression := range map[string]string{"p": x.validation, "q": "false"} {
		failurePolicy := "Fail"
		if x.ignores && name == "p" {
			failurePolicy = "Ignore"
		}
		add(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{%s,`+
			`"failurePolicy":%q,"validations":[{"expression":%q,"message":"no"}]}}`, name, constraints, failurePolicy, expression)
		add(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%q},`+
			`"spec":{"policyName":%q,"validationActions":[%s]}}`, "of-"+name, name, x.actions)
	}
	for _, e := range x.exceptions {
		add("%s", e)
	}
	plugin := Plugin()
	other := admission.Plugin{Name: "Other", Rules: plugin.Rules, Mutates: true, Validates: true}
	other.New = func(admission.Setup) (admission.Handler, error) {
		do := func(_ context.Context, review *codec.Review) admission.Result { return x.other(review) }
		return admission.Handler{Admit: do, Validate: do}, nil
	}
	x.series = metrics.NewSet()
	state, err := cluster.New(cluster.Options{Metrics: x.series, Objects: []runtime.Object{aNamespace}})
	if err == nil {
		err = state.Follow(t.Context(), plugin.Needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	enabled := map[string]admission.Enabled{plugin.Name: {Manifests: files}}
	if x.other != nil {
		enabled["Other"] = admission.Enabled{Settings: x.settings}
	}
	return admission.NewChain([]admission.Plugin{other, plugin}, enabled, state, nil)
}

// answer returns the response to the creation of a Pod, without its uid.
func (x *excepted) answer(t *testing.T, phase admission.Phase) string {
	t.Helper()
	chain, err := x.chain(t)
	if err != nil {
		t.Fatal(err)
	}
	var response struct {
		Response map[string]any `json:"response"`
	}
	body, _ := admissiontest.Respond(t, chain, phase, admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{"name":"name"}}`), nil)
	if err := json.Unmarshal(body, &response); err != nil {
		t.Fatal(err)
	}
	delete(response.Response, "uid")
	if status, ok := response.Response["status"].(map[string]any); ok {
		response.Response["status"] = status["message"]
	}
	text, err := json.Marshal(response.Response)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (x *excepted) check(t *testing.T, phase admission.Phase, want string) {
	t.Helper()
	if got := x.answer(t, phase); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestPolicyException lifts what a policy says, and nothing of others.
func TestPolicyException(t *testing.T) {
	exception := func(fields string) string { return fmt.Sprintf(exceptionHead, "e", fields) }
	for _, validation := range []string{"false", "object.nope == ''"} { // a violation and an error
		for _, actions := range []string{`"Deny"`, `"Warn"`, `"Audit"`, `"Deny","Audit"`} {
			x := &excepted{actions: actions, validation: validation, exceptions: []string{exception(`"policies":["p","q"]`)}}
			x.check(t, admission.Validate, `{"allowed":true,"auditAnnotations":{"p.policy-exception":"e","q.policy-exception":"e"}}`)
			const series = `fastadmit_policy_exceptions_total{exception="e",plugin="ValidatingAdmissionPolicy",policy="p",result="lifted"}`
			if got := x.series.GetOrCreateCounter(series).Get(); got != 1 {
				t.Errorf("%s: got %d, want 1", series, got)
			}
		}
	}
	const denied = `"status":"ValidatingAdmissionPolicy: pods \"name\" is forbidden: ValidatingAdmissionPolicy '%[1]s' with ` +
		`binding 'of-%[1]s' denied request: no"}`
	x := &excepted{actions: `"Deny"`, validation: "false", exceptions: []string{exception(`"policies":["p"]`)}}
	got := x.answer(t, admission.Validate)
	if !strings.Contains(got, fmt.Sprintf(denied, "q")) || !strings.Contains(got, `"p.policy-exception":"e"`) {
		t.Errorf("got %s", got)
	}
	x.validation, x.exceptions = "true", []string{exception(`"policies":["p"]`)}
	if got := x.answer(t, admission.Validate); strings.Contains(got, "policy-exception") {
		t.Errorf("got %s for a policy that says nothing", got)
	}
	// A policy is no plugin, and the names are whole names.
	for _, fields := range []string{`"plugins":["p"]`, `"policies":["p-"]`, `"policies":["p.p"]`} {
		x.validation, x.exceptions = "false", []string{exception(fields)}
		if got, err := x.chain(t); err == nil {
			x.exceptions = nil
			without := x.answer(t, admission.Validate)
			x.exceptions = []string{exception(fields)}
			if with := x.answer(t, admission.Validate); with != without || got == nil {
				t.Errorf("%s: got %s, want %s", fields, with, without)
			}
		} else if fields != `"policies":["p-"]` {
			t.Error(err)
		}
	}
}

// TestIgnoredErrors counts expressions that fail where failurePolicy is Ignore (upstream's ObserveAdmission).
func TestIgnoredErrors(t *testing.T) {
	x := &excepted{actions: `"Deny"`, validation: "object.nope == ''", ignores: true}
	if got := x.answer(t, admission.Validate); !strings.Contains(got, "'q' with binding") {
		t.Errorf("got %s, want a denial of q", got)
	}
	var page strings.Builder
	x.series.WritePrometheus(&page)
	if want := regexp.MustCompile(`policy="p"[^}]*enforcement_action="allow"[^}]*} 1\n`); !want.MatchString(page.String()) {
		t.Errorf("got %s\nwant %s", page.String(), want)
	}
}

// TestExplainPolicyException says which exception lifted what a policy says.
func TestExplainPolicyException(t *testing.T) {
	x := &excepted{actions: `"Deny"`, validation: "false", exceptions: []string{fmt.Sprintf(exceptionHead, "e", `"policies":["p"]`)}}
	chain, err := x.chain(t)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	chain.Explain = func(explained *admission.Explanation) {
		for _, p := range explained.Policies {
			got[p.Policy] = p.Outcome + " " + p.Message + " " + p.Exception
		}
	}
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeDenied,
		admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{}}`))
	if want := map[string]string{"p": "allowed no e", "q": "denied no "}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestPluginException lifts what plugins say. What this plugin says is one denial.
func TestPluginException(t *testing.T) {
	exception := fmt.Sprintf(exceptionHead, "e", `"plugins":["Other"]`)
	deny := func(review *codec.Review) admission.Result {
		review.Object.SetString("changed", "metadata", "name")
		review.Response.Warn("beware")
		return admission.Denied(errors.New("not so"))
	}
	denies := func(review *codec.Review) admission.Result { return admission.Denied(errors.New("not so")) }
	warns := func(review *codec.Review) admission.Result {
		review.Response.Warn("beware")
		return admission.Allowed()
	}
	changes := func(review *codec.Review) admission.Result {
		review.Object.SetString("changed", "metadata", "name")
		return admission.Allowed()
	}
	fails := func(*codec.Review) admission.Result { return admission.Errored(errors.New("broken")) }
	const lifted = `{"allowed":true,"auditAnnotations":{"Other":"excepted by PolicyException e: not so"}}`
	x := &excepted{actions: `"Audit"`, validation: "true",
		exceptions: []string{exception, fmt.Sprintf(exceptionHead, "f", `"policies":["q"]`)}}
	f := func(phase admission.Phase, enforcement admission.Action, other func(*codec.Review) admission.Result, want string) {
		t.Helper()
		x.other, x.settings = other, admission.Settings{Enforcement: []admission.Enforcement{{Action: enforcement}}}
		x.check(t, phase, want)
	}
	for _, action := range []admission.Action{admission.ActionDeny, admission.ActionWarn, admission.ActionAudit} {
		f(admission.Mutate, action, deny, lifted)
		f(admission.Validate, action, denies, strings.Replace(lifted, `so"`, `so","q.policy-exception":"f"`, 1))
	}
	f(admission.Validate, admission.ActionDeny, warns,
		`{"allowed":true,"auditAnnotations":{"Other":"excepted by PolicyException e: its warnings","q.policy-exception":"f"}}`)
	const patched = `{"allowed":true,"auditAnnotations":{"Other":"patched"},"patch":"` +
		`W3sib3AiOiJyZXBsYWNlIiwicGF0aCI6Ii9tZXRhZGF0YS9uYW1lIiwidmFsdWUiOiJjaGFuZ2VkIn1d","patchType":"JSONPatch"}`
	f(admission.Mutate, admission.ActionDeny, changes, patched) // mutations are not excepted
	chain, err := x.chain(t)
	if err != nil {
		t.Fatal(err)
	}
	x.other = fails // nor are failures
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeErrored,
		admissiontest.Body(codec.Create, "v1/pods", `{"metadata":{}}`))
	// An exception for this plugin, and none for the requests that write exceptions.
	x.other, x.actions, x.exceptions = nil, `"Deny"`, []string{fmt.Sprintf(exceptionHead, "e", `"plugins":["ValidatingAdmissionPolicy"]`)}
	const itself = `{"allowed":true,"auditAnnotations":{"ValidatingAdmissionPolicy":"excepted by PolicyException e: `
	if got := x.answer(t, admission.Validate); !strings.Contains(got, itself) {
		t.Errorf("got %s", got)
	}
}
