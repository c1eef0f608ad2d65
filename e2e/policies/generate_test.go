package policies

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/internal/policy/expressions"
	"github.com/fastadmit/fastadmit/internal/seed"
)

var cases = flag.Int("cases", tally.Cases(100, 10_000), "generated cases for each feature of policies")

// features are features that occur more often in some generated policies, in turns.
var features = []string{"matching", "conditions", "variables", "validations", "messages", "annotations", "actions"}

// generator generates policies with all their fields, and requests.
type generator struct {
	*expressions.Generator
	feature  string
	release  fastadmit.Version // accepts the expressions
	request  map[string]json.RawMessage
	object   any                           // of the request
	pointers []string                      // to its fields
	compiler *plugincel.CompositedCompiler // of the policy that is being made
}

// newGenerator returns a generator for one of the recorded requests.
func newGenerator(r *rand.Rand, feature string) (*generator, error) {
	g, names := &generator{feature: feature}, corpus.Names()
	var err error
	if g.request, err = requestOf(corpus.MustRead(names[r.IntN(len(names))])); err != nil {
		return nil, err
	}
	variables := make(map[string]any)
	for _, name := range [...]string{"object", "oldObject"} {
		var content any
		if raw := g.request[name]; len(raw) > 0 {
			if err := json.Unmarshal(raw, &content); err != nil {
				return nil, err
			}
		}
		variables[name] = content
	}
	g.Generator, g.object = expressions.New(r, variables), variables["object"]
	g.collectPointers("", g.object)
	return g, nil
}

func requestOf(body []byte) (map[string]json.RawMessage, error) {
	var review struct {
		Request map[string]json.RawMessage `json:"request"`
	}
	return review.Request, json.Unmarshal(body, &review)
}

func pick[T any](g *generator, all ...T) T { return all[g.IntN(len(all))] }

// often reports true once in n times, or every third time for policies that have more of a feature.
func (g *generator) often(feature string, n int) bool {
	if g.feature == feature {
		n = 3
	}
	return g.IntN(n) == 0
}

type accessor struct {
	name, text string
	returns    []*celgo.Type
}

func (a accessor) GetExpression() string      { return a.text }
func (a accessor) GetName() string            { return a.name }
func (a accessor) ReturnTypes() []*celgo.Type { return a.returns }

// allVariables are the variables that most expressions may use.
var allVariables = plugincel.OptionalVariableDeclarations{HasAuthorizer: true}

// compiles reports whether kube-apiserver would accept an expression. It panics on
// some. Of orValue and or, it is only if it can be seen that the value is an optional: before 1.37, others are themselves.
// Nor is optMap with an optional, which may be null there (docs/versions.md).
func (g *generator) compiles(a accessor, options plugincel.OptionalVariableDeclarations) (ok bool) {
	defer func() { ok = recover() == nil && ok }()
	if !g.release.AtLeast(1, 37) && asksNoOptional(a.text) {
		return false
	}
	return g.compiler.CompileCELExpression(a, options, environment.NewExpressions).Error == nil
}

var optionals = func() *celgo.Env {
	env, err := celgo.NewEnv(celgo.OptionalTypes(), celgo.ClearMacros())
	if err != nil {
		panic(err)
	}
	return env
}()

// asksNoOptional reports whether orValue or or is called on what may be no optional, or optMap with an optional.
func asksNoOptional(text string) (found bool) {
	parsed, issues := optionals.Parse(text)
	if issues != nil {
		return false
	}
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		switch call := e.AsCall(); call.FunctionName() {
		case "orValue", "or":
			found = found || !isOptional(call.Target())
		case "optMap":
			found = found || isOptional(call.Args()[1])
		}
	}))
	return found
}

func isOptional(e ast.Expr) bool {
	switch e.Kind() {
	case ast.SelectKind:
		return isOptional(e.AsSelect().Operand())
	case ast.CallKind:
		switch call := e.AsCall(); call.FunctionName() {
		case operators.OptSelect, operators.OptIndex, "or", "of", "none", "ofNonZeroValue", "optMap", "optFlatMap":
			return true
		case operators.Index:
			return isOptional(call.Args()[0])
		case operators.Conditional:
			return isOptional(call.Args()[1]) && isOptional(call.Args()[2])
		}
	}
	return false
}

