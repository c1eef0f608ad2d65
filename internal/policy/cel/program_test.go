package cel

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// TestProgramsAreNotKept compiles many expressions that have closures. They take little
// memory: a program for each would take 40 KB, and what was checked twice the rest. The first evaluation that fails makes
// both, once for all concurrent ones.
func TestProgramsAreNotKept(t *testing.T) {
	needsClosures(t)
	const n, bytesMax = 300, 1600
	c := NewCompiler(false)
	c.Compile("object.x == 0", Declarations{}, Bool) // makes the environment
	all := make([]*Expression, n)
	before := heap()
	for i := range all {
		all[i] = c.Compile("object.spec.x <= "+strconv.Itoa(i), Declarations{}, Bool)
		if all[i].Err != nil || all[i].closure == nil {
			t.Fatalf("got %v, want a closure", all[i].Err)
		}
	}
	if each := int64(heap()-before) / n; each > bytesMax {
		t.Errorf("an expression takes %d bytes, want at most %d", each, bytesMax)
	}
	object := []byte(`{"apiVersion":"v1","kind":"Pod","spec":{}}`)
	want := "expression 'object.spec.x <= 7' resulted in error: no such key: x"
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			evaluation := c.Begin(NewInput(t.Context(), reviewOf(t, object)), 1_000_000)
			defer evaluation.End()
			if _, err, fatal := evaluation.Evaluate(all[7]); err == nil || err.Error() != want || fatal != nil {
				t.Errorf("got %v, %v, want %s", err, fatal, want)
			}
		})
	}
	group.Wait()
	if all[7].program.made == nil || all[8].program.made != nil {
		t.Error("got a program for an expression that was not evaluated, or none for one that failed")
	}
	if x := c.Compile("{'a': object.x}.a == 0", Declarations{}, Bool); x.closure != nil || x.program.made == nil {
		t.Error("got no program for an expression without a closure")
	}
}

// TestCheckedAgain needs a checked expression after a variable that it uses was replaced by one of another type.
func TestCheckedAgain(t *testing.T) {
	needsClosures(t)
	c := NewCompiler(true)
	c.AddVariable("v", "1", Declarations{})
	x := c.Compile("variables.v + object.x == 2", Declarations{}, Bool)
	c.AddVariable("v", "'a'", Declarations{})
	if x.Err != nil || x.program.ast.Load() != nil {
		t.Fatalf("got error %v, what was checked is kept: %v", x.Err, x.program.ast.Load() != nil)
	}
	if checked, err := x.program.checked(); err != nil || checked.OutputType() != celgo.BoolType {
		t.Errorf("got %v, %v, want an expression of type bool", checked, err)
	}
	if x := c.Compile("variables.v + 'b' == 'ab'", Declarations{}, Bool); x.Err != nil {
		t.Errorf("an expression with the new variable: %v", x.Err)
	}
}

// TestProgramIsMadeOnce expects a program to be planned when it is first evaluated.
func TestProgramIsMadeOnce(t *testing.T) {
	env, err := NewCompiler(false).env(Declarations{})
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile("1 + 1")
	if issues != nil {
		t.Fatal(issues)
	}
	planned := 0
	p := &program{plan: func() (celgo.Program, error) {
		planned++
		return env.Program(ast)
	}}
	for range 3 {
		if value, _, err := p.Eval(celgo.NoVars()); value != types.Int(2) || err != nil || planned != 1 {
			t.Errorf("got %v, %v, %d plans, want 2, one plan", value, err, planned)
		}
	}
}

// TestRefusedPlans compiles expressions that the interpreter refuses when it plans them, and
// some that look alike. A closure must not hide the error.
func TestRefusedPlans(t *testing.T) {
	needsClosures(t)
	f := func(expression string, wantErr bool) {
		t.Helper()
		got := NewCompiler(false).Compile(expression, Declarations{}, Bool)
		interpreter := NewCompiler(false)
		interpreter.InterpreterOnly = true
		want := interpreter.Compile(expression, Declarations{}, Bool)
		if (want.Err != nil) != wantErr || fmt.Sprint(got.Err) != fmt.Sprint(want.Err) {
			t.Errorf("%s: got error %v, of the interpreter %v, want an error: %v", expression, got.Err, want.Err, wantErr)
		}
	}
	for _, refused := range []string{
		"int('x') == 1", "timestamp('x') == timestamp('y')", "duration('1') > duration('1s')", "uint(-1) == 1u", "int(1e300) == 1",
		"bytes('a') == b'a' && double('x') == 1.0", "bool('x')", "string(b'\\xff') == 'a'", "int(string('x')) == 1",
		"object.a == int('x')", "object.l.all(x, x == int('x'))", "object.l.exists(x, [int('x')] == [x])", "[1, int('x')] == object.l",
		"true ? true : bool('x')", "true || bool('x')", "has(object.a) && object.a.matches('(')", "'a'.matches('(')", "'a'.find('(') == ''",
		"object.a.findAll('[', 1) == ['a']", "object.l.map(x, x.find('(')) == []", "matches('a', '(')", "{'a': int('x')} == object.m",
		"object.a in [int('x')]", "{int('x'): 1} == object.m", "size([duration('x')]) == 1",
	} {
		f(refused, true)
	}
	for _, planned := range []string{
		"int('1') == 1", "object.a == int(object.b)", "int(object.a + 'x') == 1", "'a'.matches('(' + object.a)", "object.a.matches('a')",
		"quantity('x') == quantity('y')", "ip('x').family() == 4", "1 / 0 == 1", "[1][2] == 1",
	} {
		f(planned, false)
	}
}

// heap returns how many bytes of memory are in use.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // the second collection empties each sync.Pool
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
