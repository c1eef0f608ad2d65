package cel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/fastadmit/fastadmit/codec"
)

// named is an expression for kube-apiserver's compiler, and one of its variables.
type named struct {
	name, text string
	returns    []*celgo.Type
}

func (n named) GetExpression() string      { return n.text }
func (n named) GetName() string            { return n.name }
func (n named) ReturnTypes() []*celgo.Type { return n.returns }

// someCluster is the cluster of a review, with the content of its namespace.
type someCluster struct {
	*asked
	namespace map[string]any
}

func (c someCluster) NamespaceObject() ref.Val {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, c.namespace)
}

func (c someCluster) Authorizer() (authorizer, requestResource ref.Val) {
	who := c.attributes.GetUserInfo()
	return library.NewAuthorizerVal(who, someAuthorizer{}), library.NewResourceAuthorizerVal(who, someAuthorizer{}, c.attributes)
}

func (someCluster) Resources() Resources { return nil }

// someAuthorizer decides by the attributes of the question.
type someAuthorizer struct{}

func (someAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	fields, fieldsErr := a.GetFieldSelector()
	labels, labelsErr := a.GetLabelSelector()
	reason := fmt.Sprint(a.GetUser().GetName(), a.GetVerb(), a.GetPath(), a.GetNamespace(), a.GetName(), a.GetResource(),
		a.GetSubresource(), a.GetAPIGroup(), a.GetAPIVersion(), fields, fieldsErr, labels, labelsErr)
	switch a.GetVerb() {
	case "get", "create":
		return authorizer.DecisionAllow, reason, nil
	case "list":
		return authorizer.DecisionDeny, reason, errors.New("cannot tell")
	}
	return authorizer.DecisionNoOpinion, reason, nil
}

var shop = &corev1.Namespace{
	ObjectMeta: metav1.ObjectMeta{
		Name: "shop", UID: "1", ResourceVersion: "2", Generation: 3, Finalizers: []string{"a/b"},
		CreationTimestamp: metav1.Unix(1700000000, 0),
		Labels:            map[string]string{"kubernetes.io/metadata.name": "shop", "env": "prod"},
		Annotations:       map[string]string{"note": "x"},
	},
	Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}},
	Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive, Conditions: []corev1.NamespaceCondition{{Type: "A", Status: "True"}}},
}

var params = map[string]any{"data": map[string]any{"fakeString": "fake"}, "spec": map[string]any{"testSize": int64(10)}}

// asked is a review as either side reads it.
type asked struct {
	body       []byte
	attributes *admission.VersionedAttributes
	request    *admissionv1.AdmissionRequest
}

func newAsked(t testing.TB, body []byte) *asked {
	t.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	r := review.Request
	decode := func(raw []byte) runtime.Object {
		if len(raw) == 0 || string(raw) == "null" {
			return nil
		}
		u := new(unstructured.Unstructured)
		if err := u.UnmarshalJSON(raw); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return u
	}
	extra := make(map[string][]string)
	for key, values := range r.UserInfo.Extra {
		extra[key] = values
	}
	who := &user.DefaultInfo{Name: r.UserInfo.Username, UID: r.UserInfo.UID, Groups: r.UserInfo.Groups, Extra: extra}
	attributes := admission.NewAttributesRecord(
		decode(r.Object.Raw), decode(r.OldObject.Raw), schema.GroupVersionKind(*r.RequestKind), r.Namespace, r.Name,
		schema.GroupVersionResource(*r.RequestResource), r.SubResource, admission.Operation(r.Operation), decode(r.Options.Raw),
		r.DryRun != nil && *r.DryRun, who)
	return &asked{
		body: body,
		attributes: &admission.VersionedAttributes{
			Attributes: attributes, VersionedKind: schema.GroupVersionKind(r.Kind),
			VersionedObject:    admission.NewLazyObject(attributes.GetObject()),
			VersionedOldObject: admission.NewLazyObject(attributes.GetOldObject()),
		},
		request: plugincel.CreateAdmissionRequest(attributes, r.Resource, r.Kind),
	}
}

