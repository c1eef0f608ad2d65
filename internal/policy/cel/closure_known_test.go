package cel

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
	"github.com/fastadmit/fastadmit/internal/policy/cel/closure"
)

// Closures can evaluate the expressions of these tests to their end on the sample: they
// must not leave them to the interpreter.

// TestKnownConstants tests constants, and operations on them.
func TestKnownConstants(t *testing.T) {
	compareKnown(t,
		"1", "'a'", "null", "[]", "[1, 2]", "[['a'], []]", "{'a': [1]}", "{'a': 1}", "int('12') + object.int", "string(1) == object.text",
		"dyn([1]) == object.list",
		"timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z')", "duration('1h') > duration('1m') ? object.int : 0",
		"[object.int, object.text, object.map]", "[[object.int], [object.map]]",
		"[object.nil, object.yes, object.no, object.float, object.list, object.map]",
	)
}

// TestKnownPaths tests members, elements, and whether they exist.
func TestKnownPaths(t *testing.T) {
	compareKnown(t,
		"object", "object.int", "object.float", "object.exp", "object.big", "object.neg", "object.text", "object.yes", "object.no",
		"object.nil", "object.map.d.e",
		"object.list[0]", "object.list[4][0]", "object.list[5].a", "object['map']['d']", "object.map['b']",
		"object.map[object.kind == 'X' ? 'a' : 'b']",
		"object.list[object.int]", "object.list[size(object.list) - 1]", "object.map[object.strings[1]]",
		"object[object.kind == 'X' ? 'map' : 'z'].a",
		"(object.yes ? object.map : object.same) == object.map", "object.yes ? object.int : object.float",
		"object.no ? object.int : object.float", "(object.yes ? object.int : 1) == 1",
		"(object.strings + ['z'])[3]", "(object.strings + ['z'])[object.int]",
		"object.items.filter(i, i.name == 'b')[0].name", "object.strings.map(s, [s])[1][0]", "object.text.split('b')[0]",
		"object.map[?object.kind].orValue(5)", "object.map[?object.strings[1]].orValue(5)", "object.yes ? size(object.list) : 0",
		"params.data['fake' + 'String']", "params.data[?'no' + 'pe'].orValue(1)", "object.list.map(x, x)[?object.int].orValue(1)",
		// a step, and a call behind it
		"(object.yes ? object.text : '') == 'a'", "(object.yes ? request.name : 'z') == 'aaa'",
		"(object.yes ? variables.text : 'z') == 'aaa'", "(object.yes ? params.data.fakeString : '') == 'a'",
		"(object.yes ? object : oldObject) == object",
		"has(object.map)", "has(object.map.a)", "has(object.map.c)", "has(object.map.z)", "has(object.int.z)", "has(object.bare.z)",
		"has(object.map.d.e)", "has(object.nil.z)",
	)
}

// TestKnownOptional tests optional steps.
func TestKnownOptional(t *testing.T) {
	compareKnown(t,
		"object.?map.orValue(1)", "object.?map.?a.orValue(5)", "object.?map.?z.orValue(5)", "object.?z.?y.orValue(object.int)",
		"object.map.?z.orValue(object.map)",
		"object.map[?'a'].orValue(5)", "object.map[?'z'].orValue(5)", "object.list[?0].orValue(5)", "object.list[?9].orValue(5)",
		"object.list[?-1].orValue(5)",
		"object.?map.a.orValue(1)", "object.?z.a.orValue(1)", "object.?map.a.hasValue()", "object.?z.a.hasValue()",
		"object.?nil.hasValue()", "object.?map.?z.hasValue()",
		"object.?items[0].?name.hasValue()", "(object.strings + ['z'])[?7].hasValue()", "(object.strings + ['z'])[?4].hasValue()",
		"(object.strings + ['z'])[?-1].hasValue()", "(object.strings + ['z'])[?0].orValue('')",
		"object.?nil.?z.hasValue()", "object.?text.?z.hasValue()", "object.text[?0].hasValue()", "object.?text[0].hasValue()",
		"object.?int.?z.orValue(3)",
	)
}

