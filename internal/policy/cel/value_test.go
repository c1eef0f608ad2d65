package cel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// decoded is an object as kube-apiserver passes it to CEL: as maps.
type decoded struct{ object any }

func (d decoded) ResolveName(name string) (any, bool) { return d.object, name == "object" }
func (d decoded) Parent() interpreter.Activation      { return nil }

// result is the complete result of an evaluation.
type result struct {
	value any
	err   string
	cost  uint64
}

func resultOf(value ref.Val, details *celgo.EvalDetails, err error) (r result) {
	if err != nil {
		r.err = sameTypes.Replace(message(err))
	} else {
		r.value = plain(value)
	}
	if cost := details.ActualCost(); cost != nil {
		r.cost = *cost
	}
	return r
}

// sameTypes are the Go types that error messages have if the value was that of a loop's
// variable, or null.
var sameTypes = strings.NewReplacer("invalid qualifier type: types.Null", "invalid qualifier type: <nil>",
	"invalid qualifier type: *types.baseMap", "invalid qualifier type: map[string]interface {}",
	"invalid qualifier type: *types.baseList", "invalid qualifier type: []interface {}")

// plain returns a value of either side in a form that can be compared.
func plain(value ref.Val) any {
	switch v := value.(type) {
	case traits.Mapper:
		all := make(map[string]any)
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			all[fmt.Sprint(plain(key))] = plain(v.Get(key))
		}
		return all
	case traits.Lister:
		all := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			all = append(all, plain(it.Next()))
		}
		return all
	}
	native, err := value.ConvertToNative(reflect.TypeFor[any]())
	if err != nil {
		native = value.Value()
	}
	return fmt.Sprintf("%s %v", value.Type().TypeName(), flatten(native))
}

func flatten(v any) any {
	if val, ok := v.(ref.Val); ok {
		return plain(val)
	}
	switch v := reflect.ValueOf(v); v.Kind() {
	case reflect.Slice:
		all := []any{}
		for i := range v.Len() {
			all = append(all, flatten(v.Index(i).Interface()))
		}
		return all
	case reflect.Map:
		all := make(map[string]any)
		for _, key := range v.MapKeys() {
			all[fmt.Sprint(flatten(key.Interface()))] = flatten(v.MapIndex(key).Interface())
		}
		return all
	}
	return v
}

// compareValues evaluates an expression over the bytes of an object and over the object
// as Kubernetes decodes it. It reports whether there was a value.
func compareValues(t testing.TB, text []byte, expression string) bool {
	t.Helper()
	var content unstructured.Unstructured
	if err := content.UnmarshalJSON(text); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	x := NewCompiler(false).Compile(expression, Declarations{}, Any)
	if x.Err != nil {
		return false // as on the other side
	}
	want := resultOf(x.program.Eval(decoded{content.Object}))
	compareClosure(t, x, text, want)
	for _, padding := range [...]int{0, largeText} { // a large document has an index
		review := reviewOf(t, slices.Concat([]byte("{"), bytes.Repeat([]byte(" "), padding), text[1:]))
		in := NewInput(t.Context(), review)
		for range lookups {
			got := resultOf(x.program.Eval(new(Compiler).Begin(in, 0)))
			if !reflect.DeepEqual(got, want) || review.Err() != nil {
				t.Errorf("%s of %.300s\ngot  %v, %v\nwant %v", expression, text, got, review.Err(), want)
				break
			}
			if padding == 0 {
				break
			}
		}
	}
	return want.err == ""
}

const (
	largeText = 16 << 10 // bytes of a document that has an index
	lookups   = 9        // in an object or array, of which the last one uses the index
)

