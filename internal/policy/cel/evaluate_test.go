package cel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
)

func newInput(t testing.TB, ctx context.Context) *Input {
	t.Helper()
	review := new(codec.Review)
	if err := review.Decode(corpus.MustRead("pods-create-v1-1.json")); err != nil {
		t.Fatal(err)
	}
	return NewInput(ctx, review)
}

// TestBudget evaluates with a budget that is one too small, just enough, and one more.
func TestBudget(t *testing.T) {
	c := NewCompiler(true)
	c.AddVariable("names", "object.spec.containers.map(c, c.name)", Declarations{})
	x := c.Compile("variables.names.all(n, n != '') && size(variables.names) > 0", Declarations{}, Bool)
	if x.Err != nil {
		t.Fatal(x.Err)
	}
	in := newInput(t, t.Context())
	measured := c.Begin(in, celconfig.RuntimeCELCostBudget)
	if value, err, fatal := measured.Evaluate(x); value != types.True || err != nil || fatal != nil {
		t.Fatalf("got %v, %v, %v, want true", value, err, fatal)
	}
	cost := celconfig.RuntimeCELCostBudget - measured.Remaining
	for _, budget := range [...]int64{cost - 1, cost, cost + 1} {
		e, before := c.Begin(in, budget), in.Spent
		_, _, fatal := e.Evaluate(x)
		if fatal == nil && in.Spent != before+cost {
			t.Errorf("budget %d of a cost of %d: got %d spent after %d", budget, cost, in.Spent, before)
		}
		if exceeded := errors.Is(fatal, apiservercel.ErrOutOfBudget); exceeded != (budget < cost) {
			t.Errorf("budget %d of a cost of %d: got %v", budget, cost, fatal)
		}
		if fatal == nil && e.Remaining != budget-cost {
			t.Errorf("budget %d of a cost of %d: got %d left", budget, cost, e.Remaining)
		}
	}
}

// TestVariablesOnce expects a variable to be evaluated and charged once.
func TestVariablesOnce(t *testing.T) {
	c := NewCompiler(true)
	c.AddVariable("v", "lists.range(100).map(i, i)", Declarations{})
	once := c.Compile("size(variables.v) == 100", Declarations{}, Bool)
	in := newInput(t, t.Context())
	e := c.Begin(in, celconfig.RuntimeCELCostBudget)
	var spent [2]int64
	for i := range spent {
		before := e.Remaining
		if value, err, fatal := e.Evaluate(once); value != types.True || err != nil || fatal != nil {
			t.Fatalf("got %v, %v, %v, want true", value, err, fatal)
		}
		spent[i] = before - e.Remaining
	}
	if spent[1] >= spent[0] || spent[1] > 10 {
		t.Errorf("got costs %v, want the variable in the first only", spent)
	}
}

// TestInterrupted ends a loop with its context.
func TestInterrupted(t *testing.T) {
	x := new(Compiler).Compile("lists.range(1000).all(i, i >= 0)", Declarations{}, Bool)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err, fatal := new(Compiler).Begin(newInput(t, ctx), celconfig.RuntimeCELCostBudget).Evaluate(x)
	if fatal != nil || err == nil || !strings.Contains(err.Error(), "operation interrupted") {
		t.Errorf("got %v, %v, want an interruption", err, fatal)
	}
}

// TestInterruptedOften expects the context to be checked as often as in cel-go, also when an
// expression is evaluated again, and when the interpreter starts over.
func TestInterruptedOften(t *testing.T) {
	env, err := sharedEnv(Declarations{}, admission.Newest())
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, n := range []int{60, celconfig.CheckFrequency - 1, celconfig.CheckFrequency, celconfig.CheckFrequency + 1} {
		for _, expression := range []string{
			"object.list.all(x, x != '')", "lists.range(size(object.list)).all(i, i >= 0)",
			"object.list.all(x, x != '') && object.kind == object.nope",
		} {
			ast, issues := env.Compile(expression)
			if issues != nil {
				t.Fatal(issues)
			}
			program, err := env.Program(ast, celgo.InterruptCheckFrequency(celconfig.CheckFrequency))
			if err != nil {
				t.Fatal(err)
			}
			e := new(Compiler).Begin(
				NewInput(canceled, reviewOf(t, fmt.Appendf(nil, `{"kind":"X","list":%s}`, numbered(n)))), celconfig.RuntimeCELCostBudget,
			)
			_, _, want := program.ContextEval(canceled, decoded{e.view.Object.Value()})
			x := new(Compiler).Compile(expression, Declarations{}, Bool)
			for range 2 {
				if _, err, fatal := e.Evaluate(x); fatal != nil || (err == nil) != (want == nil) ||
					want != nil && !strings.HasSuffix(err.Error(), strings.TrimSuffix(want.Error(), ": context canceled")) {
					t.Errorf("%s of %d elements: got %v, %v, want %v", expression, n, err, fatal, want)
				}
			}
		}
	}
}

