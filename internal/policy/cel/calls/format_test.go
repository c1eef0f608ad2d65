package calls

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// limitsOf returns the limits of a review of an object.
func limitsOf(ctx context.Context, t *testing.T, object string) *Limits {
	t.Helper()
	review := new(codec.Review)
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":` +
		object + `}}`
	if err := review.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	return &Limits{Context: ctx, Review: review}
}

// shown returns the type and the value of a scalar, and those of the elements of a list.
func shown(v ref.Val) string {
	list, ok := v.(traits.Lister)
	switch {
	case ok:
		var elements []string
		for it := list.Iterator(); it.HasNext() == types.True; {
			elements = append(elements, shown(it.Next()))
		}
		return fmt.Sprint(elements)
	case v.Type() == types.MapType:
		return fmt.Sprint(v.Value())
	case v.Type() == types.OptionalType:
		return "optional_type"
	}
	return fmt.Sprintf("%s %v", v.Type().TypeName(), v)
}

// TestFormatUpstream compares the formatting of lists and maps with upstream's FormatString. Both must
// refuse the same values, with the same error.
func TestFormatUpstream(t *testing.T) {
	l := limitsOf(t.Context(), t, `{"kind":"X","list":["a",1,[2.5,{"b":null,"a":true}],{}],"deep":`+
		strings.Repeat(`{"b":[1,`, 40)+`"x"`+strings.Repeat(`],"a":2}`, 40)+`}`)
	native := types.DefaultTypeAdapter.NativeToValue
	root := l.Review.Object.Root()
	object := view.ValueOf(root)
	ours := []ref.Val{object, view.ValueOf(root.Get("list")), view.ValueOf(root.Get("deep"))}
	values := append(slices.Clone(ours),
		native([]any{}), native(map[string]any{}),
		native([]any{int64(-1), uint64(2), 1.5, 1e300, math.Inf(1), math.Inf(-1), math.NaN(), true, false, "a\"é", []byte("b\n"), nil}),
		native([]any{time.Unix(1, 5e8).UTC(), 90 * time.Second, -time.Nanosecond}),
		native([]ref.Val{types.IntType, types.StringType, types.NewListType(types.IntType)}),
		native(map[string]any{"c": int64(1), "a": []any{"x", "y"}, "b": map[string]any{"z": nil}}),
		native(map[ref.Val]ref.Val{
			types.Int(2): types.String("a"), types.Uint(1): types.True, types.False: types.Int(0), types.String("k"): object,
		}),
		native([]ref.Val{object, types.NullValue}), native(map[ref.Val]ref.Val{types.Double(1): types.True}),
		native(map[ref.Val]ref.Val{types.Double(math.NaN()): types.True}), native([]any{[]any{types.OptionalNone}}),
		native(map[string]any{"a": types.OptionalNone}), native(map[ref.Val]ref.Val{types.NullValue: types.True}))
	for _, v := range values {
		want, err := ext.FormatString(v, "")
		for _, levels := range []int{0, 1, 5, view.DepthMax} {
			f := formatter{limits: l}
			if ok := f.append(v, levels); ok != (err == nil) || ok && string(f.text) != want {
				t.Errorf("%v with %d levels: got %s, %v\nwant %s, %v", v.Value(), levels, f.text, ok, want, err)
			} else if !ok && f.cause != nil { // without a cause, upstream formats the whole value
				if _, got := ext.FormatString(f.cause, ""); fmt.Sprint(got) != err.Error() {
					t.Errorf("%v: got the error %v, want %v", v.Value(), got, err)
				}
			}
		}
	}
}

// TestFormatTexts checks the arguments that upstream's function gets: texts in place of lists and maps,
// and all other values unchanged. No memory is needed to decode lists and maps. More than bytesFree bytes
// need memory of the review.
func TestFormatTexts(t *testing.T) {
	l := limitsOf(t.Context(), t, `{"kind":"X","list":[1],"map":{"a":1}}`)
	root := l.Review.Object.Root()
	list, object := view.ValueOf(root.Get("list")), view.ValueOf(root.Get("map"))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	ended := &Limits{Context: canceled, Review: l.Review}
	root.Refuse(codec.ErrNoMemory)
	native := types.DefaultTypeAdapter.NativeToValue
	f := func(l *Limits, text string, given ref.Val, want ref.Val, args string) {
		t.Helper()
		all := []ref.Val{types.String(text), given}
		if got := format(l, all); got != want || shown(all[1]) != args || (args == shown(given)) != (all[1] == given) {
			t.Errorf("%s: got %v, and %s for upstream, want %v, and %s", text, got, shown(all[1]), want, args)
		}
	}
	given := native([]any{int64(1), list, object, map[string]any{"b": nil}, []any{"c"}, []any{"d"}})
	f(l, "%d %s %s %s %d", given, nil, `[int 1 string [1] string {"a":1} string {"b":null} [string c] [string d]]`)
	f(l, "%d", given, nil, shown(given))
	many := native([]any{make([]int64, celconfig.CheckFrequency)})
	f(ended, "%s", many, errInterrupted, shown(many))
	f(l, "%s", native([]any{make([]int64, 2)}), nil, "[string [0, 0]]")
	f(l, "%s", native([]any{[]any{"a", types.OptionalNone}}), nil, "[[optional_type]]") // upstream's error is the same
	number := native([]any{1.5, 1.5})
	anew := func() *Limits { return &Limits{Context: t.Context(), Review: l.Review} }
	const most = bytesFree / 3 // format holds three copies
	places := most - len("%.00000f%.1f") - 1 - 2*numberBytes
	f(anew(), fmt.Sprintf("%%.%df%%.1f", places), number, nil, shown(number))
	f(anew(), fmt.Sprintf("%%.%df%%.1f", places+1), number, errNoMemory, shown(number))
	for more, want := range []ref.Val{nil, errNoMemory} {
		long := strings.Repeat("a", most-len(`%s["", 1]`)+more)
		args := shown(native([]any{[]any{long, 1}}))
		if want == nil {
			args = fmt.Sprintf(`[string ["%s", 1]]`, long)
		}
		f(anew(), "%s", native([]any{[]any{long, 1}}), want, args)
	}
}

