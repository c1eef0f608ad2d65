package initializers

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

const (
	pods        = "v1/pods"
	deployments = "apps/v1/deployments"
)

func configurationOf(name string, initializers ...string) admission.File {
	return admission.File{Name: name + ".yaml", Content: []byte(
		`{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"InitializerConfiguration","metadata":{"name":"` + name +
			`"},"initializers":[` + strings.Join(initializers, ",") + `]}`)}
}

func initializerOf(name, group, version, resource string) string {
	return fmt.Sprintf(`{"name":%q,"rules":[{"apiGroups":[%q],"apiVersions":[%q],"resources":[%q]}]}`, name, group, version, resource)
}

// chainOf returns a chain of the plugin with the files. If may is true, all users may
// initialize objects.
func chainOf(t *testing.T, may bool, files ...admission.File) *admission.Chain {
	t.Helper()
	plugin := Plugin()
	plugin.New = func(setup admission.Setup) (admission.Handler, error) {
		setup.Manifests = files
		return Plugin().New(setup)
	}
	return admissiontest.AccessChain(t, plugin, func(r *authorizationv1.SubjectAccessReview) {
		a := r.Spec.ResourceAttributes
		r.Status.Allowed, r.Status.Reason = may && a.Verb == "initialize" && a.Resource != "", "denied"
	})
}

var some = []admission.File{
	configurationOf("b", initializerOf("third.example.com", "", "*", "pods")),
	configurationOf("a", initializerOf("first.example.com", "*", "*", "*"), initializerOf("second.example.com", "", "v1", "pods"),
		initializerOf("never.example.com", "apps", "v1", "pods"), `{"name":"none.example.com"}`),
}

const (
	gated = `"schedulingGates":[{"name":"initializers.fastadmit.io/first.example.com"},` +
		`{"name":"initializers.fastadmit.io/second.example.com"},{"name":"initializers.fastadmit.io/third.example.com"}]`
	noticed = `"annotations":{"initializers.fastadmit.io/pending":"first.example.com"}`
	none    = `"annotations":{"initializers.fastadmit.io/pending":""}`
	mine    = `"annotations":{"initializers.fastadmit.io/pending":"mine.example.com"}`
)

func TestAdmit(t *testing.T) {
	for _, may := range []bool{false, true} {
		chain := chainOf(t, may, some...)
		f := func(resource, object, want string) {
			t.Helper()
			admissiontest.CheckAdmit(t, chain, resource, object, want)
		}
		pod := func(resource, object, want string) {
			t.Helper()
			kind := `"kind":"Pod","apiVersion":"v1",`
			f(resource, `{`+kind+object+`}`, `{`+kind+want+`}`)
		}
		pod(pods, `"spec":{}`, `"spec":{`+gated+`}`)
		pod(pods, `"spec":{`+gated+`}`, `"spec":{`+gated+`}`)
		pod(pods, `"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}}`,
			`"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}}`)
		f(deployments, `{"metadata":{}}`, `{"metadata":{`+noticed+`}}`)
		f(deployments, `{}`, `{"metadata":{`+noticed+`}}`)
	}
}

func TestDecisions(t *testing.T) {
	mayNot, may := chainOf(t, false, some...), chainOf(t, true, some...)
	f := func(phase admission.Phase, resource, object, old string, want, wantOfMay admission.Outcome) {
		t.Helper()
		resource, status := strings.CutSuffix(resource, "/status")
		body := admissiontest.Body(codec.Create, resource, object)
		if old != "" {
			body = admissiontest.UpdateBody(resource, object, old)
		}
		of := `"userInfo":{"username":"alice"},`
		if status {
			of += `"subResource":"status",`
		}
		body = bytes.Replace(body, []byte(`"uid":`), []byte(of+`"uid":`), 1)
		admissiontest.CheckOutcome(t, mayNot, phase, want, body)
		admissiontest.CheckOutcome(t, may, phase, wantOfMay, body)
	}
	const allowed, denied = admission.OutcomeAllowed, admission.OutcomeDenied
	with := func(metadata string) string { return `{"metadata":{` + metadata + `}}` }
	for _, phase := range []admission.Phase{admission.Mutate, admission.Validate} {
		f(phase, deployments, with(none), "", denied, allowed)
		f(phase, deployments, with(mine), "", denied, allowed)
		f(phase, deployments, with(noticed), "", allowed, allowed)
		f(phase, deployments+"/status", with(mine), "", allowed, allowed)
		f(phase, deployments, `null`, "", allowed, allowed)
	}
	f(admission.Validate, deployments, `{}`, "", denied, allowed) // removed after admit

	// Upstream's cases of updates (TestAdmitUpdate).
	update := func(object, old string, want, wantOfMay admission.Outcome) {
		t.Helper()
		f(admission.Validate, deployments, object, old, want, wantOfMay)
	}
	update(`{}`, `{}`, allowed, allowed)
	update(with(none), with(noticed), denied, allowed)
	update(with(noticed), `{}`, denied, denied)
	update(with(none), `{}`, allowed, allowed)
	// Other cases that upstream's source implies.
	update(`{}`, with(noticed), denied, allowed)
	update(with(noticed), with(noticed), denied, allowed)
	update(with(noticed), `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z",`+noticed+`}}`, allowed, allowed)
	f(admission.Validate, deployments+"/status", with(noticed), with(noticed), allowed, allowed)
	f(admission.Validate, deployments+"/status", `{}`, with(noticed), denied, allowed)
	f(admission.Mutate, deployments, `{}`, with(noticed), allowed, allowed)
}

