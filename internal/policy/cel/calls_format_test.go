package cel

import (
	"context"
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

	"github.com/fastadmit/fastadmit/codec"
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

// TestFormatTexts has upstream format texts in place of lists and maps, and all else as it is
// given. They need no memory to be decoded. Memory is asked for from resultFree bytes on.
func TestFormatTexts(t *testing.T) {
	review := reviewOf(t, []byte(`{"kind":"X","list":[1],"map":{"a":1}}`))
	list, object := ValueOf(review.Object.Get("list")), ValueOf(review.Object.Get("map"))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	e, ended := new(Compiler).Begin(NewInput(t.Context(), review), 0), new(Compiler).Begin(NewInput(canceled, review), 0)
	review.Object.Root().Refuse(codec.ErrNoMemory)
	native := types.DefaultTypeAdapter.NativeToValue
	f := func(e *Evaluation, text string, given ref.Val, want ref.Val, args string) {
		t.Helper()
		all := []ref.Val{types.String(text), given}
		if got := format(e, all); got != want || shown(all[1]) != args || (args == shown(given)) != (all[1] == given) {
			t.Errorf("%s: got %v, and %s for upstream, want %v, and %s", text, got, shown(all[1]), want, args)
		}
	}
	given := native([]any{int64(1), list, object, map[string]any{"b": nil}, []any{"c"}, []any{"d"}})
	f(e, "%d %s %s %s %d", given, nil, `[int 1 string [1] string {"a":1} string {"b":null} [string c] [string d]]`)
	f(e, "%d", given, nil, shown(given))
	many := native([]any{make([]int64, celconfig.CheckFrequency)})
	f(ended, "%s", many, errInterrupted, shown(many))
	f(e, "%s", native([]any{make([]int64, 2)}), nil, "[string [0, 0]]")
	f(e, "%s", native([]any{[]any{"a", types.OptionalNone}}), nil, "[[optional_type]]") // has the same error
	number := native([]any{1.5, 1.5})
	f(e, fmt.Sprintf("%%.%df%%.1f", resultFree-1), number, nil, shown(number))
	f(e, fmt.Sprintf("%%.%df%%.1f", resultFree), number, errNoMemory, shown(number))
	for more, want := range []ref.Val{nil, errNoMemory} {
		long := strings.Repeat("a", resultFree-len(`["", `)+more)
		args := shown(native([]any{[]any{long, 1}}))
		if want == nil {
			args = fmt.Sprintf(`[string ["%s", 1]]`, long)
		}
		f(e, "%s", native([]any{[]any{long, 1}}), want, args)
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

// TestJoinLimit refuses the first text that costs more than an expression may, with the size
// that it has. Of a list that has something else than texts, it leaves the error to cel-go.
func TestJoinLimit(t *testing.T) {
	for _, between := range []int{1, 100} {
		texts := slices.Repeat([]string{"é"}, between+1)
		list := types.NewStringList(types.DefaultTypeAdapter, texts)
		most := celconfig.PerCallLimit / 2 * 10 / between // a character costs a tenth, and it is read and written
		for n, refused := range map[int]bool{most - 1: false, most: false, most + 1: true} {
			by := strings.Repeat("a", n)
			got := join(nil, []ref.Val{list, types.String(by)})
			if (got != nil) != refused || refused && actualSize(got) != actualSize(types.String(strings.Join(texts, by))) {
				t.Errorf("%d characters between %d elements: got %v, want it refused: %v", n, between+1, got != nil, refused)
			}
			args := []ref.Val{types.NewDynamicList(types.DefaultTypeAdapter, append(make([]any, between), "a")), types.String(by)}
			if got := join(nil, args); got != nil || (args[1] == types.String("")) != refused {
				t.Errorf("%d characters between null: got %v, want it left to cel-go, with a short text if it were refused: %v", n, got, refused)
			}
		}
	}
}

// TestBoundedFunctions has the functions of these names bounded, but for those of lists.
func TestBoundedFunctions(t *testing.T) {
	f := func(name, overload string, want bool) {
		t.Helper()
		if got := boundedFunction(name, overload) != nil; got != want {
			t.Errorf("%s, %q: got it bounded: %v", name, overload, got)
		}
	}
	for _, name := range []string{"indexOf", "lastIndexOf"} {
		f(name, "", true)
		f(name, "string_index_of_string", true)
		f(name, "list_a_index_of_int", false)
	}
	f("matches", "matches", true)
	f("matches", "matches_string", true)
	f("distinct", "list_distinct", true)
	f("size", "list_size", false)
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