// reviewOf returns the review of an object.
func reviewOf(t testing.TB, object []byte) *codec.Review {
	t.Helper()
	return reviewOfBody(
		t,
		fmt.Appendf(
			nil,
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"UPDATE",`+
				`"object":%s,"oldObject":%[1]s}}`,
			object,
		),
	)
}

func reviewOfBody(t testing.TB, body []byte) *codec.Review {
	t.Helper()
	review := new(codec.Review)
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	return review
}

const sample = `{"apiVersion":"v1","kind":"X","int":1,"float":1.5,"exp":1e3,"big":12345678901234567890,"neg":-7,"zero":-0,
	"text":"a\u00e4\"b\n","empty":"","yes":true,"no":false,"nil":null,"list":[1,2.0,"x",null,[3],{"a":1}],"none":[],
	"map":{"a":1,"b":"x","c":null,"d":{"e":[1,2]}},"same":{"d":{"e":[1,2]},"c":null,"b":"x","a":1},"bare":{},"blank":{"":1},
	"quantity":"1Gi","ip":"10.0.0.1","long":"registry.example.com/team/äpp:1.0, which has more than sixty characters or so",
	"items":[{"name":"a","v":1},{"name":"b"}],"strings":["b","a","c"]}`

func TestValues(t *testing.T) {
	for _, expression := range []string{
		"object", "object.int + 1", "object.float * 2.0", "object.exp", "object.big", "object.neg", "object.zero == 0", "object.int == 1.0",
		"object.text", "size(object.text)", "object.empty == ''", "object.yes && !object.no", "object.nil == null", "object.nope",
		"object.map.nope.x", "object.int.x", "object.text.x", "object.nil.x", "object.list.x", "object['a']", "object[1]", "object.map[1]",
		"object.list[0]", "object.list[1] == 2", "object.list[-1]", "object.list[6]", "object.list[5].a", "object.list[1.0]",
		"object.list['0']",
		"object.list[4][0]", "has(object.map.a)", "has(object.map.c)", "has(object.map.z)", "has(object.nil.z)", "has(object.int.z)",
		"has(object.bare.z)", "'a' in object.map", "1 in object.map", "1 in object.list", "'x' in object.list", "null in object.list",
		"[3] in object.list", "{'a': 1} in object.list", "object.map == object.same", "object.same == object.map",
		"object.map != object.same", "object.map == {'a': 1, 'b': 'x', 'c': null, 'd': {'e': [1, 2]}}",
		"{'a': 1, 'b': 'x', 'c': null, 'd': {'e': [1, 2]}} == object.map",
		"{'a': 2, 'b': 'x', 'c': null, 'd': {'e': [1, 2]}} == object.map",
		"object.map == {'a': 2, 'b': 'x', 'c': null, 'd': {'e': [1, 2]}}", "object.list == [2, 2.0, 'x', null, [3], {'a': 1}]",
		"[2, 2.0, 'x', null, [3], {'a': 1}] == object.list",
		"object.blank[1]", "object.blank['']", "1 in object.blank", "'' in object.blank", "object.blank[?1].hasValue()",
		"object.map == object.bare", "object.map == object.list", "object.list == object.list",
		"object.list == [1, 2.0, 'x', null, [3], {'a': 1}]",
		"[1] == object.list", "object.none == []", "object.none + [1]", "[1] + object.none", "object.list + object.strings",
		"object.strings + object.none",
		"object.list + 1", "object.strings + ['z']", "('z' in (object.strings + ['z']))", "size(object.list)", "size(object.map)",
		"size(object.none)",
		"size(object.bare)", "object.items.map(i, i.name)", "object.items.filter(i, has(i.v))", "object.items.all(i, i.name != '')",
		"object.items.exists(i, i.v == 1)", "object.items.exists_one(i, i.name == 'a')", "object.items.all(i, i.v == 1)",
		"object.map.all(k, k != '')", "object.map.map(k, k).size()", "object.int.all(k, true)",
		"object.?map.?a.orValue(5)", "object.?map.?z.orValue(5)", "object.map[?'a'].orValue(5)", "object.list[?0].orValue(5)",
		"object.list[?9].orValue(5)",
		"object.?nil.?z.hasValue()", "object.?text.?z.hasValue()", "optional.ofNonZeroValue(object.bare).hasValue()",
		"optional.ofNonZeroValue(object.none).hasValue()", "optional.ofNonZeroValue(object.map).hasValue()", "optional.of(object.map).a",
		"optional.of(object).?map.a", "optional.of(object.list).value()[0]", "object.?map.optMap(m, m.a).orValue(0)",
		"type(object.map) == map", "type(object.list) == list", "type(object.int)", "type(object.float)", "type(object.nil)",
		"type(type(object.map))",
		"string(object.int)", "string(object.map)", "int(object.text)", "dyn(object.map).size()", "[object.map, object.same][1].a",
		"{'x': object.map}.x.a", "{object.text: 1}", "{object.map: 1}", "'%s %d %s'.format([object.text, object.int, object.list])",
		"'%s'.format([object.map.d])", "'%s'.format([object.list])", "object.strings.join(',')", "object.list.join(',')",
		"object.strings.isSorted()",
		"object.strings.sum()", "object.strings.min()", "object.strings.max()", "object.strings.indexOf('a')",
		"object.strings.lastIndexOf('z')",
		"object.text.indexOf(object.?items[0].name.orValue([]))", "object.text.lastIndexOf(object.?items[0].name.orValue([]))",
		"object.text.indexOf('b')",
		"sets.contains(object.strings, ['a'])", "sets.intersects(object.strings, object.list)",
		"sets.equivalent(object.strings, ['a', 'b', 'c'])",
		"object.strings.sort()", "object.strings.slice(0, 1)", "object.list.flatten()", "object.strings.distinct()",
		"object.strings.reverse()",
		"lists.range(object.int)", "object.items.sortBy(i, i.name)", "object.strings.first()", "object.strings.last()",
		"object.list.all(i, v, i < 6)", "object.map.all(k, v, k != '')", "object.strings.transformList(i, v, v)",
		"object.strings.transformMap(i, v, v)",
		"object.map.transformMap(k, v, k)", "object.map.transformMapEntry(k, v, {k: k})", "object.strings.exists(i, v, v == 'c')",
		"object.strings.exists(i, v, v == 'b')", "object.strings.all(i, v, v == 'c')",
		"quantity(object.quantity).isGreaterThan(quantity('1Mi'))", "ip(object.ip).family()", "isIP(object.ip)", "url(object.text)",
		"object.text.matches('^a')", "object.text.find('.')", "object.text.contains('b')", "object.text.startsWith(object.empty)",
		"object.text.startsWith(object.int)", "object.map < object.same", "object.int < object.float", "-object.map", "!object.map",
		"object.map ? 1 : 2",
		"object.yes ? object.map.a : object.nope", "object.nope || true", "true || object.nope", "object.nope && false",
		"object.list.map(x, [x, x])",
		"object.items.map(i, object.items.map(j, i == j))", "object.map.d.e.map(x, x * 2)", "cel.bind(m, object.map, m.a)",
	} {
		compareValues(t, []byte(sample), expression)
	}
}

// generator makes expressions from the paths of an object.
type generator struct {
	*rand.Rand
	paths []string
	lists []string // the paths of arrays
}

func newGenerator(start uint64, object []byte) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(start, 1))}
	var content any
	_ = json.Unmarshal(object, &content) // the caller reports errors
	g.collect("object", content, 0)
	return g
}

func (g *generator) collect(path string, v any, depth int) {
	g.paths = append(g.paths, path)
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			g.collect(path+"["+strconv.Quote(name)+"]", v[name], depth+1)
			if !strings.ContainsAny(name, ".-/") && name != "namespace" {
				g.paths = append(g.paths, path+"."+name)
			}
		}
	case []any:
		g.lists = append(g.lists, path)
		for i := range min(len(v), 3) {
			g.collect(fmt.Sprintf("%s[%d]", path, i), v[i], depth+1)
		}
	}
}

func (g *generator) pick(all ...string) string { return all[g.IntN(len(all))] }

func (g *generator) path() string {
	p := g.paths[g.IntN(len(g.paths))]
	switch g.IntN(12) {
	case 0:
		return p + ".nope"
	case 1:
		return p + "[0]"
	case 2:
		return p + ".metadata"
	}
	return p
}

// expression makes an expression whose value does not depend on the order of a map.
func (g *generator) expression(depth int) string {
	if depth == 0 {
		return g.pick(g.path(), g.path(), g.path(), "1", "'a'", "null", "true", "1.5", "[1, 'a']", "{'a': 1}", "x")
	}
	a, b := g.expression(depth-1), g.expression(depth-1)
	switch g.IntN(18) {
	case 0:
		return "has(" + g.path() + ".name)"
	case 1:
		return fmt.Sprintf("(%s == %s)", a, b)
	case 2:
		return fmt.Sprintf("size(%s)", a)
	case 3:
		return fmt.Sprintf("(%s in %s)", a, b)
	case 4:
		return fmt.Sprintf("%s.all(x, type(x) == type(x) || %s)", a, b)
	case 5:
		return fmt.Sprintf("type(%s)", a)
	case 6:
		return fmt.Sprintf("(%s + %s)", a, b)
	case 7:
		return fmt.Sprintf("string(%s)", a)
	case 8:
		return fmt.Sprintf("%s.?%s.orValue(%s)", a, g.pick("name", "spec", "nope"), b)
	case 9:
		return fmt.Sprintf("%s[%s]", a, b)
	case 10:
		return fmt.Sprintf("(%s || %s)", a, b)
	case 11:
		return fmt.Sprintf("(%s ? %s : %s)", a, b, g.expression(depth-1))
	case 12:
		return fmt.Sprintf("[%s].exists(x, x == %s)", a, b)
	case 13:
		return fmt.Sprintf("%s.startsWith(%s)", a, b)
	case 14:
		return fmt.Sprintf("optional.ofNonZeroValue(%s).hasValue()", a)
	case 15:
		return fmt.Sprintf("(%s < %s)", a, b)
	case 16:
		return fmt.Sprintf("'%%s'.format([%s])", a)
	}
	return fmt.Sprintf("{'k': %s}.k", a)
}

// TestValuesGenerated compares both sides with generated expressions on all
// recordings.
func TestValuesGenerated(t *testing.T) {
	testGenerated(t, func(g *generator) string { return g.expression(1 + g.IntN(3)) })
}

func testGenerated(t *testing.T, expression func(*generator) string) {
	each := 5 // of every object, 1500 in all; compiling one takes 3 ms
	if testing.Short() {
		each = 1
	}
	start := seed.Of(t)
	evaluated, values := 0, 0
	for i, name := range corpus.Names() {
		var review struct {
			Request struct{ Object, OldObject json.RawMessage }
		}
		if err := json.Unmarshal(corpus.MustRead(name), &review); err != nil {
			t.Fatal(err)
		}
		for _, object := range []json.RawMessage{review.Request.Object, review.Request.OldObject} {
			if len(object) == 0 || string(object) == "null" {
				continue
			}
			g := newGenerator(start+uint64(i), object)
			for range each {
				evaluated++
				if compareValues(t, object, expression(g)) {
					values++
				}
			}
		}
	}
	if t.Logf("%d of %d expressions had a value, closures: %+v", values, evaluated, closures); values*20 < evaluated {
		t.Errorf("got a value from %d of %d expressions, want a twentieth at least", values, evaluated)
	}
}

func FuzzValues(f *testing.F) {
	f.Add([]byte(sample), uint64(1))
	fuzz(f, func(g *generator) string { return g.expression(1 + g.IntN(3)) })
}

func fuzz(f *testing.F, expression func(*generator) string) {
	f.Fuzz(func(t *testing.T, object []byte, start uint64) {
		var content unstructured.Unstructured
		if content.UnmarshalJSON(object) != nil {
			t.Skip()
		}
		canonical, err := content.MarshalJSON() // without duplicate members, which are read as codec reads them
		if err != nil {
			t.Skip()
		}
		g := newGenerator(start, canonical)
		for range 8 {
			compareValues(t, canonical, expression(g))
		}
	})
}