// TestKnownRequest tests the request, variables, parameters and the namespace.
func TestKnownRequest(t *testing.T) {
	compareKnown(t,
		"request", "request.name", "request.namespace", "request.operation == 'UPDATE'", "request.kind.kind", "request.dryRun",
		"request.userInfo.username", "request.?subResource.orValue('')",
		"has(request.name)", "has(request.subResource)", "request.options.kind", "variables.text", "variables.list[0]", "variables.map.a",
		"variables.map.?z.orValue(1)", "variables.number + 1",
		"has(variables.map.a)", "variables.text in ['x']", "variables.made.all(x, x == 'a')", "size(variables.made)",
		"'x' in variables.made", "variables.made[0]",
		"params.spec.testSize", "has(params.data)", "params.data.fakeString.startsWith('f')", "namespaceObject.metadata.name",
		"namespaceObject.metadata.labels['env']", "oldObject == object", "oldObject.int",
		"has(request.dryRun)", "request.userInfo.groups[1]", "'b' in request.userInfo.groups", "'z' in request.userInfo.groups",
		"size(request.userInfo.groups)", "request.userInfo.groups.exists(g, g == 'b')", "has(variables.text)", "has(variables.map)",
		"variables.nothing == null", "variables.nothing.?z.orValue(3)", "variables.typed == 'a'", "variables.typed + object.long",
		"size(variables.typed)",
	)
}

// TestKnownOperators tests operators.
func TestKnownOperators(t *testing.T) {
	compareKnown(t,
		"object.yes && object.no", "object.no && object.nope", "object.yes && object.yes", "object.yes || object.nope",
		"object.no || object.yes", "object.no || object.no", "!object.yes", "!object.no",
		"object.int == 1", "object.int != 1", "object.int == 1.0", "object.int == 'a'", "'a' == object.int", "object.nil == null",
		"object.int == null", "null == object.map", "object.text == object.map",
		"object.yes == object.yes", "object.yes == object.no", "object.float == 1.5", "object.float == object.int",
		"object.map == object.same", "object.map != object.bare", "object.map == object.list",
		"object.list == object.list", "object.list == [1]", "object.map == {'a': 1}", "object.text == object.text", "object.text == 'a'",
		"object.int < 2", "object.int < 1", "object.int <= 1", "object.int <= 0", "object.int > 1", "object.int > 0", "object.int >= 1",
		"object.int >= 2", "object.text < 'b'", "object.text > object.empty",
		"string(object.text) < 'b'", "string(object.text) <= string(object.text)", "string(object.text) > 'b'",
		"string(object.text) >= 'b'", "'aa' < string(object.text)", "object.float < 2.0", "object.float >= object.int", "1.5 < dyn(2)",
		"object.text in ['a', 'b']", "object.kind in ['a', 'X']", "object.int in ['a']", "object.map in ['a']", "object.text in []",
		"object.text in [] ? 1 : object.int", "string(object.text in [])", "(object.nope in []) == object.no",
		"object.int in [object.int]", "'a' in object.map", "'z' in object.map",
		"1 in object.map", "'x' in object.list", "'y' in object.list", "1 in object.list", "2 in object.list", "null in object.list",
		"object.list[4] in object.list", "object.list[5] in object.list", "object.bare in object.list",
		"'a' in object.strings.map(s, s)", "[3] in object.list", "object.strings.exists(s, s in object.strings)",
		"object.strings.all(s, s in ['a', 'b', 'c'])", "object.int in object.list.map(i, i)", "'z' in object.text.split('b')",
		"object.int + 1", "object.int - 1", "object.int * 3", "6 / object.int", "7 % object.int", "-object.int", "-object.float",
		"object.text + 'a'", "string(object.text) + 'a'", "object.strings + object.strings",
		"object.list + [1]", "object.list[4] + [1]", "[1] + object.list[4]", "[1] + object.list", "object.float + 1.5",
		"'a' + object.kind + 'b'",
		"object.int < 1.5", "1.5 > object.int", "object.nil in ['a']", "object.nil in [object.int]", "dyn(object.nil)",
		"object.list[3] == null", "object.?nil.orValue(1)", "object.int in ['', 'a']", "object.text in ['', 'a']", "b'a' in object.list",
		"b'a' in object.map", "[1] in object.map", "object.yes in object.list", "object.float in object.list", "object.nil in object.map",
		"object.strings in object.list", "2.0 in object.list", "[3] in object.list.map(l, l)",
		"object.long < object.long", "dyn(object.long) <= dyn(object.long)", "string(object.long) < string(object.long)",
		"string(object.long) <= string(object.long)", "string(object.long) > string(object.text)",
		"string(object.long) >= string(object.long)", "object.long == object.long", "object.long != object.text",
		"object.long + object.long", "string(object.long) + string(object.text)", "'a text of more than ten characters' + object.kind",
		"object.text + object.long", "bytes(object.long) + b'a'", "bytes(object.long) < bytes(object.long)", "bytes(object.long) >= b'a'",
	)
}

