package cel

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestMatchesCharged expects the function matches and the method of that name to cost as much as the lengths of the text
// and the regular expression require, as in cel-go.
func TestMatchesCharged(t *testing.T) {
	text := fmt.Appendf(nil, `{"kind":"X","long":%q,"pattern":%q}`, strings.Repeat("b", 500_000), "^"+strings.Repeat("b?", 60)+"a")
	for _, expression := range []string{"matches(object.long, object.pattern)", "object.long.matches(object.pattern)"} {
		want := "<nil> expression '" + expression + "' resulted in error: operation cancelled: actual cost limit exceeded"
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		e := new(Compiler).Begin(NewInput(t.Context(), reviewOf(t, text)), celconfig.RuntimeCELCostBudget)
		value, err, fatal := e.Evaluate(x)
		if got := fmt.Sprint(value, " ", err); got != want || fatal != nil {
			t.Errorf("%s: got %s, %v, want %s", expression, got, fatal, want)
		}
	}
}

// TestCostsByRelease expects both evaluators to count what a call costs in each release. The costs are
// those of cel-go v0.29.2 and v0.26.0 (interpreter/runtimecost.go costCall), with 2 for object.long.
func TestCostsByRelease(t *testing.T) {
	object := fmt.Appendf(nil, `{"kind":"X","long":%q}`, strings.Repeat("b", 500))
	for expression, want := range map[string][2]int64{ // since 1.37, and before
		"object.long.startsWith('b')":         {2 + 1, 2 + 50},
		"object.long.endsWith('bbbbbbbbbbb')": {2 + 2, 2 + 50},
		"matches(object.long, 'b.b')":         {2 + 51, 2 + 1},
		"object.long.matches('b.b')":          {2 + 51, 2 + 51},
		"object.long.contains('b')":           {2 + 50, 2 + 50},
		"object.long < 'b' || true":           {2 + 1, 2 + 1},
	} {
		for i, name := range []string{"1.37", "1.36"} {
			for _, interpreted := range []bool{false, true} {
				c := NewCompiler(false)
				c.Version, c.InterpreterOnly = release(t, name), interpreted
				x := c.Compile(expression, Declarations{}, Bool)
				if x.Err != nil {
					t.Fatal(x.Err)
				}
				e := c.Begin(NewInput(t.Context(), reviewOf(t, object)), celconfig.RuntimeCELCostBudget)
				value, err, fatal := e.Evaluate(x)
				got := celconfig.RuntimeCELCostBudget - e.Remaining
				if value != types.True || err != nil || fatal != nil || got != want[i] {
					t.Errorf("%s in %s, interpreter %v: got %v, cost %d, %v, %v, want true, cost %d", expression, name, interpreted,
						value, got, err, fatal, want[i])
				}
			}
		}
	}
}

// TestMatchesUncharged expects the function matches to end with the context where it costs nothing for the text.
func TestMatchesUncharged(t *testing.T) {
	text := fmt.Appendf(nil, `{"kind":"X","long":%q,"pattern":%q}`, strings.Repeat("b", 500_000), "^"+strings.Repeat("b?", 60)+"a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := NewCompiler(false)
	c.Version = release(t, "1.36")
	x := c.Compile("matches(object.long, object.pattern)", Declarations{}, Bool)
	if x.Err != nil {
		t.Fatal(x.Err)
	}
	e := c.Begin(NewInput(ctx, reviewOf(t, text)), celconfig.RuntimeCELCostBudget)
	if value, err, fatal := e.Evaluate(x); fatal == nil && err == nil {
		t.Errorf("got %v, want an error", value)
	}
}

// TestRangeByRelease expects the list of a negative number to be empty until 1.36, and an error since 1.37 (cel-go ext/lists.go
// genRange).
func TestRangeByRelease(t *testing.T) {
	for name, want := range map[string]string{"1.36": "true <nil>", "1.37": "size must be non-negative, got -2"} {
		for _, interpreted := range []bool{false, true} {
			c := NewCompiler(false)
			c.Version, c.InterpreterOnly = release(t, name), interpreted
			x := c.Compile("lists.range(-2).size() == 0 && lists.range(size(object.kind) - 3) == []", Declarations{}, Bool)
			if x.Err != nil {
				t.Fatal(x.Err)
			}
			e := c.Begin(NewInput(t.Context(), reviewOf(t, []byte(`{"kind":"X"}`))), celconfig.RuntimeCELCostBudget)
			value, err, fatal := e.Evaluate(x)
			if got := fmt.Sprint(value, " ", err); !strings.Contains(got, want) || fatal != nil {
				t.Errorf("in %s, interpreter %v: got %s, %v, want %s", name, interpreted, got, fatal, want)
			}
		}
	}
}

// TestLastIndexOfInEmpty searches in empty strings, in which cel-go of Kubernetes 1.33 finds no place for any text.
func TestLastIndexOfInEmpty(t *testing.T) {
	bothEvaluators(t, func(t *testing.T, c *Compiler) {
		f := func(version, expression, want string) {
			t.Helper()
			c.Version = release(t, version)
			e := begun(t, c, 1)
			defer e.End()
			value, err, fatal := e.Evaluate(compiledWith(t, c, expression))
			if got := fmt.Sprint(value, err, fatal); got != want {
				t.Errorf("%s, %s: got %s, want %s", version, expression, got, want)
			}
		}
		failed := func(expression string) string {
			return "<nil> expression '" + expression + "' resulted in error: index out of range: -1 <nil>"
		}
		const empty = "(object.kind == 'Y' ? 'a' : '')"
		f("1.33", empty+".lastIndexOf('a')", failed(empty+".lastIndexOf('a')"))
		f("1.33", "dyn("+empty+").lastIndexOf('a')", failed("dyn("+empty+").lastIndexOf('a')"))
		f("1.33", empty+".lastIndexOf('')", "0 <nil> <nil>")
		f("1.33", "object.kind.lastIndexOf('XX')", "-1 <nil> <nil>")
		f("1.34", empty+".lastIndexOf('a')", "-1 <nil> <nil>")
		f("1.37", empty+".lastIndexOf('a')", "-1 <nil> <nil>")
	})
}
