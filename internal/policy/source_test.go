package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	staticConfig = `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ValidatingAdmissionPolicyConfiguration"}`
	staticPolicy = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},` +
		`"spec":{%s"matchConstraints":{"resourceRules":[{` +
		ruleFields + `}]},"validations":[{"expression":"true"}]}}`
	staticBinding = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding",` +
		`"metadata":{"name":%q},"spec":{"policyName":%q,%s"validationActions":["Deny"]}}`
)

// viewOf returns the view of a plugin in a cluster with a namespace and these objects.
func viewOf(t testing.TB, config string, objects ...runtime.Object) *cluster.View {
	t.Helper()
	needs := append(ValidatingKind.NeedsOf([]byte(config)), cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create"))
	state, err := cluster.New(cluster.Options{
		Objects: append(objects,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace", Labels: map[string]string{"env": "prod"}}}),
		Kinds: cluster.KindsOf(needs...),
	})
	if err == nil {
		err = state.Follow(t.Context(), needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return state.View(needs...)
}

// newStatic makes policies without expressions.
func newStatic(t *testing.T, config string,
	files ...admission.File) (*Source[*admissionregistrationv1.ValidatingAdmissionPolicy,
	*admissionregistrationv1.ValidatingAdmissionPolicyBinding, string], error) {
	t.Helper()
	setup := admission.Setup{Manifests: files, Cluster: viewOf(t, config)}
	if config != "" {
		setup.Config = []byte(config)
	}
	return NewSource(ValidatingKind, setup, func(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ bool) (string, error) {
		if p.Name == "uncompiled" {
			return "", errors.New("no such variable")
		}
		return "", nil
	})
}

// TestConfig reads valid and invalid configuration files.
func TestConfig(t *testing.T) {
	f := func(version, kind, more, want string) {
		t.Helper()
		config := fmt.Sprintf(`{"apiVersion":%q,"kind":%q%s}`, version, kind, more)
		_, err := ValidatingKind.ReadConfig([]byte(config))
		if got := fmt.Sprint(err); err != nil && got != want || (err == nil) != (want == "") {
			t.Errorf("%s: got %v, want %s", config, err, want)
		}
	}
	const upstream, own, kind = "apiserver.config.k8s.io/v1", "fastadmit.io/v1alpha1", "ValidatingAdmissionPolicyConfiguration"
	f(upstream, kind, "", "")
	f(own, kind, "", "")
	f(own, kind, `,"customResources":true`, "")
	f(upstream, kind, `,"customResources":true`, "customResources: Forbidden: wants apiVersion fastadmit.io/v1alpha1")
	f("v1", kind, "", `apiVersion: Unsupported value: "v1": supported values: "apiserver.config.k8s.io/v1"`)
	f(upstream, "Other", "", `kind: Unsupported value: "Other": supported values: "ValidatingAdmissionPolicyConfiguration"`)
	f(own, "Other", "", `kind: Unsupported value: "Other": supported values: "ValidatingAdmissionPolicyConfiguration"`)
	f(own, "MutatingAdmissionPolicyConfiguration", "",
		`kind: Unsupported value: "MutatingAdmissionPolicyConfiguration": supported values: "ValidatingAdmissionPolicyConfiguration"`)
	if c, err := ValidatingKind.ReadConfig(nil); err != nil || c.CustomResources {
		t.Errorf("got %v, %v", c, err)
	}
	want := []cluster.Need{
		cluster.ValidatingAdmissionPolicies.Watched(), cluster.ValidatingAdmissionPolicyBindings.Watched(),
		cluster.ValidatingAdmissionPolicies.CalledStatus("update").InBackground(),
		cluster.PolicyReplicas.Watched(), cluster.PolicyReplicas.Called("create", "delete").InBackground(),
		cluster.PolicyReplicas.CalledStatus("update").InBackground(),
		cluster.Discovered(), cluster.DiscoveredSchemas(), cluster.Dynamic(),
		cluster.PolicyExceptions.Watched(), cluster.PolicyExceptions.CalledStatus("update").InBackground(),
	}
	if got := ValidatingKind.NeedsOf([]byte(customConfig)); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, config := range []string{"", "{", staticConfig} {
		if got := ValidatingKind.NeedsOf([]byte(config)); got != nil {
			t.Errorf("%s: got %v", config, got)
		}
	}
}

// TestManifests reads files as upstream's loader does (k8s.io/apiserver
// pkg/admission/plugin/policy/manifest/loader).
func TestManifests(t *testing.T) {
	f := func(want string, files ...string) {
		t.Helper()
		for _, fromAPI := range []bool{false, true} {
			var all []admission.File
			for i, text := range files {
				all = append(all, admission.File{Name: fmt.Sprint("f", i), Content: []byte(text), FromAPI: fromAPI})
			}
			_, err := newStatic(t, staticConfig, all...)
			wanted, only := strings.CutPrefix(want, "static: ")
			if only && fromAPI {
				wanted = ""
			}
			if got := fmt.Sprint(err); err != nil && got != wanted || (err == nil) != (wanted == "") {
				t.Errorf("%s, from the API: %v: got %v, want %s", files, fromAPI, err, wanted)
			}
		}
	}
	p := func(name, more string) string { return fmt.Sprintf(staticPolicy, name, more) }
	b := func(name, of, more string) string { return fmt.Sprintf(staticBinding, name, of, more) }
	f("")
	f("", p("p", ""), b("b", "p", ""))
	f("", b("b", "p", ""), p("p", ""), b("c", "p", ""), p("q", ""))
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		f("", strings.Replace(p("p", ""), "k8s.io/v1", "k8s.io/"+version, 1),
			strings.Replace(b("b", "p", ""), "k8s.io/v1", "k8s.io/"+version, 1))
	}
	f(`static: error loading f1: binding "b" references policy "q" which does not exist in the manifest directory`, p("p", ""),
		b("b", "q", ""))
	f(`error loading f1: duplicate name "p" of a policy: f0 has one, too`, p("p", ""), p("p", ""))
	f(`error loading f2: duplicate name "b" of a binding: f1 has one, too`, p("p", ""), b("b", "p", ""), b("b", "p", ""))
	f(`static: error loading f0: ValidatingAdmissionPolicy "p": spec.paramKind is not supported for static manifests`,
		p("p", `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`))
	f(`static: error loading f1: binding "b": spec.paramRef is not supported for static manifests`, p("p", ""),
		b("b", "p", `"paramRef":{"name":"a","parameterNotFoundAction":"Deny"},`))
	f(`error loading f0: ValidatingAdmissionPolicy "p": spec.failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"`,
		p("p", `"failurePolicy":"X",`))
	f(`error loading f0: unknown field "spec.variable", did you mean variables?`, p("p", `"variable":1,`))
	f(`error loading f1: ValidatingAdmissionPolicyBinding "b": spec.matchResources.matchPolicy: Unsupported value: "X": supported `+
		`values: "Equivalent", "Exact"`,
		p("p", ""), b("b", "p", `"matchResources":{"matchPolicy":"X"},`))
	f(`error loading f0: ValidatingAdmissionPolicy "uncompiled": no such variable`, p("uncompiled", ""))
}

// TestStaticHandler expects the rules of the policies that have bindings.
func TestStaticHandler(t *testing.T) {
	f := func(config, want string, files ...admission.File) {
		t.Helper()
		source, err := newStatic(t, config, files...)
		if err != nil {
			t.Fatal(err)
		}
		handler := source.Handler()
		got := "all"
		if handler.Rules != nil {
			got = fmt.Sprint(handler.Rules())
		}
		if got != want || handler.Run != nil {
			t.Errorf("%s: got rules %s, something to run: %v, want %s and nothing", config, got, handler.Run != nil, want)
		}
	}
	p, q := admission.File{Name: "p", Content: fmt.Appendf(nil, staticPolicy, "p", "")},
		admission.File{Name: "q", Content: fmt.Appendf(nil, staticPolicy, "q", "")}
	b := admission.File{Name: "b", Content: fmt.Appendf(nil, staticBinding, "b", "q", "")}
	f("", "all")
	f(staticConfig, "[]")
	f(staticConfig, "[]", p, q)
	f(staticConfig, "[{[CREATE] [] [v1] [pods] }]", p, q, b)
}

// TestSourceMetrics expects series for the policies by their names.
func TestSourceMetrics(t *testing.T) {
	source, err := newStatic(t, staticConfig, admission.File{Name: "p", Content: fmt.Appendf(nil, staticPolicy, "p", "")},
		admission.File{Name: "q", Content: fmt.Appendf(nil, staticPolicy, "q", "")})
	if err != nil {
		t.Fatal(err)
	}
	policies, err := source.known(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range policies.all {
		p.CountViolation(&Binding{Name: "b"}, "Audit")
		p.CountEvaluation(int64(i+1), p.Begin())
	}
	var text strings.Builder
	source.metrics.set.WritePrometheus(&text)
	for _, want := range []string{
		`fastadmit_policies{plugin="ValidatingAdmissionPolicy"} 2`,
		`fastadmit_policy_checks_total{plugin="ValidatingAdmissionPolicy",policy="p",policy_binding="b",enforcement_action="audit",` +
			`error_type="no_error"} 1`,
		`fastadmit_policy_checks_total{plugin="ValidatingAdmissionPolicy",policy="q",policy_binding="b",enforcement_action="audit",` +
			`error_type="no_error"} 1`,
		`fastadmit_policy_cost_sum{plugin="ValidatingAdmissionPolicy",policy="p"} 1`,
		`fastadmit_policy_cost_sum{plugin="ValidatingAdmissionPolicy",policy="q"} 2`,
	} {
		if !strings.Contains(text.String(), want+"\n") {
			t.Errorf("got %s\nwant %s", &text, want)
		}
	}
}

// TestOrder expects policies and bindings in the order of their names, whatever the files.
func TestOrder(t *testing.T) {
	file := func(format string, args ...any) admission.File {
		return admission.File{Name: fmt.Sprint(args...), Content: fmt.Appendf(nil, format, args...)}
	}
	source, err := newStatic(t, staticConfig, file(staticPolicy, "q", ""), file(staticBinding, "c", "q", ""), file(staticPolicy, "p", ""),
		file(staticBinding, "d", "q", ""), file(staticBinding, "a", "q", ""), file(staticPolicy, "r", ""))
	if err != nil {
		t.Fatal(err)
	}
	policies, err := source.known(t.Context())
	var got []string
	for _, p := range policies.all {
		got = append(got, p.Name)
		for _, b := range p.bindings() {
			got = append(got, p.Name+"/"+b.Name)
		}
	}
	if want := "p q q/a q/c q/d r"; err != nil || strings.Join(got, " ") != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// TestNewSet tests documents that were not validated.
func TestNewSet(t *testing.T) {
	selects := &admissionregistrationv1.MatchResources{ObjectSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}},
	}}
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	compile := func(*admissionregistrationv1.ValidatingAdmissionPolicy, bool) (string, error) { return "", nil }
	const invalid = `: objectSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`
	f := func(want string) {
		t.Helper()
		set, err := NewSet(&Validating{
			Policies: []*admissionregistrationv1.ValidatingAdmissionPolicy{p},
			Bindings: []*admissionregistrationv1.ValidatingAdmissionPolicyBinding{b},
		}, compile)
		if got := fmt.Sprint(err); got != want || len(set) != 1 {
			t.Errorf("got %d policies, %s, want %s", len(set), got, want)
		}
	}
	f("<nil>")
	b.Spec.MatchResources = selects
	f(`ValidatingAdmissionPolicyBinding "b"` + invalid)
	p.Spec.MatchConstraints = selects
	f(`ValidatingAdmissionPolicyBinding "b"` + invalid + "\n" + `ValidatingAdmissionPolicy "p"` + invalid)
}

// reviewOf decodes a review.
func reviewOf(t *testing.T, body []byte) *codec.Review {
	t.Helper()
	review := codec.Acquire()
	t.Cleanup(review.Release)
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	return review
}

// TestBegin evaluates no policy for requests that write policies, nor before the policies are
// listed.
func TestBegin(t *testing.T) {
	source, err := newStatic(t, staticConfig, admission.File{Name: "p", Content: fmt.Appendf(nil, staticPolicy, "p", "")})
	if err != nil {
		t.Fatal(err)
	}
	f := func(resource string, want int) {
		t.Helper()
		d := new(Dispatch)
		policies, result := source.Begin(t.Context(), d,
			reviewOf(t, admissiontest.Body(codec.Create, resource, `{"metadata":{"name":"n"}}`)))
		got := 0
		if policies != nil {
			got = len(policies.all)
		}
		if got != want || result.Denial != nil || result.Err != nil {
			t.Errorf("%s: got %d policies, %+v, want %d", resource, got, result, want)
		}
	}
	f("v1/pods", 1)
	f("authentication.k8s.io/v1/tokenreviews", 0)
	f("authentication.k8s.io/v1/selfsubjectreviews", 0)
	f("authentication.k8s.io/v1/others", 1)
	f("authorization.k8s.io/v1/localsubjectaccessreviews", 0)
	f("authorization.k8s.io/v1/selfsubjectaccessreviews", 0)
	f("authorization.k8s.io/v1/selfsubjectrulesreviews", 0)
	f("authorization.k8s.io/v1/subjectaccessreviews", 0)
	f("authorization.k8s.io/v1/others", 1)
	f("admissionregistration.k8s.io/v1/validatingwebhookconfigurations", 0)
	f("policies.fastadmit.io/v1/validatingadmissionpolicies", 0)

	a := &apiServer{t: t, statuses: make(map[string]string),
		lists: map[string]string{"/api/v1/namespaces": ""}} // without the custom resources
	unknown, err := NewSource(ValidatingKind, admission.Setup{Config: []byte(customConfig), Cluster: a.view(false)},
		func(*admissionregistrationv1.ValidatingAdmissionPolicy, bool) (string, error) { return "", nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	policies, result := unknown.Begin(ctx, new(Dispatch), reviewOf(t, admissiontest.Body(codec.Create, "v1/pods", `{}`)))
	if policies != nil || result.Err == nil || result.Err.Error() != "the policies are not known yet: context canceled" {
		t.Errorf("got %v, %+v, want a failure", policies, result)
	}
}

// TestPrepare requires the namespace of the reviewed object to exist, unless the object is a
// namespace itself.
func TestPrepare(t *testing.T) {
	asked := &Cluster{Namespaces: cluster.Namespaces.In(viewOf(t, staticConfig))}
	f := func(resource, kind, namespace, wantObject string, wantCode int32) {
		t.Helper()
		d := new(Dispatch)
		d.Begin(t.Context(), reviewOf(t, fmt.Appendf(nil,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",`+
				`"name":"n","namespace":%q,"kind":{"version":"v1","kind":%q},"requestKind":{"version":"v1","kind":%q},`+
				`"resource":{"version":"v1","resource":%q},"object":{}}}`,
			namespace, kind, kind, resource)), asked)
		result := d.Prepare()
		if code := codeOf(result); code != wantCode {
			t.Errorf("%s in %q: got %d, want %d", kind, namespace, code, wantCode)
		}
		if result != nil {
			return
		}
		input := d.Input
		if again := d.Prepare(); again != nil || d.Input != input {
			t.Errorf("%s in %q: got %v the second time, want what there is", kind, namespace, again)
		}
		if got := fmt.Sprint(d.NamespaceObject().Type().TypeName()); got != wantObject {
			t.Errorf("%s in %q: got %s, want %s", kind, namespace, got, wantObject)
		}
		if d.End(); d.Input != nil || d.namespace != nil || d.namespaceObject != nil {
			t.Errorf("%s in %q: got %+v in the end", kind, namespace, d)
		}
	}
	f("pods", "Pod", "namespace", "map", 0)
	f("pods", "Pod", "missing", "", 404)
	f("pods", "Pod", "a/b", "", 500)
	f("nodes", "Node", "", "null_type", 0)
	f("namespaces", "Namespace", "missing", "null_type", 0)
	f("namespaces", "Namespace", "namespace", "null_type", 0)
	if result := withoutNamespace(errors.New("it does not answer")); result.Denial != nil || result.Err == nil {
		t.Errorf("got %+v, want a failure", result)
	}
	d := &Dispatch{Cluster: asked}
	if set, err := d.Labels(t.Context(), "namespace"); err != nil || set["env"] != "prod" {
		t.Errorf("got labels %v, %v", set, err)
	}
	if set, err := d.Labels(t.Context(), "missing"); !apierrors.IsNotFound(err) || set != nil {
		t.Errorf("got labels %v, %v of a namespace that is missing", set, err)
	}
}

// codeOf returns the code of a denial.
func codeOf(r *admission.Result) int32 {
	if r == nil || r.Denial == nil {
		return 0
	}
	return r.Denial.Code
}

// TestRequestResources tests a review without the resource that the user asked for.
func TestRequestResources(t *testing.T) {
	review := reviewOf(t, []byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1",`+
		`"operation":"CREATE","name":"n","resource":{"version":"v1","resource":"pods"},"object":{}}}`))
	m, err := NewMatcher(&admissionregistrationv1.MatchResources{
		MatchPolicy: new(admissionregistrationv1.Exact),
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	request := NewRequest(review)
	if matches, err := m.Matches(t.Context(), &request, nil); !matches || err != nil {
		t.Errorf("got %v, %v", matches, err)
	}
}

// TestOwnChecked denies invalid custom resources as kube-apiserver would, but allows writes
// that do not change their specs.
func TestOwnChecked(t *testing.T) {
	source, err := newStatic(t, customConfig)
	if err != nil {
		t.Fatal(err)
	}
	static, err := newStatic(t, staticConfig)
	if err != nil {
		t.Fatal(err)
	}
	const policies, bindings = "policies.fastadmit.io/v1/validatingadmissionpolicies",
		"policies.fastadmit.io/v1/validatingadmissionpolicybindings"
	f := func(resource, object, old, want string) {
		t.Helper()
		body := admissiontest.Body(codec.Create, resource, object)
		if old != "" {
			body = admissiontest.UpdateBody(resource, object, old)
		}
		_, result := source.Begin(t.Context(), new(Dispatch), reviewOf(t, body))
		got := ""
		if result.Denial != nil {
			got = result.Denial.Message
			if result.Denial.Code != 422 || result.Denial.Reason != "Invalid" {
				t.Errorf("got %+v", result.Denial)
			}
		}
		if got != want || result.Err != nil {
			t.Errorf("%s: got %s, %v\nwant %s", object, got, result.Err, want)
		}
		if _, result := static.Begin(t.Context(), new(Dispatch), reviewOf(t, body)); result.Denial != nil || result.Err != nil {
			t.Errorf("without custom resources: got %+v", result)
		}
	}
	const spec = `"spec":{"matchConstraints":{"resourceRules":[{` + ruleFields + `}]},"validations":[{"expression":"true"}]}`
	f(policies, `{"metadata":{"name":"p"},`+spec+`}`, "", "")
	f(policies, `{"metadata":{"name":"p"},"status":{"no":1},`+spec+`}`, "", "")
	f(policies, `{"metadata":{"name":"uncompiled"},`+spec+`}`, "", `ValidatingAdmissionPolicy "uncompiled": no such variable`)
	const noPolicies = `unknown field "spec.policie", want one of paramKind, matchConstraints, validations, failurePolicy, ` +
		`auditAnnotations, matchConditions, variables`
	f(policies, `{"metadata":{"name":"p"},"spec":{"policie":1}}`, "", noPolicies)
	f(policies, `{"metadata":{"name":"p"}}`, "", "ValidatingAdmissionPolicy \"p\": spec.matchConstraints: Required value\n"+
		"ValidatingAdmissionPolicy \"p\": spec.validations: Required value: validations or auditAnnotations must contain at "+
		"least one item\n"+
		"ValidatingAdmissionPolicy \"p\": spec.auditAnnotations: Required value: validations or auditAnnotations must "+
		"contain at least one item")
	f(policies, `{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"policie":1}}`, `{"metadata":{"name":"p"},"spec":{"policie":1}}`, "")
	f(policies, `{"metadata":{"name":"p"},"spec":{"policie":2}}`, `{"metadata":{"name":"p"},"spec":{"policie":1}}`, noPolicies)
	f(bindings, `{"metadata":{"name":"b"},"spec":{"policyName":"p","validationActions":["Deny"]}}`, "", "")
	for _, unchecked := range [][]byte{
		admissiontest.Body(codec.Delete, policies, `{"metadata":{"name":"p"},"spec":{"policie":1}}`),
		bytes.Replace(admissiontest.Body(codec.Create, policies, `{"metadata":{"name":"p"},"spec":{"policie":1}}`), []byte(`"name":"name"`),
			[]byte(`"subResource":"status","name":"name"`), 1),
	} {
		if _, result := source.Begin(t.Context(), new(Dispatch), reviewOf(t, unchecked)); result.Denial != nil || result.Err != nil {
			t.Errorf("%s: got %+v, want it allowed", unchecked, result)
		}
	}
	f(bindings, `{"metadata":{"name":"b"},"spec":{"policyName":"p"}}`, "",
		`ValidatingAdmissionPolicyBinding "b": spec.validationActions: Required value: at least one validation action is required`)
	f(bindings, `{"metadata":{"name":"b"},"spec":{"policyName":"p","paramref":1}}`, "",
		`unknown field "spec.paramref", did you mean paramRef?`)
	const exceptions = "policies.fastadmit.io/v1/policyexceptions"
	f(exceptions, validException, "", "")
	f(exceptions, strings.Replace(validException, `"true"`, `"object."`, 1), "",
		`PolicyException "e": spec.matchConditions[0].expression: `+
			`Invalid value: "object.": compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.'`+"\n"+
			" | object.\n | .......^")
	f(exceptions, `{"metadata":{"name":"e"},"spec":{"policie":1}}`, "", `unknown field "spec.policie", did you mean policies?`)
	f("policies.fastadmit.io/v1/mutatingadmissionpolicies", `{"metadata":{"name":"p"},"spec":{"policie":1}}`, "", "")
}