// TestInterruptedVariable expects that the loop of a variable does not count for the loop
// that uses the variable.
func TestInterruptedVariable(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	most := numbered(celconfig.CheckFrequency - 1)
	for _, variable := range []string{"object.list.all(x, x != '')", "lists.range(size(object.list)).all(i, i >= 0)"} {
		c := NewCompiler(true)
		c.AddVariable("v", variable, Declarations{})
		for _, expression := range []string{"object.list.all(x, variables.v)", "lists.range(size(object.list)).all(x, variables.v)"} {
			x := c.Compile(expression, Declarations{}, Bool)
			e := c.Begin(NewInput(canceled, reviewOf(t, fmt.Appendf(nil, `{"kind":"X","list":%s}`, most))), celconfig.RuntimeCELCostBudget)
			if value, err, fatal := e.Evaluate(x); value != types.True || err != nil || fatal != nil {
				t.Errorf("%s of %s: got %v, %v, %v", expression, variable, value, err, fatal)
			}
		}
	}
}

// TestClosureStops expects a closure to stop by itself when the cost exceeds the limit.
func TestClosureStops(t *testing.T) {
	needsClosures(t)
	x := new(Compiler).Compile("object.long.contains(object.long)", Declarations{}, Bool)
	e := new(Compiler).Begin(NewInput(t.Context(), reviewOf(t, fmt.Appendf(nil, `{"kind":"X","long":%q}`, strings.Repeat("a", 11_000)))), 0)
	_, wantCost, _, want := e.interpret(x)
	value, cost, ok, err := x.closure.Evaluate(&e.closures, celconfig.PerCallLimit)
	if value != nil || cost != wantCost || !ok || !isCostLimit(err) || !isCostLimit(want) {
		t.Errorf("got %v, cost %d, %v, %v, want cost %d, %v", value, cost, ok, err, wantCost, want)
	}
}

// TestCompilePanics compiles an expression on which cel-go panics.
func TestCompilePanics(t *testing.T) {
	x := new(Compiler).Compile("[?object.x]", Declarations{}, Any)
	if x.Err == nil || !strings.HasPrefix(x.Err.Detail, "cannot compile the expression: ") {
		t.Errorf("got %v, want an error", x.Err)
	}
}

// TestEnvironments expects each environment to be made once: one for all policies without
// variables, and one for each other policy.
func TestEnvironments(t *testing.T) {
	for name, env := range map[string]func(Declarations) (*celgo.Env, error){
		"shared": NewCompiler(false).env, "own": NewCompiler(true).env,
	} {
		var first, again [2]*celgo.Env
		for _, got := range []*[2]*celgo.Env{&first, &again} {
			for i, d := range []Declarations{{}, {Params: true}} {
				var err error
				if got[i], err = env(d); err != nil {
					t.Fatal(err)
				}
			}
		}
		if first != again || first[0] == first[1] {
			t.Errorf("%s: got %v, and then %v", name, first, again)
		}
	}
	if one, _ := NewCompiler(false).env(Declarations{}); one == nil {
		t.Error("got no environment")
	} else if other, _ := NewCompiler(false).env(Declarations{}); other != one {
		t.Error("another policy has another environment")
	}
}