// expression generates an expression that compiles.
func (g *generator) expression(kind expressions.Kind, hasAuthorizer bool, returns ...*celgo.Type) string {
	for range 20 {
		text := g.Expression("", kind)
		if hasAuthorizer && kind == expressions.Bool && g.IntN(3) == 0 {
			text = g.Expression("authorizer", kind)
		}
		if g.compiles(accessor{text: text, returns: returns}, plugincel.OptionalVariableDeclarations{HasAuthorizer: hasAuthorizer}) {
			return text
		}
	}
	return map[expressions.Kind]string{expressions.Bool: "object == null", expressions.String: "'text'", expressions.Any: "object",
		expressions.List: "[1]"}[kind]
}

func (g *generator) condition() string {
	text := g.expression(expressions.Bool, true, celgo.BoolType)
	switch g.IntN(4) {
	case 0:
		return text
	case 1:
		return "!(" + text + ")"
	case 2:
		return "(" + text + ") || true"
	}
	return pick(g, "true", "request.operation != 'DELETE'", "object != null", "has(object.metadata)", "false", "object.nope == 1")
}

// message generates a message, also with characters that upstream refuses.
func (g *generator) message() string {
	if g.IntN(2) == 0 {
		return g.expression(expressions.String, false, celgo.StringType)
	}
	return g.accepted(pick(g, `'a\nb'`, `''`, `'  '`, `' padded '`, `'x'.replace('x', 'long').replace('', 'y')`,
		`[string(object.metadata.name), 'is wrong'].join(' ')`,
		`lists.range(5200).map(i, 'a').join('')`, `lists.range(5120).map(i, 'b').join('')`, `lists.range(5121).map(i, 'c').join('')`,
		`'ä€😀'`,
		`string(object.nope)`, `string(object.metadata.name)`,
		`string(namespaceObject.metadata.creationTimestamp)`, `string(namespaceObject.metadata.creationTimestamp.getFullYear())`,
		`string(type(namespaceObject.metadata.creationTimestamp) == string)`), celgo.StringType)
}

// accepted returns a text expression, or another one if the release does not have its functions.
func (g *generator) accepted(text string, returns ...*celgo.Type) string {
	if g.compiles(accessor{text: text, returns: returns}, allVariables) {
		return text
	}
	return "'text'"
}

func (g *generator) policy(name string) (*admissionregistrationv1.ValidatingAdmissionPolicy, error) {
	var err error
	// As upstream: an API server accepts what the release before it has, so that it can be rolled back.
	base := environment.MustBaseEnvSet(version.MajorMinor(1, uint(g.release.Minor()-1)))
	if g.compiler, err = plugincel.NewCompositedCompiler(base); err != nil {
		return nil, err
	}
	p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	spec := &p.Spec
	spec.MatchConstraints = g.resources(false)
	spec.FailurePolicy = new(pick(g, admissionregistrationv1.Fail, admissionregistrationv1.Fail, admissionregistrationv1.Ignore))
	// Before the variables, because match conditions may not use them.
	for g.often("conditions", 6) {
		spec.MatchConditions = append(spec.MatchConditions,
			admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", len(spec.MatchConditions)), Expression: g.condition()})
	}
	for _, name := range [...]string{"a", "b", "c"} {
		if g.often("variables", 4) {
			kind := pick(g, expressions.Bool, expressions.String, expressions.Any, expressions.List)
			text := g.expression(kind, true, celgo.AnyType, celgo.DynType)
			g.compiler.CompileAndStoreVariable(accessor{name, text, []*celgo.Type{celgo.AnyType, celgo.DynType}}, allVariables,
				environment.StoredExpressions)
			spec.Variables = append(spec.Variables, admissionregistrationv1.Variable{Name: name, Expression: text})
			g.Add(kind, "variables."+name)
		}
	}
	for len(spec.Validations) == 0 && len(spec.AuditAnnotations) == 0 || g.often("validations", 4) {
		spec.Validations = append(spec.Validations, g.validation())
	}
	for len(spec.AuditAnnotations) < 4 && g.often("annotations", 5) {
		spec.AuditAnnotations = append(spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{
			Key: pick(g, "k", "key-", strings.Repeat("k", 40)) + fmt.Sprint(len(spec.AuditAnnotations)), ValueExpression: g.annotation(),
		})
	}
	return p, nil
}

func (g *generator) validation() admissionregistrationv1.Validation {
	v := admissionregistrationv1.Validation{Expression: g.expression(expressions.Bool, true, celgo.BoolType)}
	if g.IntN(3) == 0 {
		v.Expression = g.condition()
	}
	if g.often("messages", 4) {
		v.Message = pick(g, " a message ", "is wrong", "ä€😀", strings.Repeat("m", 6000))
	}
	if g.often("messages", 4) {
		v.MessageExpression = g.message()
	}
	if g.IntN(3) == 0 {
		v.Reason = new(pick(g, metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
			metav1.StatusReasonRequestEntityTooLarge))
	}
	return v
}

func (g *generator) annotation() string {
	if g.IntN(2) == 0 {
		return g.expression(expressions.String, true, celgo.StringType, celgo.NullType)
	}
	return g.accepted(pick(g, "null", "'a'", "' '", "string(object.nope)", "lists.range(10300).map(i, 'a').join('')",
		"lists.range(10240).map(i, 'b').join('') + 'c'",
		"object == null ? 'gone' : 'there'", "authorizer.requestResource.check('get').reason()", "lists.range(5000).map(i, '€').join('')",
		"string(namespaceObject.metadata.creationTimestamp)"), celgo.StringType, celgo.NullType)
}

func (g *generator) binding(name, policy string) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.PolicyName = policy
	b.Spec.ValidationActions = pick(g,
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn},
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit},
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit, admissionregistrationv1.Deny},
		[]admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn, admissionregistrationv1.Audit})
	if g.often("actions", 4) || g.often("matching", 4) {
		b.Spec.MatchResources = g.resources(true)
	}
	return b
}

