package validatingadmissionpolicy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// The documents of the tests below: a policy p with this spec, and its bindings. Params are
// the objects that it may name.
type documents struct {
	policy   string
	bindings map[string]string // specs by name, without policyName; plain if nil
	params   []admission.ParamKind
	version  admission.Version
}

const denying = `"validationActions":["Deny"]`

// chain returns the plugin with the documents.
func (d documents) chain(t testing.TB) *admission.Chain {
	t.Helper()
	state, err := cluster.New(cluster.Options{Embedded: true})
	plugin := admissiontest.Emulating(t, Plugin(), d.version.String())
	if err == nil {
		err = state.Follow(t.Context(), plugin.Needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	bindings := d.bindings
	if bindings == nil {
		bindings = map[string]string{"b": denying}
	}
	const version = `"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy`
	files := []admission.File{{Name: "p", FromAPI: true,
		Content: fmt.Appendf(nil, `{%s","metadata":{"name":"p"},"spec":%s}`, version, d.policy)}}
	for _, name := range slices.Sorted(maps.Keys(bindings)) {
		files = append(files, admission.File{Name: name, FromAPI: true,
			Content: fmt.Appendf(nil, `{%sBinding","metadata":{"name":%q},"spec":{"policyName":"p",%s}}`, version, name, bindings[name])})
	}
	chain, err := admission.NewChain([]admission.Plugin{plugin},
		map[string]admission.Enabled{plugin.Name: {Manifests: files, Params: d.params}}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// ask returns the answer of the plugin to a request in JSON.
func ask(t *testing.T, chain *admission.Chain, request string) *admissionv1.AdmissionResponse {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":` + request + `}`)); err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	if _, err := chain.Review(t.Context(), review, admission.Validate); err != nil {
		t.Fatal(err)
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(review.AppendResponse(nil), &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Response
}

// messageOf returns why a request is denied, "" if it is allowed.
func messageOf(r *admissionv1.AdmissionResponse) string {
	if r.Allowed {
		return ""
	}
	_, message, _ := strings.Cut(r.Result.Message, "denied request: ")
	return message
}

// resourceOf returns group/version/resource, or version/resource, as JSON.
func resourceOf(name string) string {
	parts := strings.Split(name, "/")
	if len(parts) == 2 {
		parts = append([]string{""}, parts...)
	}
	return fmt.Sprintf(`{"group":%q,"version":%q,"resource":%q}`, parts[0], parts[1], parts[2])
}

// ruleOf returns a rule for a resource, group/version/resource[,resource...], and objects
// of some names.
func ruleOf(of string, names ...string) string {
	parts := strings.SplitN(of, "/", 3)
	resources, _ := json.Marshal(strings.Split(parts[2], ","))
	objects, _ := json.Marshal(names)
	return fmt.Sprintf(`{"apiGroups":[%q],"apiVersions":[%q],"resources":%s,"operations":["*"],"resourceNames":%s,"scope":"*"}`, parts[0],
		parts[1], resources, objects)
}

// TestMatchingUpstream has the cases of upstream's matching/matching_test.go, with their names.
// In-tree, a policy for another version of a resource gets the object in that version. A
// webhook gets it in one version, which kube-apiserver chooses by the rules of the webhook.
// Cases for equivalent resources are therefore tested twice: with an object in the version of the
// policy, and with one in another version.
func TestMatchingUpstream(t *testing.T) {
	const matches, misses = "failed expression: false", ""
	const converted = "failed to configure policy: failed to convert object version: got autoscaling/v1 horizontalpodautoscalers, " +
		"want a version that the policy names"
	f := func(name, constraints, asked, sent, subResource, want string) {
		t.Helper()
		policy := documents{policy: `{"matchConstraints":{` + constraints + `},"validations":[{"expression":"false"}]}`}
		request := fmt.Sprintf(`{"uid":"1","operation":"CREATE","name":"name","namespace":"ns","resource":%s,"requestResource":%s,`+
			`"subResource":%q,"object":{}}`,
			resourceOf(sent), resourceOf(asked), subResource)
		if got := messageOf(ask(t, policy.chain(t), request)); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s\ngot  %s\nwant %s", name, got, want)
		}
	}
	rules := func(all ...string) string { return `"resourceRules":[` + strings.Join(all, ",") + `]` }
	const exact, equivalent = `"matchPolicy":"Exact",`, `"matchPolicy":"Equivalent",`
	const v1, v1beta1, extensions = "apps/v1/deployments", "apps/v1beta1/deployments", "extensions/v1beta1/deployments"
	const scaled = ",deployments/scale"

	f("wildcard rule, match as requested", rules(ruleOf("*/*/*")), v1, v1, "", matches)
	f("specific rules, prefer exact match", rules(ruleOf("extensions/v1/deployments"), ruleOf(v1beta1), ruleOf(v1)), v1, v1, "", matches)
	// Policies without a matchPolicy, which kube-apiserver never stores, have the same results as with Exact.
	f("specific rules, exact match miss", exact+rules(ruleOf(extensions), ruleOf(v1beta1)), v1, v1, "", misses)
	f("specific rules, equivalent match, prefer extensions", equivalent+rules(ruleOf(extensions), ruleOf(v1beta1)), v1, extensions, "",
		matches)
	f("specific rules, equivalent match, prefer apps", equivalent+rules(ruleOf(v1beta1), ruleOf(extensions)), v1, v1beta1, "", matches)
	const hpa, hpa2 = "autoscaling/v1/horizontalpodautoscalers", "autoscaling/v2/horizontalpodautoscalers"
	f("the same, not converted", equivalent+rules(ruleOf(hpa2)), hpa, hpa, "", converted)
	f("the same, which no release serves", equivalent+rules(ruleOf(v1beta1)), v1, v1, "", misses)
	f("the same, by default", rules(ruleOf(v1beta1), ruleOf(extensions)), v1, v1beta1, "", matches)
	f("specific rules, subresource prefer exact match", rules(ruleOf(extensions+scaled), ruleOf(v1beta1+scaled), ruleOf(v1+scaled)), v1,
		v1, "scale", matches)
	f("specific rules, subresource exact match miss", exact+rules(ruleOf(extensions+scaled), ruleOf(v1beta1+scaled)), v1, v1,
		"scale", misses)
	f("specific rules, subresource that no rule names", rules(ruleOf(v1)), v1, v1, "scale", misses)
	f("specific rules, subresource equivalent match, prefer extensions", equivalent+
		rules(ruleOf(extensions+scaled), ruleOf(v1beta1+scaled)), v1, extensions, "scale", matches)
	f("specific rules, subresource equivalent match, prefer apps", equivalent+rules(ruleOf(v1beta1+scaled), ruleOf(extensions+scaled)), v1,
		v1beta1, "scale", matches)
	f("the same, not converted", equivalent+rules(ruleOf(hpa2+",horizontalpodautoscalers/status")), hpa, hpa, "status", converted)
	f("specific rules, prefer exact match and name match", rules(ruleOf(v1, "name")), v1, v1, "", matches)
	f("specific rules, prefer exact match and name match miss", rules(ruleOf(v1, "wrong-name")), v1, v1, "", misses)
	f("specific rules, subresource equivalent match, prefer extensions and name match", equivalent+rules(ruleOf(v1+scaled, "name")),
		extensions, v1, "scale", matches)
	f("specific rules, subresource equivalent match, prefer extensions and name match miss", equivalent+
		rules(ruleOf(v1+scaled, "wrong-name")), extensions, v1, "scale", misses)
	excludes := `,"excludeResourceRules":[` + ruleOf(extensions) + `]`
	f("exclude resource match on miss", rules(ruleOf("*/*/*"))+excludes, v1, v1, "", matches)
	f("exclude resource miss on match", rules(ruleOf("*/*/*"))+excludes, extensions, extensions, "", misses)
	f("the same, converted before", rules(ruleOf("*/*/*"))+excludes, extensions, v1, "", misses)
	f("exclude an equivalent resource", rules(ruleOf("*/*/*"))+excludes, v1, extensions, "", misses)
}

// TestMatchingRefused has the cases of matching_test.go that kube-apiserver rejects: no rules,
// rules without resources, and invalid selectors. Such a policy in a file is an error. A custom
// resource may have been stored while fastadmit did not run: it fails for requests that its rules
// match. Without rules it matches none, because otherwise it would deny everything.
func TestMatchingRefused(t *testing.T) {
	state, err := cluster.New(cluster.Options{Embedded: true})
	if err == nil {
		err = state.Follow(t.Context(), Plugin().Needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := func(constraints, of, want string) {
		t.Helper()
		spec := `{"matchConstraints":{` + constraints + `},"validations":[{"expression":"false"}]}`
		files := []admission.File{{Name: "p", Content: fmt.Appendf(nil,
			`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"p"},"spec":%s}`, spec)}}
		enabled := map[string]admission.Enabled{"ValidatingAdmissionPolicy": {Manifests: files}}
		if _, err := admission.NewChain([]admission.Plugin{Plugin()}, enabled, state, nil); err == nil {
			t.Errorf("%s: got no error of the file", constraints)
		}
		chain := admissiontest.MustChain(t, Plugin(), customResources, aNamespace,
			resource(t, "ValidatingAdmissionPolicy", "p", spec), resource(t, "ValidatingAdmissionPolicyBinding", "b", bindingSpec("p")))
		got, _ := answer(t, chain, admissiontest.Body(codec.Create, of, `{"metadata":{"name":"name"}}`))
		if !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s of %s\ngot  %s\nwant %s", constraints, of, got, want)
		}
	}
	const key = `{"matchExpressions":[{"key":"key","operator":"In","values":["bad value"]}]}`
	pods := fmt.Sprintf(`"resourceRules":[%s],`, ruleOf("*/*/pods"))
	for _, selector := range []string{"namespaceSelector", "objectSelector"} {
		f(pods+fmt.Sprintf(`%q:%s`, selector, key), "v1/pods", "bad value")
		f(pods+fmt.Sprintf(`%q:%s`, selector, key), "apps/v1/deployments", "")
	}
	f(`"resourceRules":[]`, "apps/v1/deployments", "")
	f(`"resourceRules":[{}]`, "apps/v1/deployments", "")
	f(`"excludeResourceRules":[`+ruleOf("extensions/v1beta1/deployments")+`]`, "apps/v1/deployments", "")
}