// TestClauses checks the clauses of format strings. An invalid clause ends them.
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

// TestTooMany tests the maximum number of pairs, and one more.
func TestTooMany(t *testing.T) {
	for _, m := range []uint64{1, 3, 1000, 999_999} {
		for _, cost := range []uint64{1, 2} {
			most := celconfig.PerCallLimit / (m * cost)
			for n, want := range map[uint64]bool{0: false, most: false, most + 1: true} {
				if tooMany(n, m, cost) != want || tooMany(m, n, cost) != want {
					t.Errorf("%d and %d at a cost of %d: got %v and %v, want %v", n, m, cost, tooMany(n, m, cost),
						tooMany(m, n, cost), want)
				}
			}
		}
	}
}

// TestListsLimit tests lists whose pairs of elements cost as much as an expression may cost, and one
// element more, which is refused.
func TestListsLimit(t *testing.T) {
	l := limitsOf(t.Context(), t, "null")
	listOf := func(n int, text string) ref.Val {
		return types.NewStringList(types.DefaultTypeAdapter, slices.Repeat([]string{text}, n))
	}
	f := func(name string, most int, does func(n int) ref.Val) {
		t.Helper()
		for n, want := range map[int]bool{most: false, most + 1: true} {
			if refused := IsRefused(does(n)); refused != want {
				t.Errorf("%s of %d elements: got it refused: %v", name, n, refused)
			}
		}
	}
	const others = 1000
	of := func(does Func) func(n int) ref.Val {
		return func(n int) ref.Val { return does(l, []ref.Val{listOf(others, "a"), listOf(n, "b")}) }
	}
	f("sets.contains", celconfig.PerCallLimit/others, of(setsContains))
	f("sets.intersects", celconfig.PerCallLimit/others, of(setsIntersects))
	f("sets.equivalent", celconfig.PerCallLimit/others/2, of(setsEquivalent))
	f("distinct", 707, func(n int) ref.Val { return distinct(l, []ref.Val{listOf(n, "a")}) }) // 2 * 707 * 707 is just below the limit
}

// TestJoinLimit tests texts that cost as much as an expression may cost, and one character more, which is
// refused with the right size. For a list with other values than texts, cel-go returns the error.
func TestJoinLimit(t *testing.T) {
	for _, between := range []int{1, 100} {
		texts := slices.Repeat([]string{"é"}, between+1)
		list := types.NewStringList(types.DefaultTypeAdapter, texts)
		most := celconfig.PerCallLimit / 2 * 10 / between // a character costs a tenth, and it is read and written
		for n, refused := range map[int]bool{most - 1: false, most: false, most + 1: true} {
			by := strings.Repeat("a", n)
			got := join(nil, []ref.Val{list, types.String(by)})
			if (got != nil) != refused || refused && Size(got) != Size(types.String(strings.Join(texts, by))) {
				t.Errorf("%d characters between %d elements: got %v, want it refused: %v", n, between+1, got != nil, refused)
			}
			args := []ref.Val{types.NewDynamicList(types.DefaultTypeAdapter, append(make([]any, between), "a")), types.String(by)}
			if got := join(nil, args); got != nil || (args[1] == types.String("")) != refused {
				t.Errorf("%d characters between null: got %v, want it left to cel-go, with a short text if it were refused: %v",
					n, got, refused)
			}
		}
	}
}

// TestBoundedFunctions checks that functions with these names are bounded.
func TestBoundedFunctions(t *testing.T) {
	f := func(name, overload string, want bool) {
		t.Helper()
		if got := Bounded(name, overload, admission.Newest()) != nil; got != want {
			t.Errorf("%s, %q: got it bounded: %v", name, overload, got)
		}
	}
	for _, name := range []string{"indexOf", "lastIndexOf"} {
		f(name, "", true)
		f(name, "string_index_of_string", true)
		f(name, "list_a_index_of_int", true)
	}
	f("matches", "matches", true)
	f("matches", "matches_string", true)
	f("distinct", "list_distinct", true)
	f("size", "list_size", false)
}