// evaluatedAs is the result of expressions on one side.
type evaluatedAs struct {
	Values, Errors []string
	Fatal          string
	Remaining      int64
}

func (e *evaluatedAs) add(value ref.Val, err error) {
	if err != nil {
		e.Values, e.Errors = append(e.Values, ""), append(e.Errors, err.Error())
		return
	}
	e.Values, e.Errors = append(e.Values, shown(value)), append(e.Errors, "")
}

// shown returns a value in a form that can be compared.
func shown(value ref.Val) string {
	name := value.Type().TypeName()
	switch v := value.(type) {
	case *types.Optional:
		if v.HasValue() {
			return name + " of " + shown(v.GetValue())
		}
		return name
	case traits.Mapper:
		if value.Type() != types.MapType {
			return name // variables, which cannot be iterated over
		}
		members := make(map[string]string)
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			members[shown(key)] = shown(v.Get(key))
		}
		return fmt.Sprint(members)
	case traits.Lister:
		var elements []string
		for it := v.Iterator(); it.HasNext() == types.True; {
			elements = append(elements, shown(it.Next()))
		}
		return fmt.Sprint(elements)
	case *apiservercel.Format:
		return name + v.Name
	case apiservercel.Quantity:
		return name + v.String()
	case types.Null, types.Bool, types.Int, types.Uint, types.Double, types.String, types.Bytes, types.Timestamp, types.Duration,
		*types.Type, apiservercel.URL, apiservercel.IP, apiservercel.CIDR, apiservercel.Semver:
		return fmt.Sprintf("%s %v", name, value)
	}
	return name // of the authorizer, for example
}

// expressionsOf are expressions that are evaluated one after the other.
type expressionsOf struct {
	variables, conditions []named
	patches               bool // whether the types of patches are declared
}

func (p *expressionsOf) theirs(t testing.TB, budget int64) func(a *asked) evaluatedAs {
	t.Helper()
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	all := plugincel.OptionalVariableDeclarations{HasParams: true, HasAuthorizer: true, HasPatchTypes: p.patches}
	for _, v := range p.variables {
		compiler.CompileAndStoreVariable(v, all, environment.StoredExpressions)
	}
	accessors := make([]plugincel.ExpressionAccessor, len(p.conditions))
	for i, c := range p.conditions {
		accessors[i] = c
	}
	condition := compiler.CompileCondition(accessors, all, environment.StoredExpressions)
	inputs := plugincel.OptionalVariableBindings{VersionedParams: &unstructured.Unstructured{Object: params}, Authorizer: someAuthorizer{}}
	return func(a *asked) (e evaluatedAs) {
		results, remaining, err := condition.ForInput(t.Context(), a.attributes, a.request, inputs,
			plugincel.CreateNamespaceObject(shop), budget)
		if e.Remaining = remaining; err != nil {
			e.Fatal = err.Error()
			return e
		}
		for _, r := range results {
			e.add(r.EvalResult, r.Error)
		}
		return e
	}
}

func (p *expressionsOf) ours(t testing.TB, budget int64) func(a *asked) evaluatedAs {
	t.Helper()
	compiler := NewCompiler(len(p.variables) > 0)
	all := Declarations{Params: true, Authorizer: true, PatchTypes: p.patches}
	for _, v := range p.variables {
		compiler.AddVariable(v.name, v.text, all)
	}
	compiled := make([]*Expression, len(p.conditions))
	for i, c := range p.conditions {
		compiled[i] = compiler.Compile(c.text, all, c.returns)
	}
	namespace, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shop)
	if err != nil {
		t.Fatal(err)
	}
	return func(a *asked) (e evaluatedAs) {
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(a.body); err != nil {
			t.Fatal(err)
		}
		in := NewInput(t.Context(), review)
		in.Cluster = someCluster{a, namespace}
		in.Params = types.NewStringInterfaceMap(types.DefaultTypeAdapter, params)
		evaluation := compiler.Begin(in, budget)
		for _, x := range compiled {
			value, err, fatal := evaluation.Evaluate(x)
			if fatal != nil {
				return evaluatedAs{Fatal: fatal.Error(), Remaining: -1}
			}
			e.add(value, err)
		}
		if review.Object.Err() != nil || review.OldObject.Err() != nil {
			t.Errorf("cannot read the objects: %v, %v", review.Object.Err(), review.OldObject.Err())
		}
		e.Remaining = evaluation.Remaining
		return e
	}
}

