package cel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
	"github.com/fastadmit/fastadmit/internal/policy/expressions"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// A libraryPolicy is evaluated with a budget, one expression after the other, in evaluations of its own.
type libraryPolicy struct {
	compiler    *Compiler
	expressions []*Expression
	budget      int64
	hides       bool // namespaceObject
	params      ref.Val
}

// libraryOf generates policies whose variables and expressions are often equal.
func libraryOf(r *rand.Rand, g *expressions.Generator) (all []*libraryPolicy) {
	kinds := [...]expressions.Kind{expressions.Any, expressions.Bool, expressions.String, expressions.List}
	for _, name := range [...]string{"a", "b", "c"} {
		g.Add(kinds[r.IntN(len(kinds))], "variables."+name)
	}
	g.Add(expressions.String, "namespaceObject.metadata.name")
	g.Add(expressions.Any, "params")
	pool := []string{"variables.a", "variables.b.size() > 0 || variables.a == null", "dyn(variables) == variables", "has(variables.a)",
		"variables.a == variables.b && variables.b == variables.c", "request.operation != '' || variables.c == variables.b",
		"object.metadata.name.startsWith(params)", "variables.?a.hasValue()"}
	for range 8 {
		pool = append(pool, g.Expression("", kinds[r.IntN(len(kinds))]))
	}
	pick := func() string { return pool[r.IntN(len(pool))] }
	definitions := [...][2]string{ // of the variables, by name
		{g.Expression("", expressions.Any), "object.metadata.?labels.orValue({'a': 'b'}).map(l, l + '/')"},
		{"variables.a", "object.metadata.name + string(variables.a)"}, {"variables.b == null || variables.a == null", "object.nope"},
		{"'replaced'", "variables.a"},
	}
	for range 6 {
		p := &libraryPolicy{compiler: NewCompiler(true), budget: celconfig.RuntimeCELCostBudget, hides: r.IntN(3) == 0}
		p.compiler.InterpreterOnly = r.IntN(6) == 0
		if r.IntN(3) == 0 {
			p.budget = r.Int64N(60)
		}
		d := Declarations{Params: r.IntN(2) == 0, Authorizer: r.IntN(2) == 0}
		if d.Params {
			p.params = types.String(fmt.Sprint("web", r.IntN(2)))
		}
		for i, name := range []string{"a", "b", "c", "a"}[:3+r.IntN(8)/7] {
			p.compiler.AddVariable(name, definitions[i][r.IntN(2)], d)
		}
		for range 1 + r.IntN(5) {
			p.expressions = append(p.expressions, p.compiler.Compile(pick(), d, Any))
		}
		all = append(all, p)
	}
	return all
}

// outcomesOf evaluates a policy, and returns everything that can be seen of it.
func (p *libraryPolicy) outcomesOf(in *Input) (all []string) {
	in.Params, in.HidesNamespace = p.params, p.hides
	before := in.Spent
	for range 2 { // as the validations and the messages
		e := p.compiler.Begin(in, p.budget)
		for _, x := range p.expressions {
			value, err, fatal := e.Evaluate(x)
			all = append(all, fmt.Sprintf("%s: %v, %v, %v, %d left, %d bytes",
				x.Text, shownPlain(value), err, fatal, e.Remaining, e.limits.Bytes()))
			if fatal != nil {
				break
			}
		}
		e.End()
	}
	return append(all, fmt.Sprint(in.Spent-before))
}

// shownPlain returns a value as text, without addresses. Of the types of libraries, it returns only the name.
func shownPlain(value ref.Val) string {
	var b strings.Builder
	switch v := value.(type) {
	case nil, types.Null, types.Bool, types.Int, types.Uint, types.Double, types.String:
		return fmt.Sprintf("%#v", v)
	case *variables:
		return "variables"
	case traits.Mapper:
		var all []string
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			all = append(all, shownPlain(key)+": "+shownPlain(v.Get(key)))
		}
		slices.Sort(all)
		return fmt.Sprint(all)
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			b.WriteString(shownPlain(it.Next()) + ", ")
		}
		return "[" + b.String() + "]"
	}
	return value.Type().TypeName()
}

// namespaced is a Cluster whose namespaceObject has a name.
type namespaced struct{}

func (namespaced) NamespaceObject() ref.Val {
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{"metadata": map[string]any{"name": "shop"}})
}

func (namespaced) Authorizer() (authorizer, requestResource ref.Val) {
	return types.NullValue, types.NullValue
}

func (namespaced) Resources() Resources { return nil }

