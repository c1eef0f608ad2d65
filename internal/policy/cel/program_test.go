package cel

import (
	"runtime"
	"strconv"
	"sync"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
)

// TestProgramsAreNotKept compiles many expressions that have closures. They take little
// memory: a program for each would take 40 KB. The first evaluation that fails makes the
// program, once for all concurrent ones.
func TestProgramsAreNotKept(t *testing.T) {
	needsClosures(t)
	const n, bytesMax = 300, 20 << 10
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

// TestProgramIsMadeOnce expects a program to be planned when it is made, and once more
// after it was dropped.
func TestProgramIsMadeOnce(t *testing.T) {
	env, err := NewCompiler(false).env(Declarations{})
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile("1 + 1")
	if issues != nil {
		t.Fatal(issues)
	}
	for _, drops := range []bool{false, true} {
		planned, want := 0, 1
		p, err := newProgram(func() (celgo.Program, error) {
			planned++
			return env.Program(ast)
		})
		if err != nil {
			t.Fatal(err)
		}
		if drops {
			p.drop()
			want++
		}
		for range 3 {
			if value, _, err := p.Eval(celgo.NoVars()); value != types.Int(2) || err != nil {
				t.Errorf("got %v, %v, want 2", value, err)
			}
		}
		if planned != want {
			t.Errorf("dropped %v: got %d plans, want %d", drops, planned, want)
		}
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