// TestHidesAuthorizer expects expressions that check permissions to fail where they are not
// allowed.
func TestHidesAuthorizer(t *testing.T) {
	a := newAsked(t, review("UPDATE", `{"kind":"X"}`, "null"))
	for _, expression := range []string{
		"authorizer.group('').resource('pods').check('get').allowed() in [true, false]",
		"authorizer.requestResource.check('get').allowed() in [true, false]",
	} {
		x := NewCompiler(false).Compile(expression, Declarations{Authorizer: true}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		for _, test := range []struct {
			cluster Cluster
			hides   bool
		}{{someCluster{a, nil}, false}, {someCluster{a, nil}, true}, {nil, false}} {
			in := NewInput(t.Context(), reviewOfBody(t, a.body))
			in.Cluster, in.HidesAuthorizer = test.cluster, test.hides
			fails := test.cluster == nil || test.hides
			value, err, fatal := NewCompiler(false).Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(x)
			if failed := err != nil && strings.Contains(
				err.Error(), "no such attribute",
			); fatal != nil || failed != fails || !fails && value != types.True {
				t.Errorf("%s, %+v: got %v, %v, %v", expression, test, value, err, fatal)
			}
		}
	}
}

// TestNull tests variables that are null, with closures and with the interpreter.
func TestNull(t *testing.T) {
	needsClosures(t)
	a := newAsked(t, review("DELETE", "null", "null"))
	for _, hides := range []bool{false, true} {
		in := NewInput(t.Context(), reviewOfBody(t, a.body))
		if in.HidesNamespace = hides; hides {
			in.Cluster = someCluster{a, map[string]any{"kind": "Namespace"}}
		}
		for _, name := range []string{"object", "oldObject", "params", "namespaceObject"} {
			x := NewCompiler(false).Compile(name+" == null", Declarations{Params: true}, Bool)
			if x.Err != nil {
				t.Fatal(x.Err)
			}
			e := NewCompiler(false).Begin(in, 0)
			itself := NewCompiler(false).Compile(name, Declarations{Params: true}, Any)
			value, _, ok, err := itself.closure.Evaluate(&e.closures, celconfig.PerCallLimit)
			if value != types.NullValue || !ok || err != nil {
				t.Errorf("closure of %s, hidden %v: got %v, %v, %v", name, hides, value, ok, err)
			}
			if value, _, ok, err := x.closure.Evaluate(&e.closures, celconfig.PerCallLimit); value != types.True || !ok || err != nil {
				t.Errorf("closure of %s, hidden %v: got %v, %v, %v", x.Text, hides, value, ok, err)
			}
			if value, _, _, err := e.interpret(x); value != types.True || err != nil {
				t.Errorf("%s, hidden %v: got %v, %v", x.Text, hides, value, err)
			}
		}
		if value, found := NewCompiler(false).Begin(in, 0).ResolveName("none"); value != nil || found {
			t.Errorf("got %v, %v of a variable that there is not", value, found)
		}
	}
}

// TestEdits expects expressions to see the edits that were made before Begin.
func TestEdits(t *testing.T) {
	c := new(Compiler)
	x := c.Compile("object.list.all(l, object.kind == 'X')", Declarations{}, Bool)
	if x.Err != nil {
		t.Fatal(x.Err)
	}
	review := reviewOf(t, []byte(`{"kind":"Y","list":`+numbered(2*lookups)+`,"pad":"`+strings.Repeat(" ", largeText)+`"}`))
	in := NewInput(t.Context(), review)
	for _, kind := range []string{"X", "Y"} {
		review.Object.SetString(kind, "kind")
		for range 2 {
			value, err, fatal := c.Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(x)
			if value != types.Bool(kind == "X") || err != nil || fatal != nil {
				t.Errorf("got %v, %v, %v of the kind %s", value, err, fatal, kind)
			}
		}
	}
}

// TestVariableUsesItself tests a variable that another one with the same name has replaced.
func TestVariableUsesItself(t *testing.T) {
	c := NewCompiler(true)
	c.AddVariable("a", "1", Declarations{})
	c.AddVariable("b", "variables.a + 1", Declarations{})
	later := c.Compile("variables.b == 3", Declarations{}, Bool)
	c.AddVariable("a", "2", Declarations{})
	in := newInput(t, t.Context())
	if value, err, fatal := c.Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(later); value != types.True || err != nil || fatal != nil {
		t.Errorf("got %v, %v, %v, want the later a", value, err, fatal)
	}
	c.AddVariable("a", "variables.b", Declarations{})
	_, err, _ := c.Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(later)
	if err == nil || !strings.Contains(err.Error(), `composited variable "b" uses itself`) {
		t.Errorf("got %v, want an error", err)
	}
}

// TestVariableFails tests a variable that fails at the beginning of a path: the expression
// has that error, and the path does not count as missing.
func TestVariableFails(t *testing.T) {
	needsClosures(t)
	c := NewCompiler(true)
	c.AddVariable("v", "object.nope.nope", Declarations{})
	in := newInput(t, t.Context())
	for _, expression := range []string{
		"variables.v[?0].hasValue()", "variables.v.?x.orValue(1) == 1", "has(variables.v.x)", "has((object.nope.x.?y.orValue([])).z)",
	} {
		x := c.Compile(expression, Declarations{}, Bool)
		if x.Err != nil || x.closure == nil {
			t.Fatalf("%s: got error %v, want a closure", expression, x.Err)
		}
		value, err, fatal := c.Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(x)
		if err == nil || fatal != nil || !strings.Contains(err.Error(), "no such key: nope") {
			t.Errorf("%s: got %v, %v, %v, want no such key: nope", expression, value, err, fatal)
		}
	}
}

// TestUnknownCost tests an expression of unknown cost, because it has no program.
func TestUnknownCost(t *testing.T) {
	x := &Expression{Text: "none", program: &program{plan: func() (celgo.Program, error) { return nil, errors.New("it has none") }}}
	c := NewCompiler(true)
	c.variables = []variable{{"v", x}}
	in := newInput(t, t.Context())
	value, err, fatal := c.Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(x)
	if value != nil || err != nil || fatal == nil || !strings.Contains(
		fatal.Error(), "runtime cost could not be calculated for expression: none",
	) {
		t.Errorf("got %v, %v, %v", value, err, fatal)
	}
	e := c.Begin(in, celconfig.RuntimeCELCostBudget)
	if got := fmt.Sprint(e.variables.value(0, &c.variables[0])); got != `unable to calculate cost of variable "v"` {
		t.Errorf("got %s", got)
	}
}
