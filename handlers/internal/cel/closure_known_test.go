package cel

import (
	"fmt"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// known are expressions that closures evaluate to their end on the sample: they must
// not leave them to the interpreter.
var known = []string{
	// Constants.
	"1", "'a'", "null", "[]", "[1, 2]", "[['a'], []]", "{'a': [1]}", "{'a': 1}", "int('12') + object.int", "string(1) == object.text", "dyn([1]) == object.list",
	"timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z')", "duration('1h') > duration('1m') ? object.int : 0",
	"[object.int, object.text, object.map]", "[[object.int], [object.map]]", "[object.nil, object.yes, object.no, object.float, object.list, object.map]",
	// Paths.
	"object", "object.int", "object.float", "object.exp", "object.big", "object.neg", "object.text", "object.yes", "object.no", "object.nil", "object.map.d.e",
	"object.list[0]", "object.list[4][0]", "object.list[5].a", "object['map']['d']", "object.map['b']", "object.map[object.kind == 'X' ? 'a' : 'b']",
	"object.list[object.int]", "object.list[size(object.list) - 1]", "object.map[object.strings[1]]", "object[object.kind == 'X' ? 'map' : 'z'].a",
	"(object.yes ? object.map : object.same) == object.map", "object.yes ? object.int : object.float", "object.no ? object.int : object.float", "(object.yes ? object.int : 1) == 1",
	"(object.strings + ['z'])[3]", "(object.strings + ['z'])[object.int]",
	"object.items.filter(i, i.name == 'b')[0].name", "object.strings.map(s, [s])[1][0]", "object.text.split('b')[0]",
	// has().
	"has(object.map)", "has(object.map.a)", "has(object.map.c)", "has(object.map.z)", "has(object.int.z)", "has(object.bare.z)", "has(object.map.d.e)", "has(object.nil.z)",
	// Optional steps.
	"object.?map.orValue(1)", "object.?map.?a.orValue(5)", "object.?map.?z.orValue(5)", "object.?z.?y.orValue(object.int)", "object.map.?z.orValue(object.map)",
	"object.map[?'a'].orValue(5)", "object.map[?'z'].orValue(5)", "object.list[?0].orValue(5)", "object.list[?9].orValue(5)", "object.list[?-1].orValue(5)",
	"object.?map.a.orValue(1)", "object.?z.a.orValue(1)", "object.?map.a.hasValue()", "object.?z.a.hasValue()", "object.?nil.hasValue()", "object.?map.?z.hasValue()",
	"object.?items[0].?name.hasValue()", "(object.strings + ['z'])[?7].hasValue()", "(object.strings + ['z'])[?4].hasValue()", "(object.strings + ['z'])[?-1].hasValue()", "(object.strings + ['z'])[?0].orValue('')",
	"object.?nil.?z.hasValue()", "object.?text.?z.hasValue()", "object.text[?0].hasValue()", "object.?text[0].hasValue()", "object.?int.?z.orValue(3)",
	// The request and variables.
	"request", "request.name", "request.namespace", "request.operation == 'UPDATE'", "request.kind.kind", "request.dryRun", "request.userInfo.username", "request.?subResource.orValue('')",
	"has(request.name)", "has(request.subResource)", "request.options.kind", "variables.text", "variables.list[0]", "variables.map.a", "variables.map.?z.orValue(1)", "variables.number + 1",
	"has(variables.map.a)", "variables.text in ['x']", "variables.made.all(x, x == 'a')", "size(variables.made)", "'x' in variables.made", "variables.made[0]",
	"params.spec.testSize", "has(params.data)", "params.data.fakeString.startsWith('f')", "namespaceObject.metadata.name", "namespaceObject.metadata.labels['env']", "oldObject == object", "oldObject.int",
	// Operators.
	"object.yes && object.no", "object.no && object.nope", "object.yes && object.yes", "object.yes || object.nope", "object.no || object.yes", "object.no || object.no", "!object.yes", "!object.no",
	"object.int == 1", "object.int != 1", "object.int == 1.0", "object.int == 'a'", "'a' == object.int", "object.nil == null", "object.int == null", "null == object.map", "object.text == object.map",
	"object.yes == object.yes", "object.yes == object.no", "object.float == 1.5", "object.float == object.int", "object.map == object.same", "object.map != object.bare", "object.map == object.list",
	"object.list == object.list", "object.list == [1]", "object.map == {'a': 1}", "object.text == object.text", "object.text == 'a'",
	"object.int < 2", "object.int < 1", "object.int <= 1", "object.int <= 0", "object.int > 1", "object.int > 0", "object.int >= 1", "object.int >= 2", "object.text < 'b'", "object.text > object.empty",
	"string(object.text) < 'b'", "string(object.text) <= string(object.text)", "string(object.text) > 'b'", "string(object.text) >= 'b'", "'aa' < string(object.text)", "object.float < 2.0", "object.float >= object.int", "1.5 < dyn(2)",
	"object.text in ['a', 'b']", "object.kind in ['a', 'X']", "object.int in ['a']", "object.map in ['a']", "object.text in []", "object.text in [] ? 1 : object.int", "string(object.text in [])", "(object.nope in []) == object.no", "object.int in [object.int]", "'a' in object.map", "'z' in object.map",
	"1 in object.map", "'x' in object.list", "'y' in object.list", "1 in object.list", "2 in object.list", "null in object.list", "object.list[4] in object.list", "object.list[5] in object.list", "object.bare in object.list",
	"'a' in object.strings.map(s, s)", "[3] in object.list", "object.strings.exists(s, s in object.strings)", "object.strings.all(s, s in ['a', 'b', 'c'])", "object.int in object.list.map(i, i)", "'z' in object.text.split('b')",
	"object.int + 1", "object.int - 1", "object.int * 3", "6 / object.int", "7 % object.int", "-object.int", "-object.float", "object.text + 'a'", "string(object.text) + 'a'", "object.strings + object.strings",
	"object.list + [1]", "[1] + object.list", "object.float + 1.5", "'a' + object.kind + 'b'",
	// Functions.
	"size(object.text)", "size(object.list)", "size(object.map)", "object.text.size()", "size(object.strings + ['z'])", "size({'a': 1}) + object.int", "size([object.int])", "size('aé' + object.kind)",
	"object.text.startsWith('a')", "object.text.endsWith(object.empty)", "object.text.contains('b')", "object.text.contains(object.kind)", "object.kind.matches('[A-Z]')", "object.kind.matches('^a')", "object.text.matches(object.kind)", "matches(object.text, 'a')", "('12345678' + object.kind).matches('[A-Z]')",
	"object.kind.startsWith('Y')", "object.kind.endsWith('X')", "object.kind.contains('Y')", "(object.kind + 'Yz').startsWith('X')", "(object.kind + 'Yz').endsWith('Yz')", "('aé' + object.text).contains('é')",
	"string(object.int)", "int(object.float)", "double(object.int)", "string(object.yes)", "bool('true') == object.yes", "type(object.int)", "type(object.map)", "bytes(object.text)", "bytes(object.text) < b'a'", "uint(object.int) < 2u", "dyn(object.int)",
	"object.text.indexOf('b')", "object.text.indexOf('b', object.int)", "object.text.lastIndexOf('a')", "object.text.charAt(0)", "object.text.lowerAscii()", "object.text.upperAscii()", "object.text.trim()", "object.text.substring(1)", "object.text.substring(0, 2)",
	"object.text.replace('a', 'b')", "object.text.replace('a', 'b', 1)", "object.text.split('b')", "object.text.split('b', 1)", "object.strings.join()", "object.strings.join(', ')", "'%s and %d'.format([object.text, object.int])", "'%s'.format([object.map])", "'%s: %s'.format([object.kind, object.list])",
	"object.text.find('b')", "object.text.find(object.kind)", "object.text.findAll('[a-z]')", "object.text.findAll('[a-z]', 1)", "object.text.findAll(object.kind)", "object.strings.isSorted()", "object.strings.min()", "object.strings.max()", "[object.int].sum()",
	"quantity(object.quantity).isGreaterThan(quantity('1Mi'))", "quantity(object.quantity).compareTo(quantity('1Gi'))", "isQuantity(object.quantity)", "sign(quantity(object.quantity))", "quantity(object.quantity).add(quantity('1')).asInteger() > 1", "quantity(object.quantity).sub(1).isInteger()", "quantity(object.quantity).asApproximateFloat()",
	"quantity(object.quantity).isLessThan(quantity('1'))", "quantity(object.quantity).isInteger()", "isIP(object.ip)", "ip(object.ip).family()", "cidr('10.0.0.0/8').containsIP(object.ip)", "cidr('10.0.0.0/8').containsCIDR(object.ip + '/32')", "cidr(object.ip + '/8').masked().prefixLength()", "isCIDR(object.ip)",
	"isURL('https://' + object.kind)", "url('https://' + object.kind + ':1/a?b=c').getHost()", "url('https://' + object.kind + ':1/a').getHostname()", "url('https://' + object.kind + ':1/a').getPort()", "url('https://' + object.kind).getScheme()", "url('https://' + object.kind + '/a b').getEscapedPath()", "url('https://' + object.kind + '/?a=b').getQuery()",
	"semver('1.2.' + string(object.int)).minor()", "semver('1.2.' + string(object.int)).major()", "semver('1.2.' + string(object.int)).patch()", "isSemver(object.ip)", "semver('1.2.' + string(object.int)).isLessThan(semver('2.0.0'))",
	// Macros.
	"object.items.all(i, i.name != '')", "object.items.all(i, i.name == 'a')", "object.items.exists(i, i.name == 'b')", "object.items.exists(i, i.name == 'z')", "object.items.exists_one(i, i.name == 'a')", "object.items.exists_one(i, has(i.name))", "object.items.exists_one(i, i.name == 'z')",
	"object.none.all(i, i.name)", "object.none.exists(i, i.name)", "object.none.map(i, i.name)", "object.none.filter(i, i.name)", "object.none.exists_one(i, i.name)", "object.map.all(k, k != '')", "object.map.exists(k, k == 'd')", "object.map.map(k, k)", "object.map.filter(k, k in ['a', 'd'])",
	"object.items.map(i, i.name)", "object.items.map(i, [i.name])", "object.items.map(i, i.name == 'b', i.name + 'x')", "object.items.filter(i, has(i.v))", "object.items.filter(i, i.name == 'b').map(i, i.name)", "['a', 'b'].all(p, object.strings.exists(s, s == p))", "['a', 'z'].exists(p, p in object.map)", "['a', 'z'].map(p, p + object.kind)",
	"{'a': 1, 'b': 2}.all(k, k in object.map)", "{'a': 1}.map(k, object.map[k])", "object.strings.map(s, s + 'a').filter(s, s == 'aa').size()", "object.strings.map(s, s).all(s, s != '')", "object.strings.all(a, object.strings.exists(b, a == b && object.strings.exists(c, c == b)))", "object.strings.map(s, object.strings.map(t, t + s))",
	"object.items.all(i, object.strings.all(i, i != '') && has(i.name))", "object.strings.all(object, object != '') && object.yes",
}

// knownVariables are those of these expressions.
var knownVariables = []named{
	{name: "text", text: "object.text"}, {name: "list", text: "object.list"}, {name: "map", text: "object.map"}, {name: "number", text: "object.int"}, {name: "made", text: "object.strings.map(s, 'a')"},
}

const knownReview = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"group":"","version":"v1","kind":"X"},
	"resource":{"group":"","version":"v1","resource":"xs"},"requestKind":{"group":"","version":"v1","kind":"X"},"requestResource":{"group":"","version":"v1","resource":"xs"},
	"name":"x","namespace":"shop","operation":"UPDATE","userInfo":{"username":"alice","groups":["a"]},"object":%s,"oldObject":%[1]s,"dryRun":false,
	"options":{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}}}`

// TestClosuresKnown has closures, and not the interpreter, evaluate all these expressions,
// with the value and the cost that the interpreter comes to. With each limit of cost up
// to that cost they stop where the interpreter does.
func TestClosuresKnown(t *testing.T) {
	a := newAsked(t, fmt.Appendf(nil, knownReview, sample))
	namespace, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shop)
	if err != nil {
		t.Fatal(err)
	}
	c, d := NewCompiler(true), Declarations{Params: true, Authorizer: true}
	for _, v := range knownVariables {
		if x := c.AddVariable(v.name, v.text, d); x.Err != nil {
			t.Fatal(x.Err)
		}
	}
	env, err := c.env(d)
	if err != nil {
		t.Fatal(err)
	}
	in := NewInput(t.Context(), reviewOfBody(t, a.body))
	in.Cluster = someCluster{a, namespace}
	in.Params = types.NewStringInterfaceMap(types.DefaultTypeAdapter, params)
	for _, text := range known {
		compareKnown(t, c, in, env, text)
		compareKnown(t, c, in, env, "["+text+"]") // costs something after the expression
	}
}

func compareKnown(t *testing.T, c *Compiler, in *Input, env *celgo.Env, text string) {
	t.Helper()
	ast, issues := env.Compile(text)
	if issues != nil {
		t.Errorf("%s: %v", text, issues)
		return
	}
	limited := func(limit uint64) *program {
		p, err := newProgram(func() (celgo.Program, error) {
			return env.Program(ast, celgo.InterruptCheckFrequency(celconfig.CheckFrequency), boundCalls(env), boundLiteral, celgo.CostLimit(limit))
		})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	x := &Expression{Text: text, program: limited(celconfig.PerCallLimit), closure: c.build(env, ast)}
	if x.closure == nil {
		t.Errorf("%s: got no closure", text)
		return
	}
	e := c.Begin(in, 0)
	want, wantCost, _, wantErr := e.interpret(x)
	got, cost, ok, err := c.Begin(in, 0).runClosure(x) // which evaluates variables anew
	if wantErr != nil || err != nil || !ok || cost != wantCost || shown(got) != shown(want) {
		t.Errorf("%s: got %v, cost %d, %v, %v, want %v, cost %d, %v", text, got, cost, ok, err, want, wantCost, wantErr)
		return
	}
	for limit := range min(uint64(cost), 40) {
		_, wantCost, _, wantErr := e.interpret(&Expression{program: limited(limit)})
		f := &frame{Evaluation: e, cost: celconfig.PerCallLimit - limit}
		v := x.closure(f)
		if got := int64(f.cost) - int64(celconfig.PerCallLimit-limit); wantErr == nil || !f.stopped || got != wantCost {
			t.Errorf("%s with a limit of %d: got %d, kind %d, stopped %v, want %d, %v", text, limit, got, v.kind, f.stopped, wantCost, wantErr)
			return
		}
	}
}
