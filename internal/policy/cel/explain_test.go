package cel

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// explainedObject is the object of the tests of explanations. Its data are secret in some.
const explainedObject = `{"kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":5,"memory":"500Mi",` +
	`"containers":[{"name":"a","image":"nginx:1"},{"name":"b","image":"nginx:latest"}]},"data":{"password":"hunter2"}}`

// explainedVariables are the variables of the tests of explanations.
var explainedVariables = [][2]string{
	{"containers", "object.spec.containers"}, {"most", "object.metadata.name == 'web' ? 3 : 5"}, {"password", "object.data.password"},
	{"both", "variables.password + variables.containers[0].name"},
}

// explain explains a boolean expression.
func explain(t testing.TB, object string, hidden Hidden, text string) admission.ExpressionExplanation {
	t.Helper()
	c := NewCompiler(true)
	for _, v := range explainedVariables {
		c.AddVariable(v[0], v[1], Declarations{})
	}
	x := c.Compile(text, Declarations{}, Bool)
	review := codec.Acquire()
	defer review.Release()
	body := fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","operation":"CREATE",`+
		`"userInfo":{"username":"u","extra":{"key":["hunter2"]}},"object":%s}}`, object)
	if err := review.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	in := NewInput(t.Context(), review)
	defer in.Release()
	e := c.Begin(in, celconfig.RuntimeCELCostBudget)
	defer e.End()
	return e.Explain(x, "validations[0].expression", hidden)
}

// lines returns an explanation as text.
func lines(x admission.ExpressionExplanation) string {
	var b strings.Builder
	b.WriteString(x.Value)
	for _, v := range x.Values {
		fmt.Fprintf(&b, "\n%s%s => %s", strings.Repeat(" ", v.Depth), v.Expression, v.Value)
		if v.Of != "" {
			b.WriteString(" of " + v.Of)
		}
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		if got := lines(explain(t, explainedObject, Hidden{}, text)); got != strings.Join(want, "\n") {
			t.Errorf("%s\ngot\n%s\nwant\n%s", text, got, strings.Join(want, "\n"))
		}
	}
	const containers = `[{"name":"a","image":"nginx:1"},{"name":"b","image":"nginx:latest"}]`
	const b = `{"name":"b","image":"nginx:latest"}`
	f("object.spec.replicas == 5", "true")
	f("object.spec.replicas <= 3", "false", "object.spec.replicas => 5")
	f("object.spec.replicas <= variables.most && object.metadata.name == 'web'", "false", // the second operand is true
		"object.spec.replicas <= variables.most => false", " object.spec.replicas => 5",
		" variables.most => 3 of object.metadata.name == 'web' ? 3 : 5",
		`  object.metadata.name == "web" => true`, `   object.metadata.name => "web"`)
	f("object.spec.replicas < 3 || object.spec.replicas > 7", "false",
		"object.spec.replicas < 3 => false", " object.spec.replicas => 5", "object.spec.replicas > 7 => false")
	f("variables.containers.all(c, c.image.endsWith(':1') || c.name == 'x')", "false",
		"variables.containers => "+containers+" of object.spec.containers", "c => "+b, `c.image.endsWith(":1") || c.name == "x" => false`,
		` c.image.endsWith(":1") => false`, `  c.image => "nginx:latest"`, ` c.name == "x" => false`, `  c.name => "b"`)
	f("object.spec.containers.exists(c, c.name == 'x')", "false", "object.spec.containers => "+containers)
	f("!object.spec.containers.exists(c, c.name == 'b')", "false", `object.spec.containers.exists(c, c.name == "b") => true`,
		" object.spec.containers => "+containers, " c => "+b, ` c.name == "b" => true`, `  c.name => "b"`)
	f("object.spec.containers.all(i, c, i < 1)", "false", "object.spec.containers => "+containers, "i => 1", "c => "+b, "i < 1 => false")
	f("object.spec.containers.map(c, c.name).all(n, n == 'a')", "false", `object.spec.containers.map(c, c.name) => ["a","b"]`,
		" object.spec.containers => "+containers, `n => "b"`, `n == "a" => false`)
	f("variables.containers[object.spec.replicas - 4].image == 'x'", "false",
		`variables.containers[object.spec.replicas - 4].image => "nginx:latest"`,
		" variables.containers => "+containers+" of object.spec.containers",
		" object.spec.replicas - 4 => 1", "  object.spec.replicas => 5")
	f("object.metadata.labels['app'] in ['a', 'b']", "false", `object.metadata.labels["app"] => "web"`)
	f("quantity(object.spec.memory).isGreaterThan(quantity('1Gi'))", "false",
		`quantity(object.spec.memory) => "500Mi"`, ` object.spec.memory => "500Mi"`, `quantity("1Gi") => "1Gi"`)
	f("object.?spec.paused.orValue(false) == true", "false", "object.?spec.paused.orValue(false) => false",
		" object.?spec.paused => optional.none()")
	f("object.spec.paused == object.spec.replicas", "error: no such key: paused", "object.spec.paused => error: no such key: paused",
		"object.spec.replicas => 5")
	f("object.spec.paused +", "error: compilation failed: ERROR: <input>:1:21: Syntax error: mismatched input '<EOF>' expecting "+
		"{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}",
		" | object.spec.paused +", " | ....................^")
}

