package closure

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// Package cel tests that closures give the same results as the interpreter. The tests here
// check what those cannot see.

var update = flag.Bool("update", false, "write testdata")

// newEnv returns kube-apiserver's environment with object and variables.
func newEnv(t *testing.T) *cel.Env {
	t.Helper()
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable("object", cel.DynType), cel.Variable("variables", cel.DynType)},
	}, environment.StrictCostOpt)
	if err != nil {
		t.Fatal(err)
	}
	return set.StoredExpressionsEnv()
}

// evaluatorOf returns the Evaluator of an expression, which may use the variables a and b.
func evaluatorOf(t *testing.T, env *cel.Env, expression string) Evaluator {
	t.Helper()
	checked, issues := env.Compile(expression)
	if issues != nil {
		t.Fatal(issues)
	}
	return New(env, checked, []string{"a", "b"}, admission.Newest())
}

// testPolicy is a Policy that has only variables, which functions evaluate.
type testPolicy []func() ref.Val

func (testPolicy) Params() ref.Val          { return types.NullValue }
func (testPolicy) NamespaceObject() ref.Val { return types.NullValue }
func (testPolicy) Variables() ref.Val       { return types.NullValue }
func (p testPolicy) Variable(i int) ref.Val { return p[i]() }

// inputOf returns the Input of a review of an object.
func inputOf(t *testing.T, p Policy) *Input {
	t.Helper()
	review := new(codec.Review)
	if err := review.Decode([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",
		"object":{"kind":"X","list":["a","b"],"n":2}}}`)); err != nil {
		t.Fatal(err)
	}
	in := &Input{Review: new(view.Review), Limits: &calls.Limits{Context: t.Context(), Review: review}, Policy: p, Frames: new(Frames)}
	in.Read(review)
	return in
}

// TestEvaluate tests expressions with a value, with a value that only the interpreter finds,
// and with a cost that exceeds the limit.
func TestEvaluate(t *testing.T) {
	env, in := newEnv(t), inputOf(t, testPolicy{func() ref.Val { return types.Int(7) }, func() ref.Val { return types.NewErr("an error") }})
	for _, test := range []struct {
		expression string
		limit      uint64
		value      ref.Val // nil if it gives up or stops
		cost       int64
		ok         bool
	}{
		{"object.kind == 'X'", 100, types.True, 3, true},
		{"object.list.all(x, x != 'c') && variables.a > object.n", 100, types.True, 18, true},
		{"object.n + 1", 3, types.Int(3), 3, true},
		{"object.n + 1", 2, nil, 3, true},
		{"object.nope == 1", 100, nil, 0, false},
		{"variables.b == 1", 100, nil, 0, false},
	} {
		x := evaluatorOf(t, env, test.expression)
		if x == nil {
			t.Errorf("%s: got no closure", test.expression)
			continue
		}
		value, cost, ok, err := x.Evaluate(in, test.limit)
		stops := test.ok && test.value == nil
		if value != test.value || cost != test.cost || ok != test.ok || (err != nil) != stops {
			t.Errorf("%s, limit %d: got %v, cost %d, %v, %v, want %+v", test.expression, test.limit, value, cost, ok, err, test)
		}
	}
	for _, unknown := range []string{"{'a': object.n}.a", "[1].exists(x, optional.of(object.n).hasValue())"} {
		if x := evaluatorOf(t, env, unknown); x != nil {
			t.Errorf("%s: got a closure, want none", unknown)
		}
	}
}

// TestFrames takes a frame for an expression and one for the variable that it uses. They are
// used again, and reference nothing after Reset.
func TestFrames(t *testing.T) {
	env := newEnv(t)
	outer, inner := evaluatorOf(t, env, "object.list.all(x, variables.a != x)"), evaluatorOf(t, env, "object.list.map(y, y + 'z').join()")
	var in *Input
	in = inputOf(t, testPolicy{func() ref.Val {
		value, _, _, _ := inner.Evaluate(in, 100)
		return value
	}})
	var first, second *frame
	for range 2 {
		if value, _, ok, err := outer.Evaluate(in, 100); value != types.True || !ok || err != nil {
			t.Fatalf("got %v, %v, %v, want true", value, ok, err)
		}
		if second == nil {
			first, second = in.free, in.free.next
		}
		if in.free != first || first.next != second || second.next != nil {
			t.Fatal("got other frames, want the same two")
		}
	}
	if first.Input != in || second.slots[0].text != "b" {
		t.Errorf("got %+v and %+v, want what the evaluation left", first, second)
	}
	in.Reset()
	for f := in.free; f != nil; f = f.next {
		if f.Input != nil || f.cost != 0 || f.slots[0] != (value{}) {
			t.Errorf("got %+v after Reset", f)
		}
	}
	if in.free != first || first.next != second {
		t.Error("got other frames after Reset, want the same two")
	}
}

// TestFunctionPanics tests that a function that panics is left to the interpreter.
func TestFunctionPanics(t *testing.T) {
	fn := &function{unary: func(ref.Val) ref.Val { panic("a fault") }}
	if result := fn.call([]ref.Val{types.True}); result != nil {
		t.Errorf("got %v, want no result", result)
	}
}

// TestFunctions compares the functions of the libraries, their overloads, and which of them are
// countable, with a list. So it shows functions that a new version of a library adds, removes
// or renames.
func TestFunctions(t *testing.T) {
	const file = "testdata/functions.txt"
	functions := newEnv(t).Functions()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		var overloads []string
		for _, o := range functions[name].OverloadDecls() {
			overloads = append(overloads, o.ID())
		}
		slices.Sort(overloads)
		if countable[name] {
			name += " (countable)"
		}
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(overloads, " "))
	}
	for name := range countable {
		if functions[name] == nil {
			t.Errorf("no library has the function %s", name)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.String(); got != string(want) {
		t.Errorf(
			"got the functions\n%s\nwant those of %s. Check the cost of what is new (see doc.go), and update the file with -update.",
			got, file,
		)
	}
}
