package cel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/cel-go/common/types"
)

// addShared adds variables of which each has the one before twice, and one that is in itself.
func addShared(t *testing.T, c *Compiler) (last int) {
	t.Helper()
	last = 60
	add := func(name, text string) {
		if x := c.AddVariable(name, text, Declarations{PatchTypes: true}); x.Err != nil {
			t.Fatal(x.Err)
		}
	}
	for i := range last + 1 {
		for _, kind := range []struct{ name, first, next string }{
			{"list", "['a', 'b']", "[%[1]s, %[1]s]"}, {"empty", "[]", "[%[1]s, %[1]s]"}, {"map", "{'a': 'b'}", "{'a': %[1]s, 'b': %[1]s}"},
			{"sum", "['a', 'b']", "%[1]s + %[1]s"}, {"optional", "optional.of('a')", "optional.of([%[1]s, %[1]s])"},
		} {
			text := kind.first
			if i > 0 {
				text = fmt.Sprintf(kind.next, fmt.Sprintf("variables.%s%d", kind.name, i-1))
			}
			add(fmt.Sprint(kind.name, i), text)
		}
	}
	add("itself", "['a'].map(e, variables)")
	return last
}

// TestSharedParts has values with so many parts that nothing could read them, or that are in themselves. In-tree, the
// expressions run for ever, or end kube-apiserver.
func TestSharedParts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and says nothing new with poisoned memory")
	}
	bothEvaluators(t, func(t *testing.T, of *Compiler) {
		c := NewCompiler(true)
		c.InterpreterOnly = of.InterpreterOnly
		last := addShared(t, c)
		f := func(expression, name string, n int, isOver bool) {
			t.Helper()
			text := fmt.Sprintf(expression, fmt.Sprint("variables.", name, n))
			if name == "itself" {
				text = fmt.Sprintf(expression, "variables.itself")
			}
			x := c.Compile(text, Declarations{PatchTypes: true}, Any)
			if x.Err != nil {
				t.Fatalf("%s: %v", text, x.Err)
			}
			value, err, fatal := begun(t, c, 1).Evaluate(x)
			if isOver && !errors.Is(fatal, errOutOfMemory) || !isOver && (err != nil || fatal != nil || value == types.False) {
				t.Errorf("%s: got %.50v, %.200v, %v, want it out of memory: %v", text, value, err, fatal, isOver)
			}
		}
		for _, expression := range []string{
			"dyn(%s).indexOf(1) == -1", "dyn(%s).lastIndexOf(1) == -1", "!dyn(%s).includes(1)",
		} {
			for _, name := range []string{"list", "empty", "map", "sum"} {
				if name != "map" { // it has no such functions
					f(expression, name, 5, false)
				}
				f(expression, name, last, true)
			}
			f(expression, "itself", 0, true)
		}
		for _, expression := range []string{
			"%[1]s == dyn(%[1]s)", "!(%[1]s != dyn(%[1]s))", "%[1]s in [%[1]s]", "[%[1]s, %[1]s].distinct().size() == 1",
			"sets.contains([%[1]s], [%[1]s])", "sets.equivalent([%[1]s], [%[1]s])", "sets.intersects([%[1]s], [%[1]s])",
			"[%[1]s].includes(%[1]s)", "{'a': %[1]s} == {'a': dyn(%[1]s)}",
		} {
			for _, name := range []string{"list", "empty", "map", "optional", "sum"} {
				f(expression, name, 5, false)
				f(expression, name, last, true)
			}
		}
		f("%[1]s == %[1]s", "itself", 0, false) // the variables are equal, so nobody looks into them
		f("%[1]s in [%[1]s]", "itself", 0, false)
		for _, name := range []string{"list", "empty", "map", "sum"} {
			f("'%%s'.format([%s]) != ''", name, 5, false)
			f("'%%s'.format([%s]) != ''", name, last, true)
		}
		f("dyn(%s).sort().size() > 0", "sum", last, true)
		f("%s.size() > 0", "sum", last, true)

		// Patches are converted after the evaluation.
		for _, name := range []string{"variables.itself", fmt.Sprint("variables.list", last), fmt.Sprint("variables.map", last)} {
			e := begun(t, c, 1)
			value, err, fatal := e.Evaluate(c.Compile(name, Declarations{PatchTypes: true}, Any))
			if err != nil || fatal != nil {
				t.Fatalf("%s: got %v, %v", name, err, fatal)
			}
			if err := e.Converts(value); (err != nil) != (name != "variables.itself") {
				t.Errorf("%s: got %v when it is converted", name, err)
			}
		}
	})
}
