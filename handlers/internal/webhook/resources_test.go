package webhook_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionwebhook"
)

const followConfig = `{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration","customResources":true}`

// following returns a chain that follows a custom resource with these webhooks.
func following(t *testing.T, webhooks string) *admission.Chain {
	t.Helper()
	object, err := cluster.NewJSON(fmt.Appendf(nil,
		`{"apiVersion":%q,"kind":"ValidatingWebhookConfiguration","metadata":{"name":"c"},"webhooks":%s}`,
		cluster.WebhookGroup+"/v1", webhooks))
	if err != nil {
		t.Fatal(err)
	}
	return newChain(t, validatingadmissionwebhook.Plugin(), admission.Enabled{Config: []byte(followConfig)}, object)
}

// TestStoredInvalid has invalid webhooks in the cluster: they fail for everything that their
// rules select, and their failurePolicy decides. The others are called.
func TestStoredInvalid(t *testing.T) {
	b := newBackend(t, func(w http.ResponseWriter, r *http.Request) {
		a, _ := readAsked(t, r)
		answer(w, a.Request.UID, `"allowed":true,"warnings":["called `+r.URL.Path+`"]`)
	})
	const fails = `failed calling webhook "a.example.com": it is not valid; the status of the ValidatingWebhookConfiguration "c"`
	f := func(rules, more, want string) {
		t.Helper()
		chain := following(t, b.webhooks(hook{name: "a.example.com", path: "/a", rules: rules, more: more},
			hook{name: "b.example.com", path: "/b"}))
		r := ask(t, chain, admission.Validate, pod)
		if !strings.Contains(r.message, want) || want == "" && r.message != "" || strings.Contains(r.answer, "called /a") {
			t.Errorf("%s: got %+v, want %q", more, r, want)
		}
		if r.code != http.StatusForbidden && strings.Join(r.warnings, " ") != "called /b" {
			t.Errorf("%s: got warnings %q, want the other webhook to be called", more, r.warnings)
		}
	}
	const services = `[{"operations":["*"],"apiGroups":[""],"apiVersions":["*"],"resources":["services"]}]`
	f("", `"timeoutSeconds":31`, fails)
	f("", `"failurePolicy":"Sometimes"`, fails)
	f("", `"timeoutSeconds":31,"failurePolicy":"Ignore"`, "")
	f(services, `"timeoutSeconds":31`, "")
	f("", `"timeoutSeconds":31,"objectSelector":{"matchLabels":{"no":"pod"}}`, "")
	f("", `"objectSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}`, fails)      // selects all
	f("", `"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}`, fails)   // the same
	f("", `"timeoutSeconds":0,"matchConditions":[{"name":"a","expression":"false"}]`, fails) // not evaluated
	f("", `"matchConditions":[{"name":"a","expression":"object."}]`, "ERROR: <input>:1:8: ") // denies, as in kube-apiserver
	f(`[]`, `"timeoutSeconds":31`, "")
}

// TestOwnChecked checks that invalid custom resources are rejected as by kube-apiserver,
// except in updates that do not change their webhooks.
func TestOwnChecked(t *testing.T) {
	chain := following(t, `[]`)
	const bad = `{"metadata":{"name":"d"},"webhooks":[{"name":"a"}]}`
	const resource = cluster.WebhookGroup + "/v1/validatingwebhookconfigurations"
	if r := ask(t, chain, admission.Validate, admissiontest.Body(codec.Create, resource, bad)); r.code != http.StatusUnprocessableEntity ||
		!strings.Contains(r.message, "webhooks[0].name") || !strings.Contains(r.message, "webhooks[0].sideEffects") {
		t.Errorf("got %+v", r)
	}
	const worse = `{"metadata":{"name":"d","labels":{"a":"b"}},"webhooks":[{"name":"b"}]}`
	if r := ask(t, chain, admission.Validate,
		admissiontest.UpdateBody(resource, strings.Replace(worse, `"b"}]`, `"a"}]`, 1), bad)); r.message != "" {
		t.Errorf("a label: got %+v", r)
	}
	if r := ask(t, chain, admission.Validate, admissiontest.UpdateBody(resource, worse, bad)); r.code != http.StatusUnprocessableEntity {
		t.Errorf("another webhook: got %+v", r)
	}
	for name, other := range map[string]string{"a webhook that does not compile": `{"metadata":{"name":"d"},` +
		`"webhooks":[{"name":"a.example.com","sideEffects":"None",` +
		`"admissionReviewVersions":["v1"],"clientConfig":{"url":"https://a.example.com"},"matchConditions":[{"name":"a",` +
		`"expression":"object."}]}]}`, "an unknown field": `{"metadata":{"name":"d"},"webhook":[]}`} {
		r := ask(t, chain, admission.Validate, admissiontest.Body(codec.Create, resource, other))
		if (r.code == http.StatusUnprocessableEntity) != strings.Contains(name, "compile") {
			t.Errorf("%s: got %+v", name, r)
		}
	}
	for _, elsewhere := range []string{cluster.WebhookGroup + "/v1/others", cluster.WebhookGroup + "/v1/mutatingwebhookconfigurations"} {
		if r := ask(t, chain, admission.Validate, admissiontest.Body(codec.Create, elsewhere, bad)); r.message != "" {
			t.Errorf("%s: got %+v", elsewhere, r)
		}
	}
	const good = `{"metadata":{"name":"d"},"webhooks":[{"name":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],` +
		`"clientConfig":{"service":{"namespace":"n","name":"s"}},"matchConditions":[{"name":"a","expression":"true"}]}]}`
	for _, fine := range []string{good, `{"metadata":{"name":"d"}}`, `{"metadata":{"name":"d"},"webhooks":[]}`} {
		if r := ask(t, chain, admission.Validate, admissiontest.Body(codec.Create, resource, fine)); r.message != "" {
			t.Errorf("%s: got %+v", fine, r)
		}
	}
}