// TestKnownFunctions tests functions.
func TestKnownFunctions(t *testing.T) {
	compareKnown(t,
		"size(object.text)", "size(object.list)", "size(object.map)", "object.text.size()", "size(object.strings + ['z'])",
		"size({'a': 1}) + object.int", "size([object.int])", "size('aé' + object.kind)",
		"object.text.startsWith('a')", "object.text.endsWith(object.empty)", "object.text.contains('b')",
		"object.text.contains(object.kind)", "object.kind.matches('[A-Z]')", "object.kind.matches('^a')",
		"object.text.matches(object.kind)", "matches(object.text, 'a')", "('12345678' + object.kind).matches('[A-Z]')",
		"object.kind.startsWith('Y')", "object.kind.endsWith('X')", "object.kind.contains('Y')", "(object.kind + 'Yz').startsWith('X')",
		"(object.kind + 'Yz').endsWith('Yz')", "('aé' + object.text).contains('é')",
		"string(object.int)", "int(object.float)", "double(object.int)", "string(object.yes)", "bool('true') == object.yes",
		"type(object.int)", "type(object.map)", "bytes(object.text)", "bytes(object.text) < b'a'", "uint(object.int) < 2u",
		"dyn(object.int)",
		"object.text.indexOf('b')", "object.text.indexOf('b', object.int)", "object.text.lastIndexOf('a')", "object.text.charAt(0)",
		"object.text.lowerAscii()", "object.text.upperAscii()", "object.text.trim()", "object.text.substring(1)",
		"object.text.substring(0, 2)",
		"object.text.replace('a', 'b')", "object.text.replace('a', 'b', 1)", "object.text.split('b')", "object.text.split('b', 1)",
		"object.strings.join()", "object.strings.join(', ')", "'%s and %d'.format([object.text, object.int])",
		"'%s'.format([object.map])", "'%s: %s'.format([object.kind, object.list])",
		"object.text.find('b')", "object.text.find(object.kind)", "object.text.findAll('[a-z]')", "object.text.findAll('[a-z]', 1)",
		"object.text.findAll(object.kind)", "object.strings.isSorted()", "object.strings.min()", "object.strings.max()",
		"[object.int].sum()",
		"quantity(object.quantity).isGreaterThan(quantity('1Mi'))", "quantity(object.quantity).compareTo(quantity('1Gi'))",
		"isQuantity(object.quantity)", "sign(quantity(object.quantity))", "quantity(object.quantity).add(quantity('1')).asInteger() > 1",
		"quantity(object.quantity).sub(1).isInteger()", "quantity(object.quantity).asApproximateFloat()",
		"quantity(object.quantity).isLessThan(quantity('1'))", "quantity(object.quantity).isInteger()", "isIP(object.ip)",
		"ip(object.ip).family()", "cidr('10.0.0.0/8').containsIP(object.ip)", "cidr('10.0.0.0/8').containsCIDR(object.ip + '/32')",
		"cidr(object.ip + '/8').masked().prefixLength()", "isCIDR(object.ip)",
		"isURL('https://' + object.kind)", "url('https://' + object.kind + ':1/a?b=c').getHost()",
		"url('https://' + object.kind + ':1/a').getHostname()", "url('https://' + object.kind + ':1/a').getPort()",
		"url('https://' + object.kind).getScheme()", "url('https://' + object.kind + '/a b').getEscapedPath()",
		"url('https://' + object.kind + '/?a=b').getQuery()",
		"semver('1.2.' + string(object.int)).minor()", "semver('1.2.' + string(object.int)).major()",
		"semver('1.2.' + string(object.int)).patch()", "isSemver(object.ip)",
		"semver('1.2.' + string(object.int)).isLessThan(semver('2.0.0'))",
		"object.long.contains(object.long)", "object.long.startsWith(object.long)", "object.long.endsWith('or so')",
		"object.long.matches('[a-z]+')", "object.long.matches(object.kind)", "object.long.matches(object.long)",
		"object.long.lowerAscii()", "object.long.replace('a', 'b')", "object.long.split('a')", "object.long.substring(30)",
		"object.long.find('[0-9]')", "object.long.findAll('[a-z]')",
		"'%s'.format([object.long])", "bytes(object.long)", "string(bytes(object.long))", "object.long.indexOf('so')",
		"object.long.lastIndexOf('a')", "'aXa'.find(object.kind)", "'aXa'.findAll(object.kind)", "'aXa'.findAll(object.kind, 1)",
		"[object.long, object.long].join(object.long)", "isQuantity(object.long)", "size(object.long)", "[object.long].isSorted()",
		"[1.5].filter(f, f > object.float).sum()", "[duration('1s')].filter(d, object.no).sum()", "[object.int].indexOf(object.int)",
		"[2, 1, 2].lastIndexOf(object.int)",
	)
}

