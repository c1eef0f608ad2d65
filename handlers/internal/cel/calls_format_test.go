package cel

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// TestFormatUpstream has lists and maps formatted as upstream's FormatString does, and the
// same of them refused.
func TestFormatUpstream(t *testing.T) {
	in := NewInput(t.Context(), reviewOf(t, []byte(`{"kind":"X","list":["a",1,[2.5,{"b":null,"a":true}],{}],"deep":`+
		strings.Repeat(`{"b":[1,`, 40)+`"x"`+strings.Repeat(`],"a":2}`, 40)+`}`)))
	e := new(Compiler).Begin(in, 0)
	native := types.DefaultTypeAdapter.NativeToValue
	ours := []ref.Val{&in.object, ValueOf(in.object.v.Get("list")), ValueOf(in.object.v.Get("deep"))}
	values := append(slices.Clone(ours),
		native([]any{}), native(map[string]any{}), native([]any{int64(-1), uint64(2), 1.5, 1e300, math.Inf(1), math.Inf(-1), math.NaN(), true, false, "a\"é", []byte("b\n"), nil}),
		native([]any{time.Unix(1, 5e8).UTC(), 90 * time.Second, -time.Nanosecond}), native([]ref.Val{types.IntType, types.StringType, types.NewListType(types.IntType)}),
		native(map[string]any{"c": int64(1), "a": []any{"x", "y"}, "b": map[string]any{"z": nil}}), native(map[ref.Val]ref.Val{types.Int(2): types.String("a"), types.Uint(1): types.True, types.False: types.Int(0), types.String("k"): &in.object}),
		native([]ref.Val{&in.object, types.NullValue}), native(map[ref.Val]ref.Val{types.Double(1): types.True}), native(map[ref.Val]ref.Val{types.Double(math.NaN()): types.True}), native([]any{[]any{types.OptionalNone}}),
		native(map[string]any{"a": types.OptionalNone}), native(map[ref.Val]ref.Val{types.NullValue: types.True}))
	for _, v := range values {
		want, err := ext.FormatString(v, "")
		for _, levels := range []int{0, 1, 5, depthMax} {
			f := formatter{of: e}
			if ok := f.append(v, levels); ok != (err == nil) || ok && string(f.text) != want {
				t.Errorf("%v with %d levels: got %s, %v\nwant %s, %v", v.Value(), levels, f.text, ok, want, err)
			} else if !ok && f.cause != nil { // otherwise upstream formats all of it
				if _, got := ext.FormatString(f.cause, ""); fmt.Sprint(got) != err.Error() {
					t.Errorf("%v: got the error %v, want %v", v.Value(), got, err)
				}
			}
		}
	}
}

// TestClauses has the clauses of texts, and none from the first on that is none.
func TestClauses(t *testing.T) {
	f := func(text string, want ...clause) {
		t.Helper()
		if got := clausesOf(text); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
	f("")
	f("a%%b")
	f("%s a%%b %.2f%d", clause{'s', 0}, clause{'f', 2}, clause{'d', 0})
	f("%.f%.09e%.9999999f", clause{'f', 0}, clause{'e', 9}, clause{'f', formatPlacesMax})
	f("%s%", clause{'s', 0})
	f("%s%.3", clause{'s', 0})
}

// TestTooMany has as many pairs as may be, and more.
func TestTooMany(t *testing.T) {
	for _, m := range []uint64{1, 3, 1000, 999_999} {
		for _, cost := range []uint64{1, 2} {
			most := celconfig.PerCallLimit / (m * cost)
			for n, want := range map[uint64]bool{0: false, most: false, most + 1: true} {
				if tooMany(n, m, cost) != want || tooMany(m, n, cost) != want {
					t.Errorf("%d and %d at a cost of %d: got %v and %v, want %v", n, m, cost, tooMany(n, m, cost), tooMany(m, n, cost), want)
				}
			}
		}
	}
}

// TestListsLimit refuses the first pairs of elements that cost more than an expression may.
func TestListsLimit(t *testing.T) {
	e := new(Compiler).Begin(newInput(t, t.Context()), 0)
	listOf := func(n int, text string) ref.Val {
		return types.NewStringList(types.DefaultTypeAdapter, slices.Repeat([]string{text}, n))
	}
	f := func(name string, most int, does func(n int) ref.Val) {
		t.Helper()
		for n, want := range map[int]bool{most: false, most + 1: true} {
			if _, refused := does(n).(oversized); refused != want {
				t.Errorf("%s of %d elements: got it refused: %v", name, n, refused)
			}
		}
	}
	const others = 1000
	of := func(does func(*Evaluation, []ref.Val) ref.Val) func(n int) ref.Val {
		return func(n int) ref.Val { return does(e, []ref.Val{listOf(others, "a"), listOf(n, "b")}) }
	}
	f("sets.contains", celconfig.PerCallLimit/others, of(setsContains))
	f("sets.intersects", celconfig.PerCallLimit/others, of(setsIntersects))
	f("sets.equivalent", celconfig.PerCallLimit/others/2, of(setsEquivalent))
	f("distinct", 707, func(n int) ref.Val { return distinct(e, []ref.Val{listOf(n, "a")}) }) // 2 * 707 * 707 is just less
	f("lists.range", celconfig.PerCallLimit, func(n int) ref.Val { return listsRange(e, []ref.Val{types.Int(n)}) })
}

// TestJoinLimit refuses the first text that costs more than an expression may.
func TestJoinLimit(t *testing.T) {
	for _, between := range []int{1, 100} {
		list := types.NewStringList(types.DefaultTypeAdapter, make([]string, between+1))
		most := celconfig.PerCallLimit / 2 * 10 / between // a character costs a tenth, and it is read and written
		for n, refused := range map[int]bool{most - 1: false, most: false, most + 1: true} {
			if got := join(nil, []ref.Val{list, types.String(strings.Repeat("a", n))}); (got != nil) != refused {
				t.Errorf("%d characters between %d elements: got %v, want it refused: %v", n, between+1, got != nil, refused)
			}
		}
	}
}

// TestPatchTypesUpstream has the fields of a JSONPatch that upstream's has.
func TestPatchTypesUpstream(t *testing.T) {
	want, _ := new(mutation.JSONPatchType).FieldNames()
	got, ok := new(patchTypes).FindStructFieldNames("JSONPatch")
	if slices.Sort(want); !ok || !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("got %v, %v, want %v", got, ok, want)
	}
	if got, ok := new(patchTypes).FindStructFieldNames("Object.spec"); got != nil || !ok {
		t.Errorf("got %v, %v of an Object, want none", got, ok)
	}
}

// TestUnknownCost has an expression whose cost nobody can tell, as it has no program.
func TestUnknownCost(t *testing.T) {
	x := &Expression{Text: "none", program: &program{plan: func() (celgo.Program, error) { return nil, errors.New("it has none") }}}
	c := NewCompiler(true)
	c.variables = []variable{{"v", x}}
	in := newInput(t, t.Context())
	value, err, fatal := c.Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(x)
	if value != nil || err != nil || fatal == nil || !strings.Contains(fatal.Error(), "runtime cost could not be calculated for expression: none") {
		t.Errorf("got %v, %v, %v", value, err, fatal)
	}
	e := c.Begin(in, celconfig.RuntimeCELCostBudget)
	if got := fmt.Sprint(e.variables.value(0, &c.variables[0])); got != `unable to calculate cost of variable "v"` {
		t.Errorf("got %s", got)
	}
}
