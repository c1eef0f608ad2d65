package cel

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"

	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// TestValueMethods expects the methods of values over bytes, and of the variables request
// and variables, to return the same as those of cel-go's values.
func TestValueMethods(t *testing.T) {
	in := NewInput(t.Context(), reviewOf(t, []byte(sample)))
	emptyMap := types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{})
	content := in.view.Object.Value().(map[string]any)
	pairs := [][2]ref.Val{
		{&in.view.Object, types.NewStringInterfaceMap(types.DefaultTypeAdapter, content)},
		{view.ValueOf(in.view.Object.JSON().Get("list")), types.NewDynamicList(types.DefaultTypeAdapter, content["list"])},
		{view.ValueOf(in.view.Object.JSON().Get("none")), types.NewDynamicList(types.DefaultTypeAdapter, []any{})},
		{view.ValueOf(in.view.Object.JSON().Get("bare")), types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{})},
		{&in.view.Request, types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{
			"uid": types.String(""), "object": types.NullValue, "oldObject": types.NullValue, "dryRun": types.False,
			"options": types.NullValue, "operation": types.String("UPDATE"),
			"kind": emptyMap, "resource": emptyMap, "requestKind": emptyMap, "requestResource": emptyMap, "userInfo": emptyMap,
		})},
	}
	others := []ref.Val{
		types.True, types.Int(1), types.String("a"), types.NullValue, types.NewErr("other"),
		types.NewDynamicList(types.DefaultTypeAdapter, []any{int64(1)}),
		types.NewStringInterfaceMap(types.DefaultTypeAdapter, map[string]any{"a": 1}),
	}
	keys := len(others)
	for _, pair := range pairs {
		others = append(others, pair[0], pair[1])
	}
	for i, pair := range pairs {
		got, want := methods(pair[0], others[:keys], others), methods(pair[1], others[:keys], others)
		for name := range got {
			if got[name] != want[name] {
				t.Errorf("%d: %s: got %s, want %s", i, name, got[name], want[name])
			}
		}
		if len(got) < len(want)-1 { // request has no IsZeroValue
			t.Errorf("%d: got %d results, want those of %d methods", i, len(got), len(want))
		}
	}
	for _, pair := range pairs[1:3] { // adding an empty list makes no new list
		list, empty := pair[0].(traits.Adder), pairs[2][0]
		if got := list.Add(empty); got != pair[0] {
			t.Errorf("got %v, want %v itself", got, list)
		}
		if got := empty.(traits.Adder).Add(pair[0]); got != pair[0] {
			t.Errorf("got %v, want %v itself", got, list)
		}
	}
	for _, i := range []int{0, 1} { // the first entry ends the iteration
		stop := new(stopFolder)
		if pairs[i][0].(traits.Foldable).Fold(stop); *stop != 1 {
			t.Errorf("%d: got %d entries, want 1", i, *stop)
		}
	}
	for i, pair := range pairs[:4] { // a conversion to a type of this package returns the value itself
		if got, err := pair[0].ConvertToNative(reflect.TypeFor[traits.Iterable]()); got != pair[0] || err != nil {
			t.Errorf("%d: got %v, %v, want the value", i, got, err)
		}
	}
}

// A stopFolder counts entries, and stops after one.
type stopFolder int

func (f *stopFolder) FoldEntry(_, _ any) bool {
	*f++
	return false
}

// TestVariablesMethods expects the methods of the value of variables to return the same
// as those of kube-apiserver's.
func TestVariablesMethods(t *testing.T) {
	c := NewCompiler(true)
	c.AddVariable("a", "1", Declarations{})
	c.AddVariable("broken", "object.nope.nope", Declarations{})
	theirs := lazy.NewMapValue(variablesType)
	theirs.Append("a", func(*lazy.MapValue) ref.Val { return types.Int(1) })
	theirs.Append("broken", func(*lazy.MapValue) ref.Val {
		return types.NewErr("composited variable %q fails to evaluate: no such key: nope", "broken")
	})
	returned := func(m traits.Mapper) (all []string) {
		for _, key := range []ref.Val{
			types.String("a"), types.String("broken"), types.String("nope"), types.String("__nope__"), types.Int(1),
		} {
			found, ok := m.Find(key)
			all = append(all, fmt.Sprint(key, m.Get(key), m.Contains(key), found, ok))
		}
		for _, to := range []ref.Type{types.TypeType, types.MapType, types.StringType} {
			all = append(all, fmt.Sprint(m.ConvertToType(to)))
		}
		_, err := m.ConvertToNative(reflect.TypeFor[string]())
		itself := ref.Val(m)
		return append(
			all, fmt.Sprint(m.Iterator().HasNext()),
			fmt.Sprint(m.Size(), m.Type(), m.Value(), err, m.ConvertToType(m.Type()) == m, m.Equal(itself), m.Equal(types.True)),
		)
	}
	got := returned(&c.Begin(newInput(t, t.Context()), celconfig.RuntimeCELCostBudget).variables)
	for i, want := range returned(theirs) {
		if got[i] != want {
			t.Errorf("got %s, want %s", got[i], want)
		}
	}
}