// TestKnownMacros tests macros.
func TestKnownMacros(t *testing.T) {
	compareKnown(t,
		"object.items.all(i, i.name != '')", "object.items.all(i, i.name == 'a')", "object.items.exists(i, i.name == 'b')",
		"object.items.exists(i, i.name == 'z')", "object.items.exists_one(i, i.name == 'a')", "object.items.exists_one(i, has(i.name))",
		"object.items.exists_one(i, i.name == 'z')",
		"object.none.all(i, i.name)", "object.none.exists(i, i.name)", "object.none.map(i, i.name)", "object.none.filter(i, i.name)",
		"object.none.exists_one(i, i.name)", "object.map.all(k, k != '')", "object.map.exists(k, k == 'd')", "object.map.map(k, k)",
		"object.map.filter(k, k in ['a', 'd'])",
		"object.items.map(i, i.name)", "object.items.map(i, [i.name])", "object.items.map(i, i.name == 'b', i.name + 'x')",
		"object.items.filter(i, has(i.v))", "object.items.filter(i, i.name == 'b').map(i, i.name)",
		"['a', 'b'].all(p, object.strings.exists(s, s == p))", "['a', 'z'].exists(p, p in object.map)",
		"['a', 'z'].map(p, p + object.kind)",
		"{'a': 1}.all(k, k in object.map)", "{'a': 1}.map(k, object.map[k])",
		"object.strings.map(s, s + 'a').filter(s, s == 'aa').size()", "object.strings.map(s, s).all(s, s != '')",
		"object.strings.all(a, object.strings.exists(b, a == b && object.strings.exists(c, c == b)))",
		"object.strings.map(s, object.strings.map(t, t + s))",
		"object.items.all(i, object.strings.all(i, i != '') && has(i.name))", "object.strings.all(object, object != '') && object.yes",
		// a part without cost, and a call behind it
		"object.strings.all(s, (true ? s : '') != 'z')", "object.strings.exists(s, (true ? s : '') == 'z')",
		"object.strings.exists_one(s, (true ? s : '') == 'a')", "object.strings.map(s, true ? s : '')",
		"object.strings.map(s, (true ? s : '') != 'z', s)", "object.strings.filter(s, (true ? s : '') == 'a')",
		"['a'].all(s, s == object.kind)", "['a'].exists(s, s == object.kind)", "['X'].exists_one(s, s == object.kind)",
		"['a'].map(s, s + object.kind)", "['a'].filter(s, s == object.kind)", "['a'].map(s, true ? s : object.kind)",
	)
}

