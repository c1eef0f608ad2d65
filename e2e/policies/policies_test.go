package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionpolicy"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // upstream logs each annotation that is there already
	os.Exit(m.Run())
}

// readers says what everybody may do.
func readers(verb string) bool { return verb == "get" || verb == "list" }

type readOnly struct{}

func (readOnly) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if readers(a.GetVerb()) {
		return authorizer.DecisionAllow, "reads", nil
	}
	return authorizer.DecisionNoOpinion, "writes", nil
}

func authorize(_ context.Context, review *authorizationv1.SubjectAccessReview) {
	verb := ""
	if a := review.Spec.ResourceAttributes; a != nil {
		verb = a.Verb
	} else if a := review.Spec.NonResourceAttributes; a != nil {
		verb = a.Verb
	}
	review.Status.Allowed = readers(verb)
	review.Status.Reason = map[bool]string{true: "reads", false: "writes"}[review.Status.Allowed]
}

func namespaces() (all []*corev1.Namespace) {
	for _, name := range [...]string{"shop", "default", "kube-system", "kube-public", "kube-node-lease"} {
		all = append(all, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", ResourceVersion: "2", Labels: map[string]string{"kubernetes.io/metadata.name": name, "env": "prod"}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}
	return all
}

// ours evaluates documents with fastadmit's plugin.
func ours(t testing.TB, documents *Documents) *handlers.Chain {
	t.Helper()
	var manifests []handlers.File
	for i := range documents.Policies {
		manifests = append(manifests, fileOf(t, "ValidatingAdmissionPolicy", documents.Policies[i].Name, documents.Policies[i]))
	}
	for i := range documents.Bindings {
		manifests = append(manifests, fileOf(t, "ValidatingAdmissionPolicyBinding", documents.Bindings[i].Name, documents.Bindings[i]))
	}
	return chainOf(t, validatingadmissionpolicy.Plugin(), manifests)
}

// fileOf returns a document as it would be in a file.
func fileOf(t testing.TB, kind, name string, document any) handlers.File {
	t.Helper()
	content, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,%s`, kind, content[1:])
	return handlers.File{Name: name, Content: []byte(text)}
}

func chainOf(t testing.TB, plugin handlers.Plugin, manifests []handlers.File) *handlers.Chain {
	t.Helper()
	var objects []runtime.Object
	for _, namespace := range namespaces() {
		objects = append(objects, namespace)
	}
	state, err := cluster.New(cluster.Options{Objects: objects, Authorize: authorize})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Follow(t.Context(), plugin.Needs...); err != nil {
		t.Fatal(err)
	}
	chain, err := handlers.NewChain([]handlers.Plugin{plugin}, map[string]handlers.Enabled{plugin.Name: {Manifests: manifests}}, state, nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return chain
}

func answerOf(t testing.TB, chain *handlers.Chain, body []byte) *Answer {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(t.Context(), review, handlers.Validate); err != nil {
		t.Fatal(err)
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(review.AppendResponse(nil), &answer); err != nil {
		t.Fatal(err)
	}
	r := answer.Response
	a := &Answer{Warnings: r.Warnings, Annotations: map[string]string{}}
	for key, value := range r.AuditAnnotations {
		if key != "ValidatingAdmissionPolicy" {
			a.Annotations[key] = value
		}
	}
	if !r.Allowed {
		a.Denied = r.Result
		a.Denied.Message = strings.TrimPrefix(a.Denied.Message, "ValidatingAdmissionPolicy: ")
		causes := &a.Denied.Details.Causes
		*causes = slices.DeleteFunc(*causes, func(c metav1.StatusCause) bool { return c.Type == handlers.CauseAdmissionPlugin })
	}
	return a
}

// compare asks both sides about a review.
func compare(t *testing.T, documents *Documents, upstream *Upstream, chain *handlers.Chain, name string) (denied bool) {
	t.Helper()
	body := corpus.MustRead(name)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	want, err := upstream.Answer(review.Request)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got := answerOf(t, chain, body)
	if want.Denied != nil {
		want.Denied.Status = metav1.StatusFailure
	}
	if !reflect.DeepEqual(normal(got), normal(want)) {
		text, _ := yaml.Marshal(documents)
		t.Errorf("%s\n%s\ngot  %s\nwant %s", name, text, normal(got), normal(want))
	}
	return want.Denied != nil
}

func normal(a *Answer) string {
	text, _ := json.Marshal(a)
	return string(text)
}

func resources(operations ...admissionregistrationv1.OperationType) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: operations,
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}, Scope: new(admissionregistrationv1.AllScopes)},
		}}},
	}
}

// generator makes policies about the fields of an object.
type generator struct {
	*rand.Rand
	paths []string
}

func (g *generator) collect(path string, v any) {
	g.paths = append(g.paths, path)
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if name != "managedFields" {
				g.collect(path+"["+strconv.Quote(name)+"]", v[name])
			}
		}
	case []any:
		for i := range min(len(v), 2) {
			g.collect(fmt.Sprintf("%s[%d]", path, i), v[i])
		}
	}
}

func (g *generator) path() string {
	if g.IntN(10) == 0 {
		return g.paths[g.IntN(len(g.paths))] + ".nope"
	}
	return g.paths[g.IntN(len(g.paths))]
}

func (g *generator) bool() string {
	p, q := g.path(), g.path()
	return [...]string{
		p + " == " + q, p + " != " + q, "size(" + p + ") > 2", "has(" + p + ".name)", p + ".all(x, x != null)", p + ".exists(x, x == " + q + ")",
		p + " in " + q, "string(" + p + ") == string(" + q + ")", "type(" + p + ") == map", p + ".startsWith(string(" + q + "))",
		p + ".?name.orValue('') == ''", "variables.a == " + q, "variables.b", "request.operation == 'CREATE' && " + p + " == " + q,
		"request.userInfo.groups.exists(g, g == 'system:masters')", "has(request.namespace) && request.namespace == 'shop'",
		"namespaceObject == null || namespaceObject.metadata.labels['env'] == 'prod'", "oldObject == null", "object == null || object.kind != 'Pod'",
		"authorizer.requestResource.check('get').allowed()", "authorizer.group('').resource('pods').namespace('shop').check('delete').reason() == 'reads'",
		"authorizer.path('/healthz').check('get').allowed()", "request.options == null || !has(request.options.dryRun)", "request.kind.kind == 'Pod'",
		"request.requestResource.resource == request.resource.resource", "has(request.subResource)", "request.dryRun", "request.name != ''",
		"has(request.userInfo.extra) && size(request.userInfo.extra) > 0",
	}[g.IntN(29)]
}

func (g *generator) text() string {
	p := g.path()
	return [...]string{
		"string(" + p + ")", "'%s'.format([" + p + "])", "'a\\nb'", "' '", "string(variables.a)", "request.operation + ' ' + string(size(" + p + "))",
		"string(namespaceObject.metadata.name)", "'got ' + string(variables.b)",
	}[g.IntN(8)]
}

func (g *generator) policy(name string) admissionregistrationv1.ValidatingAdmissionPolicy {
	p := admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	spec := &p.Spec
	spec.MatchConstraints = resources(admissionregistrationv1.OperationAll)
	spec.FailurePolicy = new([...]admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}[g.IntN(2)])
	spec.Variables = []admissionregistrationv1.Variable{{Name: "a", Expression: g.path()}, {Name: "b", Expression: "variables.a == " + g.path()}}
	for i := range g.IntN(3) {
		spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: g.bool() + " || true"})
		if g.IntN(3) == 0 {
			spec.MatchConditions[i].Expression = g.bool()
		}
	}
	for range 1 + g.IntN(3) {
		v := admissionregistrationv1.Validation{Expression: g.bool()}
		if g.IntN(2) == 0 {
			v.Message = " a message "
		}
		if g.IntN(2) == 0 {
			v.MessageExpression = g.text()
		}
		if g.IntN(3) == 0 {
			v.Reason = new([...]metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonUnauthorized,
				metav1.StatusReasonRequestEntityTooLarge}[g.IntN(4)])
		}
		spec.Validations = append(spec.Validations, v)
	}
	for i := range g.IntN(3) {
		spec.AuditAnnotations = append(spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{Key: fmt.Sprint("k", i), ValueExpression: g.text()})
	}
	return p
}

func (g *generator) binding(name, policy string) admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	b := admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.PolicyName = policy
	b.Spec.ValidationActions = [...][]admissionregistrationv1.ValidationAction{
		{admissionregistrationv1.Deny}, {admissionregistrationv1.Warn}, {admissionregistrationv1.Audit},
		{admissionregistrationv1.Deny, admissionregistrationv1.Audit}, {admissionregistrationv1.Warn, admissionregistrationv1.Audit},
	}[g.IntN(5)]
	if g.IntN(3) == 0 {
		b.Spec.MatchResources = resources(admissionregistrationv1.Create)
		b.Spec.MatchResources.NamespaceSelector.MatchLabels = map[string]string{"env": [...]string{"prod", "dev"}[g.IntN(2)]}
	}
	return b
}

// TestGenerated has both sides evaluate generated policies on every recording.
func TestGenerated(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	row := tally.Row{Plugin: "ValidatingAdmissionPolicy", Test: "generated in process", Seed: seed}
	denied := 0
	for i, name := range corpus.Names() {
		var review struct {
			Request struct {
				Kind              metav1.GroupVersionKind
				Object, OldObject any
			}
		}
		if err := json.Unmarshal(corpus.MustRead(name), &review); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(review.Request.Kind.Group, "example.com") { // a custom resource
			continue
		}
		for n := range uint64(2) {
			g := &generator{Rand: rand.New(rand.NewPCG(seed+n, uint64(i)))}
			g.collect("object", review.Request.Object)
			g.collect("oldObject", review.Request.OldObject)
			documents := new(Documents)
			for p := range 1 + g.IntN(2) {
				policy := fmt.Sprint("p", p)
				documents.Policies = append(documents.Policies, g.policy(policy))
				for b := range 1 + g.IntN(2) {
					documents.Bindings = append(documents.Bindings, g.binding(fmt.Sprintf("b%d-%d", p, b), policy))
				}
			}
			upstream, err := NewUpstream(documents, readOnly{}, namespaces()...)
			if err != nil {
				t.Fatal(err)
			}
			row.Cases++
			if compare(t, documents, upstream, ours(t, documents), name) {
				denied++
			}
			if t.Failed() {
				row.Different = append(row.Different, name)
			}
		}
	}
	if t.Logf("%d of %d denied", denied, row.Cases); denied*20 < row.Cases || denied*20 > row.Cases*19 {
		t.Errorf("got %d of %d denied, want some of each", denied, row.Cases)
	}
	if err := row.Write(); err != nil {
		t.Fatal(err)
	}
}