// methods calls the methods of a value, and records the results.
func methods(v ref.Val, keys, others []ref.Val) map[string]string {
	all := map[string]string{"Type": v.Type().TypeName(), "Value": fmt.Sprint(flatten(v.Value()))}
	note := func(name string, result ref.Val) {
		if result == nil {
			all[name] = "nil"
		} else if err, ok := result.(*types.Err); ok {
			all[name] = err.Error()
		} else {
			all[name] = fmt.Sprint(plain(result))
		}
	}
	for _, to := range []ref.Type{types.MapType, types.ListType, types.TypeType, types.StringType, types.IntType} {
		note("ConvertToType "+to.TypeName(), v.ConvertToType(to))
	}
	for _, to := range []reflect.Type{
		reflect.TypeFor[map[string]any](), reflect.TypeFor[[]any](), reflect.TypeFor[string](), reflect.TypeFor[*structpb.Value](),
		reflect.TypeFor[[]int64](),
	} {
		native, err := v.ConvertToNative(to)
		if all["ConvertToNative "+to.String()] = fmt.Sprint(err != nil); err == nil && to.Kind() == reflect.Pointer {
			all["ConvertToNative "+to.String()] += fmt.Sprintf(" %T", native)
		} else if err == nil {
			all["ConvertToNative "+to.String()] += fmt.Sprint(flatten(native))
		}
	}
	for i, other := range others {
		note(fmt.Sprint("Equal ", i), v.Equal(other))
		if container, ok := v.(traits.Container); ok {
			note(fmt.Sprint("Contains ", i), container.Contains(other))
		}
	}
	for i, other := range keys {
		if indexer, ok := v.(traits.Indexer); ok {
			note(fmt.Sprint("Get ", i), indexer.Get(other))
		}
	}
	note("Size", v.(traits.Sizer).Size())
	if z, ok := v.(traits.Zeroer); ok {
		all["IsZeroValue"] = fmt.Sprint(z.IsZeroValue())
	}
	it := v.(traits.Iterable).Iterator()
	note("iterator to string", it.ConvertToType(types.StringType))
	note("iterator equals", it.Equal(types.True))
	_, err := it.ConvertToNative(reflect.TypeFor[string]())
	all["iterator"] = fmt.Sprint(it.Type(), it.Value(), err)
	elements := make(map[string]int)
	for has := it.HasNext(); has == types.True && it.HasNext() == has; has = it.HasNext() { // asked twice
		elements[shown(it.Next())]++
	}
	all["elements"] = fmt.Sprint(elements, it.Next())
	return all
}

// TestTypeChecker checks expressions against types, such as those of a kind and its
// parameters.
func TestTypeChecker(t *testing.T) {
	object := apiservercel.NewObjectType("Thing", map[string]*apiservercel.DeclField{
		"count": apiservercel.NewDeclField("count", apiservercel.IntType, true, nil, nil),
		"name":  apiservercel.NewDeclField("name", apiservercel.StringType, true, nil, nil),
	})
	given := apiservercel.NewObjectType(
		"Given", map[string]*apiservercel.DeclField{"most": apiservercel.NewDeclField("most", apiservercel.IntType, true, nil, nil)},
	)
	for _, test := range []struct {
		object, params *apiservercel.DeclType
		hasParams      bool
		expression     string
		wrong          string // "" for nothing
	}{
		{object, given, true, "object.count > params.most && oldObject.name == object.name", ""},
		{object, given, true, "object.nope", "undefined field 'nope'"},
		{object, given, true, "oldObject.nope", "undefined field 'nope'"},
		{object, given, true, "params.nope", "undefined field 'nope'"},
		{object, nil, true, "params.nope == object.count", ""},
		{object, nil, false, "params.nope == object.count", "undeclared reference to 'params'"},
		{nil, given, true, "object.nope == params.most", ""},
		{nil, nil, false, "object.nope == oldObject.nope", ""},
		{object, given, true, "object.name + 1 == ''", "found no matching overload for '_+_'"},
		{nil, nil, false, "request.name == namespaceObject.metadata.name && " +
			"authorizer.group('').resource('pods').check('get').allowed()", ""},
		{nil, nil, false, "request.nope", "undefined field 'nope'"}, {nil, nil, false, "namespaceObject.nope", "undefined field 'nope'"},
		{object, nil, false, "variables.count + 1 == 2", ""},
		{object, nil, false, "variables.count + 'a' == ''", "found no matching overload for '_+_'"},
		{object, nil, false, "variables.broken + 'a' == ''", ""}, {object, nil, false, "variables.nope", "undefined field 'nope'"},
		{nil, nil, false, "[?object.x]", "cannot compile the expression: "},
	} {
		c, err := NewTypeChecker(test.object, test.params, test.hasParams, new(Texts))
		if err != nil {
			t.Fatal(err)
		}
		c.AddVariable("count", "object.count")
		c.AddVariable("broken", "1 +")
		got := c.Check(test.expression)
		if (got != nil) != (test.wrong != "") || got != nil && !strings.Contains(got.Error(), test.wrong) {
			t.Errorf("%s: got %v, want %q", test.expression, got, test.wrong)
		}
	}
}