// TestExplainHidesSecrets requires that no value that depends on a secret is in an explanation.
func TestExplainHidesSecrets(t *testing.T) {
	for _, text := range []string{
		"object.data.password == 'x'", "object.data['password'] == 'x'", "object.data['pass' + 'word'] == 'x'", "variables.password == 'x'",
		"variables.both == 'x'", "object.data.all(k, object.data[k] == 'x')", "object.data.map(k, object.data[k]).all(v, v.size() > 100)",
		"object.data.map(k, object.data[k]).all(v, v + '1' == 'x')", "[object.data.password].exists(p, p == 'x')", "object == {}",
		"dyn(object)['data'].password == 'x'", "object[['data', 'x'][0]].password == 'x'",
		"object.map(k, object[k]).all(v, v == 'x')", "int(object.data.password) == 1", "bytes(object.data.password) == b'x'",
		"dyn(request).userInfo.extra['key'][0] == 'x'", "request.userInfo.extra.all(k, request.userInfo.extra[k].all(v, v == 'x'))",
		"{'a': object.data.password}['a'] == 'x'", "object.?data.password.orValue('') == 'x'", "dyn(variables).password == 'x'",
		"[variables].all(v, v.password == 'x')",
	} {
		x := explain(t, explainedObject, Hidden{Object: [][]string{{"data"}}}, text)
		if got := lines(x); strings.Contains(got, "hunter2") || x.Value == "true" || len(x.Values) == 0 {
			t.Errorf("%s: got\n%s\nwant false with values, and none of the secret", text, got)
		}
	}
	got := lines(explain(t, explainedObject, Hidden{Object: [][]string{{"data"}}}, "size(object.data) > 1 && object.metadata.name == 'x'"))
	if want := "false\nsize(object.data) > 1 => false\n size(object.data) => 1\n  object.data => " + admission.HiddenValue; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestExplainIsBounded explains long expressions on large objects.
func TestExplainIsBounded(t *testing.T) {
	object := fmt.Sprintf(`{"spec":{"containers":[]},"metadata":{"name":"a"},"long":%q,"list":[%s0]}`,
		strings.Repeat("a\x1b", 50_000), strings.Repeat("1,", 10_000))
	for _, text := range []string{
		strings.Repeat("object.long == 'x' || ", 100) + "false",
		strings.Repeat("object.list.size() < 0 || ", 30) + strings.Repeat("object.list[0] == 5 || ", 100) + "false",
		strings.Repeat("(", 40) + "object.metadata.name" + strings.Repeat("+ 'a')", 40) + " == 'x'",
		"object.list.all(x, object.list.all(y, object.list.all(z, x + y + z < 3)))",
		"object.list.map(x, object.long).size() < 0",
	} {
		x := explain(t, object, Hidden{}, text)
		if x.Value != "false" && !strings.HasPrefix(x.Value, "error: ") {
			t.Errorf("%.80s: got %s, want false or an error", text, x.Value)
		}
		if bytes, err := json.Marshal(x.Values); err != nil || len(bytes) > 60*1000 || len(x.Values) > explainedValuesMax {
			t.Errorf("%.80s: got %d values in %d bytes, %v", text, len(x.Values), len(bytes), err)
		}
	}
}

// TestExplainGenerated requires that an explanation has the value of the expression.
func TestExplainGenerated(t *testing.T) {
	start := seed.Of(t)
	values := 0
	for i, name := range corpus.Names() {
		if i%4 != 0 {
			continue // explaining one takes 10 ms
		}
		var review struct {
			Request struct{ Object json.RawMessage }
		}
		if err := json.Unmarshal(corpus.MustRead(name), &review); err != nil {
			t.Fatal(err)
		}
		if len(review.Request.Object) == 0 || string(review.Request.Object) == "null" {
			continue
		}
		g := newGenerator(start+uint64(i), review.Request.Object)
		for range 4 {
			text := g.policy()
			x := new(Compiler).Compile(text, Declarations{}, Bool)
			e := new(Compiler).Begin(NewInput(t.Context(), reviewOf(t, review.Request.Object)), celconfig.RuntimeCELCostBudget)
			value, err, fatal := e.Evaluate(x)
			want := "error: "
			if err == nil && fatal == nil {
				want = fmt.Sprint(value.Value())
				values++
			}
			if got := e.Explain(x, "", Hidden{}); !strings.HasPrefix(got.Value, want) {
				t.Errorf("%s of %.300s\ngot %s, want %s", text, review.Request.Object, got.Value, want)
			}
		}
	}
	if values == 0 {
		t.Error("got no value from any expression")
	}
}