// TestGenerated compares both sides' evaluation of generated policies on recorded requests and
// variants of them.
func TestGenerated(t *testing.T) {
	start := seed.Of(t)
	row := tally.Row{Plugin: "ValidatingAdmissionPolicy", Test: "generated in process"}
	for f, feature := range features {
		t.Run(feature, func(t *testing.T) {
			r := rand.New(rand.NewPCG(start, uint64(f)))
			var all outcomes
			for all.done < *cases && !t.Failed() {
				generated(t, r, feature, &all)
			}
			all.addTo(&row, t, feature)
			if !t.Failed() && all.done >= 100 && (all.denied*50 < all.done || all.denied*50 > all.done*49) {
				t.Errorf("got %d of %d denied, want some of each", all.denied, all.done)
			}
		})
	}
	if err := row.Write(); err != nil {
		t.Fatal(err)
	}
}

// generated compares both sides with some policies on some requests.
func generated(t *testing.T, r *rand.Rand, feature string, all *outcomes) {
	t.Helper()
	g, err := newGenerator(r, feature)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := g.documents(1 + g.IntN(2))
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := NewUpstream(documents, readOnly{}, namespaces()...)
	if err != nil {
		t.Fatal(err)
	}
	g.compare(t, documents, typedPlugin{upstream, documents}, 5, all)
}

// typedPlugin is the plugin of the newest release.
type typedPlugin struct {
	*Upstream

	documents *Documents
}

// Untyped implements listsTypes.
func (p typedPlugin) Untyped(request *admissionv1.AdmissionRequest) (*Answer, error) {
	upstream, err := NewUntyped(p.documents, readOnly{}, namespaces()...)
	if err != nil {
		return nil, err
	}
	return upstream.Answer(request)
}

// compare compares both sides with policies on n requests, apart from those that upstream does not serve.
func (g *generator) compare(t *testing.T, documents *Documents, upstream kubernetes, n int, all *outcomes) {
	t.Helper()
	chain := ours(t, documents, g.release)
	for range n {
		body, err := g.review()
		if err == nil {
			body, err = upstream.Sent(body)
		}
		if err != nil {
			t.Fatal(err)
		}
		if body == nil {
			continue
		}
		denied, listed := compare(t, documents, upstream, chain, body)
		if all.done++; denied {
			all.denied++
		}
		if listed {
			all.listed++
		}
	}
}

// documents generates policies, each with one binding or more.
func (g *generator) documents(policies int) (*Documents, error) {
	documents := new(Documents)
	for p := range policies {
		policy, err := g.policy(fmt.Sprint("p", p))
		if err != nil {
			return nil, err
		}
		documents.Policies = append(documents.Policies, *policy)
		for b := 0; b == 0 || g.often("actions", 4); b++ {
			documents.Bindings = append(documents.Bindings, *g.binding(fmt.Sprintf("b%d-%d", p, b), policy.Name))
		}
		documents.repeat(policy)
	}
	return documents, nil
}

// repeat adds a policy with the same expressions, in another order, and a binding for it. fastadmit evaluates
// each expression once for both.
func (d *Documents) repeat(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	p = p.DeepCopy()
	p.Name += "-again"
	slices.Reverse(p.Spec.Validations)
	slices.Reverse(p.Spec.AuditAnnotations)
	b := admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}
	b.Spec.PolicyName = p.Name
	b.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
	d.Policies, d.Bindings = append(d.Policies, *p), append(d.Bindings, b)
}