func TestConfigurationErrors(t *testing.T) {
	f := func(want string, files ...admission.File) {
		t.Helper()
		_, err := load(admission.Setup{Manifests: files})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v\nwant one with %s", err, want)
		}
	}
	f(`error loading a.yaml: initializers[0].name: Invalid value: "x": should be a domain with at least three segments`,
		configurationOf("a", `{"name":"x"}`))
	f(`initializers[0].name: Invalid value`, configurationOf("a", initializerOf(strings.Repeat("x", 60)+".example.com", "", "v1", "pods")))
	f(`error loading b.yaml: initializers[0].name: Duplicate value: "a.example.com"`,
		configurationOf("a", `{"name":"a.example.com"}`), configurationOf("b", `{"name":"a.example.com"}`))
	f(`metadata.name: Required value`, configurationOf("", `{"name":"a.example.com"}`))
	f(`initializers[0].rules[0].apiGroups: Required value`,
		configurationOf("a", `{"name":"a.example.com","rules":[{"apiVersions":["v1"],"resources":["pods"]}]}`))
	f(`initializers[0].rules[0].apiVersions[0]: Required value`, configurationOf("a", initializerOf("a.example.com", "", "", "pods")))
	f(`initializers[0].rules[0].resources[0]: Invalid value: "pods/status"`,
		configurationOf("a", initializerOf("a.example.com", "", "v1", "pods/status")))
	f(`if '*' is present, must not specify others`,
		configurationOf("a", `{"name":"a.example.com","rules":[{"apiGroups":["*",""],"apiVersions":["v1"],"resources":["pods"]}]}`))
	f(`unknown field "initializers[0].rule"`, configurationOf("a", `{"name":"a.example.com","rule":[]}`))
	f(`kind: got "Pod"`, admission.File{Name: "p", Content: []byte(`{"apiVersion":"admissionregistration.k8s.io/v1alpha1","kind":"Pod"}`)})
}

// TestRules has the rules of upstream's TestFindInitializers, and checks that all must
// match.
func TestRules(t *testing.T) {
	f := func(want bool, resource codec.GroupVersionResource, rules ...rule) {
		t.Helper()
		one := initializer{Rules: rules}
		if got := one.matches(resource); got != want {
			t.Errorf("%v of %v: got %v, want %v", resource, rules, got, want)
		}
	}
	pod := codec.GroupVersionResource{Version: "v1", Resource: "pods"}
	all, everything, podsOnly := []string{"*"}, []string{"*/*"}, []string{"pods"}
	f(false, codec.GroupVersionResource{})
	f(true, codec.GroupVersionResource{}, rule{all, all, all})
	f(true, codec.GroupVersionResource{}, rule{[]string{""}, all, all})
	f(true, pod, rule{[]string{""}, all, podsOnly})
	f(true, pod, rule{all, all, everything})
	f(false, pod, rule{[]string{"apps"}, all, podsOnly})
	f(false, pod, rule{all, []string{"v2"}, podsOnly})
	f(false, pod, rule{all, all, []string{"nodes"}})
	f(false, pod, rule{all, all, podsOnly}, rule{all, all, []string{"nodes"}})
	f(true, pod, rule{all, all, podsOnly}, rule{all, all, all})
}