// TestSharedGenerated evaluates generated policies that share parts on one Input, and each on an Input of its
// own. Both have the same values, errors and costs, and end where their budget ends.
func TestSharedGenerated(t *testing.T) {
	start, names := seed.Of(t), corpus.Names()
	repeated, fatal := 0, 0
	for i := range *cases {
		r := rand.New(rand.NewPCG(start, uint64(i)))
		body := corpus.MustRead(names[r.IntN(len(names))])
		var content struct{ Request map[string]any }
		if err := json.Unmarshal(body, &content); err != nil {
			t.Fatal(err)
		}
		objects := map[string]any{"object": content.Request["object"], "oldObject": content.Request["oldObject"]}
		all := libraryOf(r, expressions.New(r, objects))
		inputOf := func() *Input {
			in := NewInput(t.Context(), reviewOfBody(t, body))
			in.Cluster = namespaced{}
			return in
		}
		together := inputOf()
		for _, p := range all {
			known := len(together.remembered)
			got, want := p.outcomesOf(together), p.outcomesOf(inputOf())
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("on %.200s\ngot  %s\nwant %s", body, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if text := strings.Join(want, "\n"); strings.Contains(text, "out of cost budget") {
				fatal++
			}
			if known > 0 && len(together.remembered) == known {
				repeated++
			}
		}
		together.Release()
	}
	if n := *cases * 6; repeated < n/20 || fatal < n/20 {
		t.Errorf("got %d policies of which all is known, and %d out of budget, of %d; want more", repeated, fatal, n)
	}
}

// TestShared expects equal expressions to be evaluated once, and others each.
func TestShared(t *testing.T) {
	f := func(want bool, first, second func(c *Compiler) *Expression) {
		t.Helper()
		in := newInput(t, t.Context())
		in.Cluster = namespaced{}
		var all [2]*Expression
		for i, compile := range []func(c *Compiler) *Expression{first, second} {
			c := NewCompiler(true)
			all[i] = compile(c)
			if _, err, fatal := c.Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(all[i]); err != nil || fatal != nil {
				t.Fatal(err, fatal)
			}
		}
		if got := all[0].shared != nil && all[0].shared == all[1].shared; got != want {
			t.Errorf("%s and %s: shared: %v, want %v", all[0].Text, all[1].Text, got, want)
		}
	}
	text := func(text string, variables ...string) func(*Compiler) *Expression {
		return func(c *Compiler) *Expression {
			for i, v := range variables {
				c.AddVariable(string(rune('a'+i)), v, Declarations{Authorizer: true, Params: true})
			}
			return c.Compile(text, Declarations{Authorizer: true, Params: true}, Any)
		}
	}
	f(true, text("object.kind"), text("object.kind"))
	f(false, text("object.kind"), text("object.spec"))
	f(true, text("variables.a", "object.kind"), text("variables.a", "object.kind", "object.spec"))
	f(false, text("variables.a", "object.kind"), text("variables.a", "object.spec"))
	f(true, text("variables.b", "object.kind", "variables.a"), text("variables.b", "object.kind", "variables.a"))
	f(false, text("variables.b", "object.kind", "variables.a"), text("variables.b", "object.spec", "variables.a"))
	f(true, text("variables.b + variables.a", "'a'", "'b'"), text("variables.b + variables.a", "'a'", "'b'"))
	f(false, text("variables.a", "params"), text("variables.a", "params"))
	f(false, text("params"), text("params"))
	f(false, text("dyn(authorizer.requestResource) == null"), text("dyn(authorizer.requestResource) == null"))
	f(false, text("has(variables.a)", "1"), text("has(variables.a)", "1"))
	f(false, text("dyn(variables) != null"), text("dyn(variables) != null"))
	f(false, text("object.kind"), func(c *Compiler) *Expression {
		c.InterpreterOnly = true
		return c.Compile("object.kind", Declarations{}, Any)
	})
	f(false, text("object.kind"), func(c *Compiler) *Expression {
		c.Version = admission.Oldest()
		return c.Compile("object.kind", Declarations{}, Any)
	})
	f(false, text("'a'"), func(c *Compiler) *Expression { return c.Compile("'a'", Declarations{PatchTypes: true}, Any) })
}

// sharedPair compiles an expression twice, so that its result is remembered.
func sharedPair(t *testing.T, c *Compiler, text string) *Expression {
	t.Helper()
	x := c.Compile(text, Declarations{}, Any)
	if again := c.Compile(text, Declarations{}, Any); x.Err != nil || again.shared != x.shared || x.shared == nil {
		t.Fatalf("%s: got %v, not shared", text, x.Err)
	}
	return x
}

// TestRememberedVariables expects a repeated expression to cost what its evaluation costs: with the variables that
// it used, and without those that it did not.
func TestRememberedVariables(t *testing.T) {
	for _, text := range []string{"object.kind == '' || size(variables.v) > 0", "object.kind != '' || size(variables.v) > 0"} {
		in := newInput(t, t.Context())
		var left []int64
		for range 3 {
			c := NewCompiler(true)
			c.AddVariable("v", "object.spec.containers.map(c, c.name)", Declarations{})
			e := c.Begin(in, celconfig.RuntimeCELCostBudget)
			if _, err, fatal := e.Evaluate(sharedPair(t, c, text)); err != nil || fatal != nil {
				t.Fatal(err, fatal)
			}
			left = append(left, e.Remaining)
		}
		if left[0] != left[1] || left[0] != left[2] {
			t.Errorf("%s: got %d left, want the same", text, left)
		}
	}
}

// TestRememberedEdited edits the object between two evaluations.
func TestRememberedEdited(t *testing.T) {
	in, c := newInput(t, t.Context()), NewCompiler(false)
	x := sharedPair(t, c, "object.metadata.labels['app']")
	for _, want := range []string{"web", "other"} {
		if want != "web" {
			in.review.Object.SetString(want, "metadata", "labels", "app")
		}
		if got, err, fatal := c.Begin(in, 100).Evaluate(x); got != types.String(want) || err != nil || fatal != nil {
			t.Errorf("got %v, %v, %v, want %s", got, err, fatal, want)
		}
	}
}

// TestRememberedInterrupted ends the context during the first evaluation of an expression.
func TestRememberedInterrupted(t *testing.T) {
	bothEvaluators(t, func(t *testing.T, c *Compiler) {
		x := sharedPair(t, c, "object.texts.all(x, object.texts.exists(y, y == 't150'))")
		ctx, cancel := context.WithDeadline(t.Context(), time.Now())
		defer cancel()
		in := NewInput(ctx, reviewOf(t, manyOf(300)))
		if _, err, _ := c.Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(x); err == nil || len(in.remembered) != 0 {
			t.Errorf("got %v and %d results, want an error and none", err, len(in.remembered))
		}
	})
}

// TestRememberedMemory expects large values not to be kept, those that are kept to be charged, and the
// review to be asked for the memory of both.
func TestRememberedMemory(t *testing.T) {
	bothEvaluators(t, func(t *testing.T, c *Compiler) {
		in := NewInput(t.Context(), reviewOf(t, []byte(`{"kind":"X"}`)))
		made := func(elements int) (bytes int, kept bool) {
			x := sharedPair(t, c, fmt.Sprintf("lists.range(%d).map(i, 'a')", elements))
			e := c.Begin(in, celconfig.RuntimeCELCostBudget)
			defer e.End()
			for range 2 {
				if _, err, fatal := e.Evaluate(x); err != nil || fatal != nil {
					t.Fatal(err, fatal)
				}
			}
			_, kept = in.remembered[x.shared]
			return e.limits.Bytes() / 2, kept
		}
		one, _ := made(1)
		two, _ := made(2)
		most := 1 + (calls.KeptMax-one)/(two-one) // elements of a list that fits
		in.forget()
		if bytes, kept := made(most + 1); kept || in.kept != 0 {
			t.Errorf("a value of %d bytes is kept, want none with more than %d", bytes, calls.KeptMax)
		}
		in.forget()
		if bytes, kept := made(most); !kept || in.kept != bytes {
			t.Errorf("got %d bytes kept: %v, want %d", in.kept, kept, bytes)
		}
		if _, kept := made(most - 1); kept {
			t.Error("a second list is kept")
		}
		if e := c.Begin(in, 1); e.limits.Kept != in.kept {
			t.Errorf("got %d bytes beside the evaluation, want %d", e.limits.Kept, in.kept)
		}
	})
}

// TestRememberedExhausted repeats a small result in an evaluation that has nearly exceeded its memory: then it
// is evaluated.
func TestRememberedExhausted(t *testing.T) {
	in, c := newInput(t, t.Context()), NewCompiler(false)
	x := sharedPair(t, c, "object.spec.containers.map(c, c.name)")
	first := c.Begin(in, celconfig.RuntimeCELCostBudget)
	if _, err, fatal := first.Evaluate(x); err != nil || fatal != nil {
		t.Fatal(err, fatal)
	}
	made := first.limits.Bytes()
	for left, want := range map[int]error{made: nil, made - 1: errOutOfMemory, 0: errOutOfMemory} {
		e := c.Begin(in, celconfig.RuntimeCELCostBudget)
		e.limits.Take(calls.BytesMax - left)
		if _, _, fatal := e.Evaluate(x); !errors.Is(fatal, want) {
			t.Errorf("with %d bytes left: got %v, want %v", left, fatal, want)
		}
	}
}

// TestForgotten expects no trace of policies that do not exist any more.
func TestForgotten(t *testing.T) {
	const text = "object.kind == 'forgotten'"
	sharedPair(t, NewCompiler(false), text)
	isKnown := func() bool {
		interned.Lock()
		defer interned.Unlock()
		for key := range interned.all {
			if strings.Contains(key, text) {
				return true
			}
		}
		return false
	}
	for range 1000 {
		if runtime.GC(); !isKnown() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the expression is known after its policies are gone")
}

// TestRedefined uses a variable that another one of its name replaces after an equal expression was evaluated.
func TestRedefined(t *testing.T) {
	in := NewInput(t.Context(), reviewOf(t, []byte(`{"kind":"X"}`)))
	for _, want := range []string{"a", "b"} {
		c := NewCompiler(true)
		c.AddVariable("v", "'a'", Declarations{})
		x := c.Compile("variables.v", Declarations{}, Any)
		if want == "b" {
			c.AddVariable("v", "'b'", Declarations{})
		}
		c.Compile("variables.v", Declarations{}, Any)
		if got, err, fatal := c.Begin(in, 100).Evaluate(x); got != types.String(want) || err != nil || fatal != nil {
			t.Errorf("got %v, %v, %v, want %s", got, err, fatal, want)
		}
	}
}