// theirsOrNone calls theirs. It returns nil if cel-go panics, as it does when it
// compiles [?object.x].
func (p *expressionsOf) theirsOrNone(t testing.TB, budget int64) (evaluates func(a *asked) evaluatedAs) {
	t.Helper()
	defer func() {
		if panicked := recover(); panicked != nil && !strings.Contains(fmt.Sprint(panicked), "index out of range") {
			panic(panicked)
		}
	}()
	return p.theirs(t, budget)
}

// compareWithUpstream evaluates expressions on reviews on both sides: values, errors
// and the remaining budget must be equal. It returns how many expressions had a value.
func (p *expressionsOf) compareWithUpstream(t testing.TB, budget int64, reviews ...*asked) (values int) {
	t.Helper()
	ours, theirs := p.ours(t, budget), p.theirsOrNone(t, budget)
	switch {
	case theirs == nil && len(p.conditions) > 1: // cel-go panics on one of them
		for i := range p.conditions {
			values += (&expressionsOf{
				variables: p.variables, conditions: p.conditions[i : i+1], patches: p.patches,
			}).compareWithUpstream(t, budget, reviews...)
		}
		return values
	case theirs == nil:
		t.Logf("cel-go panics on this, so it is not compared:\n%s", p)
		return 0
	}
	for _, a := range reviews {
		want, got := theirs(a), ours(a)
		if diff := p.difference(&got, &want); diff != "" {
			t.Errorf("%s\nof %.1000s", diff, a.body)
		}
		for _, err := range want.Errors {
			if err == "" {
				values++
			}
		}
	}
	return values
}

// sameError reports whether errors are equal, except for parts that differ from run to
// run, and for the Go type of a map or list that is used as the name of a field.
func sameError(got, want string) bool {
	return got == want || unstable.ReplaceAllString(got, "") == unstable.ReplaceAllString(want, "")
}

var unstable = regexp.MustCompile(`\b_var\d+|invalid qualifier type: .*`)

// difference describes the difference of the sides, "" if there is none.
func (p *expressionsOf) difference(got, want *evaluatedAs) string {
	if got.Fatal != want.Fatal || len(got.Values) != len(want.Values) {
		return fmt.Sprintf("%s\ngot  %s\nwant %s", p, got.Fatal, want.Fatal)
	}
	for i := range want.Values {
		if got.Values[i] != want.Values[i] || !sameError(got.Errors[i], want.Errors[i]) {
			return fmt.Sprintf("%sof these, the one numbered %d:\ngot  %.2000s, error %q\nwant %.2000s, error %q",
				p, i, got.Values[i], got.Errors[i], want.Values[i], want.Errors[i])
		}
	}
	if got.Remaining != want.Remaining {
		return fmt.Sprintf("%sgot  a budget of %d left\nwant %d", p, got.Remaining, want.Remaining)
	}
	return ""
}

// String shows all expressions.
func (p *expressionsOf) String() string {
	var b strings.Builder
	for _, v := range p.variables {
		fmt.Fprintf(&b, "variable %s: %s\n", v.name, v.text)
	}
	for _, c := range p.conditions {
		fmt.Fprintln(&b, c.text)
	}
	return b.String()
}