// knownVariables are the variables of these expressions.
var knownVariables = []named{
	{name: "text", text: "object.text"}, {name: "list", text: "object.list"}, {name: "map", text: "object.map"},
	{name: "number", text: "object.int"}, {name: "made", text: "object.strings.map(s, 'a')"},
	{name: "typed", text: "string(object.text)"}, {name: "nothing", text: "object.nil"},
}

const knownReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{
	"uid":"1","kind":{"group":"","version":"v1","kind":"X"},
	"resource":{"group":"","version":"v1","resource":"xs"}, "requestKind":{"group":"","version":"v1","kind":"X"},
	"requestResource":{"group":"","version":"v1","resource":"xs"},
	"name":"x","namespace":"shop","operation":"UPDATE","userInfo":{"username":"alice","groups":["a","b","c"]},"object":%s,"oldObject":%s,
	"options":{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}}}`

// rotated returns objects with the members of the sample, but each with the value of
// another member. So each expression gets each kind of value in each place.
func rotated(t *testing.T) (objects []string) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(sample), &members); err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(members))
	values := []string{`[{},{"name":"a"},{"name":1},{"name":"b"}]`, `["b",["a"],{"a":{}},1e300]`}
	for _, name := range names {
		values = append(values, string(members[name]))
	}
	for shift := range values {
		var b strings.Builder
		for i, name := range names {
			fmt.Fprintf(&b, `,%q:%s`, name, values[(i+shift)%len(values)])
		}
		objects = append(objects, "{"+b.String()[1:]+"}")
	}
	return append(objects, `{"kind":"X"}`, "null")
}

// compareKnown compares closures of expressions with the interpreter: on the sample, where
// closures must finish, and on other objects, where they may give up.
func compareKnown(t *testing.T, expressions ...string) {
	t.Helper()
	for _, v := range []admission.Version{admission.Newest(), release(t, "1.36")} {
		compareKnownIn(t, v, expressions)
	}
}

func release(t *testing.T, text string) admission.Version {
	t.Helper()
	v, _, err := admission.ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func compareKnownIn(t *testing.T, v admission.Version, expressions []string) {
	t.Helper()
	namespace, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shop)
	if err != nil {
		t.Fatal(err)
	}
	inputOf := func(object string) *Input {
		a := newAsked(t, fmt.Appendf(nil, knownReview, "null", "null"))
		in := NewInput(t.Context(), reviewOfBody(t, fmt.Appendf(nil, knownReview, object, sample)))
		in.Cluster = someCluster{a, namespace}
		in.Params = types.NewStringInterfaceMap(types.DefaultTypeAdapter, params)
		return in
	}
	c, d := NewCompiler(true), Declarations{Params: true, Authorizer: true}
	c.Version = v
	for _, v := range knownVariables {
		if x := c.AddVariable(v.name, v.text, d); x.Err != nil {
			t.Fatal(x.Err)
		}
	}
	env, err := c.env(d)
	if err != nil {
		t.Fatal(err)
	}
	in := inputOf(sample)
	var others []*Input
	for _, object := range rotated(t) {
		others = append(others, inputOf(object))
	}
	for _, text := range expressions {
		text = "[" + text + "]" // adds some cost after the expression
		ast, issues := env.Compile(text)
		if issues != nil {
			t.Errorf("%s: %v", text, issues)
			continue
		}
		k := knownExpression{c, text, closure.New(env, ast, c.variableNames(), c.Version), func(limit uint64) *program {
			return &program{plan: func() (celgo.Program, error) {
				return env.Program(ast, append(calls.Options(env, ast, c.Version), celgo.CostLimit(limit))...)
			}}
		}}
		if k.closure == nil {
			t.Errorf("%s: got no closure", text)
			continue
		}
		k.compare(t, in)
		k.compareOthers(t, others)
	}
}

// A knownExpression is compiled for both closures and the interpreter.
type knownExpression struct {
	compiler *Compiler
	text     string
	closure  closure.Evaluator
	limited  func(limit uint64) *program // the program with another limit of cost
}

// compare expects the closure to have the same value and cost as the interpreter. With
// each lower limit of cost, it must stop where the interpreter does.
func (k *knownExpression) compare(t *testing.T, in *Input) {
	t.Helper()
	x := &Expression{program: k.limited(celconfig.PerCallLimit), closure: k.closure}
	e := k.compiler.Begin(in, 0)
	want, wantCost, _, wantErr := e.interpret(x)
	got, cost, ok, err := k.closure.Evaluate(&k.compiler.Begin(in, 0).closures, celconfig.PerCallLimit) // evaluates variables anew
	if wantErr != nil || err != nil || !ok || cost != wantCost || shown(got) != shown(want) {
		t.Errorf("%s: got %v, cost %d, %v, %v, want %v, cost %d, %v", k.text, got, cost, ok, err, want, wantCost, wantErr)
		return
	}
	for limit := range min(uint64(cost), 40) {
		_, wantCost, _, wantErr := e.interpret(&Expression{program: k.limited(limit)})
		_, got, ok, err := k.closure.Evaluate(&e.closures, limit)
		if !ok || !isCostLimit(err) || !isCostLimit(wantErr) || got != wantCost {
			t.Errorf("%s with a limit of %d: got %d, %v, %v, want %d, %v", k.text, limit, got, ok, err, wantCost, wantErr)
			return
		}
	}
}

// compareStops expects that a closure that gives up stops only where the interpreter does.
func (k *knownExpression) compareStops(t *testing.T, in *Input) {
	t.Helper()
	var got int64
	var most uint64
	for limit := range uint64(40) {
		_, cost, _, err := k.closure.Evaluate(&k.compiler.Begin(in, 0).closures, limit)
		if err == nil {
			break
		}
		got, most = cost, limit
	}
	if got == 0 {
		return
	}
	_, want, _, err := k.compiler.Begin(in, 0).interpret(&Expression{program: k.limited(most)})
	if !isCostLimit(err) || got != want {
		t.Errorf("%s with a limit of %d, of %.300s: got %d, want %d, %v", k.text, most, in.view.Object.JSON().JSON(), got, want, err)
	}
}

// compareOthers expects the closure to give up, or to have the same result as the
// interpreter.
func (k *knownExpression) compareOthers(t *testing.T, others []*Input) {
	t.Helper()
	x := &Expression{program: k.limited(celconfig.PerCallLimit), closure: k.closure}
	for i, in := range others {
		got, cost, ok, err := k.closure.Evaluate(&k.compiler.Begin(in, 0).closures, celconfig.PerCallLimit)
		if !ok {
			k.compareStops(t, in)
			continue
		}
		want, wantCost, _, wantErr := k.compiler.Begin(in, 0).interpret(x)
		if err != nil || wantErr != nil || cost != wantCost || shown(got) != shown(want) {
			t.Errorf(
				"%s of object %d, %.300s: got %v, cost %d, %v, want %v, cost %d, %v", k.text, i, in.view.Object.JSON().JSON(), got, cost,
				err, want, wantCost, wantErr,
			)
		}
	}
}

// isCostLimit reports whether the evaluation was stopped because of its cost.
func isCostLimit(err error) bool {
	canceled, ok := errors.AsType[interpreter.EvalCancelledError](err)
	return ok && canceled.Cause == interpreter.CostLimitExceeded
}
