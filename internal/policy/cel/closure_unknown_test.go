package cel

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/internal/policy/cel/closure"
)

// unknown is a part of an expression for which there is no closure. Its value is an int.
const unknown = "{'a': object.int}.a"

// TestUpstreamUnknown puts a part without a closure into each place of an expression: the
// interpreter evaluates the whole expression.
func TestUpstreamUnknown(t *testing.T) {
	var p expressionsOf
	for _, format := range []string{
		"U", "[U]", "[object.int, U]", "U && true", "true && U", "U || true", "false || U", "!U", "object.yes && object.int",
		"object.no || object.int", "!object.int", "object.nope || object.no", "object.int || object.no", "object.int && object.yes",
		"!(U == 1)", "(U == 3) && object.yes", "object.yes && (U == 3)",
		"U == 3 ? 1 : 2", "object.yes ? U : 1", "object.no ? object.int : U", "U == 3", "3 == U", "U != 3", "U < 4", "4 > U", "U in [3]",
		"U in ['3']", "3 in [U]", "object.int in [U]", "U in object.list", "U in []",
		"U + 1", "1 + U", "object.int + U", "U - 1", "object.int - U", "-U", "size([U])", "size(dyn(string(U)))",
		"string(U).startsWith('3')", "'3'.startsWith(string(U))", "'3'.contains(string(U))", "string(U).matches('3')",
		"object.text.matches(string(U))",
		"object.text.split(string(U))", "int(string(U))", "string(U)", "dyn(U)", "type(U)", "object.list[U]",
		"object.list[?U].orValue(7)", "object.map[string(U)]", "object.?nope.orValue(U)", "object.?int.orValue(U)",
		"object.?text[U].hasValue()",
		"[U].all(x, x == 3)", "object.list.all(x, U == 3)", "object.list.exists(x, U == 4)", "[U].exists(x, x == 4)",
		"object.list.map(x, U)", "object.list.map(x, U == 3, x)", "object.list.map(x, x == 1, U)", "object.list.filter(x, U == 3)",
		"object.list.exists_one(x, U == 3)",
		"[U].map(x, x)", "[U].filter(x, x == 3)", "[U].exists_one(x, x == 3)", "has({'a': U}.a)", "{'a': U}.a", "{'a': U}.?a.orValue(1)",
		"[U][0]", "optional.of(U).orValue(1)", "object.?map.?a", "object.?int.optMap(x, x + U).orValue(1)",
		"cel.bind(x, U, x + 1)", "cel.bind(x, object.int, x + 1)", "cel.bind(x, true, x)", "cel.bind(x, true, x && object.yes)",
		"object.list.all(i, v, i < 9)", "object.list.transformList(i, v, v)", "object.list.map(x, 1)", "object.list.filter(x, true)",
		"{'a': 1}.a", "[[1]][0][0]", "has({'a': 1}.b)", "object.int in [1, 2, 3]", "3 in lists.range(5)", "sets.contains([3], [U])",
		"lists.range(U)", "[3, 1].sort() == [1, U]", "[object.list].sortBy(l, size(l))", "math.greatest(U, 4)",
		"object.int.map(x, x)", "object.int.filter(x, x)", "object.int.exists_one(x, x)", "dyn(1).all(x, x)", "object.text.exists(x, x)",
		"object.list.map(x, x.nope)", "object.list.filter(x, x)", "object.list.exists_one(x, x.nope)", "object.list.all(x, x)",
		"[object.map].all(request, request.a == 1)", "[object.map].map(variables, variables.a)",
		"[object.map].exists(request, has(request.name))", "{?'a': dyn(1)}", "dyn(quantity('1')).all(x, x)", "dyn(b'a').exists(x, x)",
		"[?object.?nope]", "[?object.?int, 1]", "{?'a': object.?int}", "{'a': 1, ?'b': object.?nope}", "[1, 2].map(x, {'a': x})",
		"object.list.map(x, [x, 1][0])", "object.list.filter(x, {'a': x}.a == 1)", "object.list.exists_one(x, {'a': x}.a == 1)",
		"object.list.all(x, {'a': x}.a != 7)", "object.list.map(x, {'a': x}.a == 1, x)", "object.list.map(x, x == 1, {'a': x}.a)",
		"(object.yes ? object.map : object.list).a", "(object.yes ? object.?map : object.?list).a.orValue(1)",
		"(object.?map).?a.orValue(2)",
		"object.nope.?x.hasValue()", "object.nope.?x.orValue(1)", "object.map[?string(U)].orValue(5)", "lists.range(object.int)[0]",
		"object.text.find('[')", "object.text.findAll('[')", "string(object.nope).indexOf(object.list.map(x, 'a').join())",
		"object.text.orValue(1)", "object.text.hasValue()", "optional.none().orValue(object.int)", "optional.of(1).hasValue()",
		"object.?int.orValue(1) + U", "object.?nope.or(object.?int).orValue(1)", "object.?int.value()", "dyn(object.?int).orValue(2)",
		"has(object.?map.a)", "has(object.?nope.a)", "object[object.?nope]", "object.list[object.?nope]",
		"object.yes ? object.?int : object.?nope", "object.text.matches(object.nope)",
		"'['.matches('a') && object.text.matches('a' + '[')", "string(object.?int)",
		"'10.0.0.1' == object.text || ip('10.0.0.1') == ip(string(object.text))", "quantity('1') == quantity('1000m')",
		"quantity('1') in [quantity('1')]", "dyn(quantity('1')) == object.int", "object.list == [quantity('1')]",
		"object.list.exists(x, dyn(x) == dyn(ip('::1')))",
		"dyn(timestamp('2024-01-01T00:00:00Z')).matches(object.text)", "dyn(duration('1s')).matches(object.text)",
		"dyn(1).matches(object.text)", "matches(string(object.int), object.text)", "dyn([1]).matches(object.text)",
		"dyn(timestamp('2024-01-01T00:00:00Z')).indexOf(object.text, 1)", "dyn(1).replace(object.text, object.text)",
		"dyn('a').replace(object.nope, object.list.map(x, 'a').join())",
		"dyn('a').replace('a', object.nope, object.list.map(x, 1).size())",
		"dyn(object.nope).replace('a', object.list.map(x, 'a').join())", "dyn('abc').findAll(object.nope, object.list.map(x, 1).size())",
		"dyn('abc').find(object.nope + 'a')", "dyn(object.nope).find(object.list.map(x, 'a').join())",
		"dyn(object.nope).matches(object.list.map(x, 'a').join())",
		"dyn(object.nope).join(object.list.map(x, 'a').join())", "dyn(object.nope).indexOf(object.list.map(x, 'a').join())",
		"dyn(object.nope).format([object.list.map(x, 'a')])", "sets.contains(dyn(object.nope), object.list.map(x, dyn('a')))",
		"dyn(object.nope).distinct()",
		"dyn('a').indexOf(object.nope, object.list.map(x, 1).size())", "dyn('aa').lastIndexOf('a', object.list.map(x, 1).nope)",
		"dyn(b'a').indexOf('a')", "dyn('%s').format(object.nope)", "'%s'.format([{dyn(double('NaN')): 1}])",
		"[object].all(request, request.kind == 'X')", "dyn(b'a') in ['x']", "dyn(bytes(object.text)) in ['x']",
		"'b' in request.userInfo.groups", "string(U) in request.userInfo.groups", "size({'a': U})", "size({string(U): 1})",
		"size({'a': object.int, 'b': 1})", "isQuantity(string(object.nope))", "quantity(object.text)", "quantity(string(object.nope))",
	} {
		p.conditions = append(p.conditions, named{text: strings.ReplaceAll(format, "U", unknown), returns: Any})
	}
	object := `{"kind":"X","int":3,"yes":true,"no":false,"text":"a3b","list":[1,3,"a",null],"map":{"a":1,"3":2}}`
	a, values := newAsked(t, review("UPDATE", object, "null")), 0
	for c := range slices.Chunk(p.conditions, 100) {
		values += (&expressionsOf{conditions: c}).compareWithUpstream(t, 1e12, a)
	}
	if values < len(p.conditions)/2 {
		t.Errorf("%d of %d had a value, want more", values, len(p.conditions))
	}
}

// TestClosuresInterrupted expects loops in closures to end with the context.
func TestClosuresInterrupted(t *testing.T) {
	needsClosures(t)
	text := fmt.Appendf(nil, `{"kind":"X","list":%s}`, numbered(10*celconfig.CheckFrequency))
	for _, expression := range []string{
		"object.list.all(x, x != '')", "object.list.exists(x, x == '')", "size(object.list.map(x, x)) > 0",
		"size(object.list.filter(x, x != '')) > 0", "object.list.exists_one(x, x == '1')",
	} {
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		if x.Err != nil || x.closure == nil {
			t.Fatalf("%s: got no closure: %v", expression, x.Err)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{t.Context(), canceled} {
			e := new(Compiler).Begin(NewInput(ctx, reviewOf(t, text)), celconfig.RuntimeCELCostBudget)
			if _, _, ok, _ := x.closure.Evaluate(&e.closures, celconfig.PerCallLimit); ok != (ctx == t.Context()) {
				t.Errorf("%s: got an end by the closure: %v, by the context: %v", expression, ok, ctx.Err())
			}
			_, err, fatal := e.Evaluate(x)
			if interrupted := err != nil && strings.Contains(
				err.Error(), "operation interrupted",
			); fatal != nil || interrupted != (ctx == canceled) {
				t.Errorf("%s: got %v, %v, the context's error is %v", expression, err, fatal, ctx.Err())
			}
		}
	}
}

// TestReleased expects released Inputs and Evaluations not to reference a review.
func TestReleased(t *testing.T) {
	needsClosures(t)
	c := NewCompiler(true)
	c.AddVariable("v", "object.kind + 'a'", Declarations{})
	x := c.Compile("[object.kind].all(k, k != variables.v) && request.operation != ''", Declarations{}, Bool)
	in := newInput(t, t.Context())
	in.Params, in.HidesNamespace = orNull(nil), true
	first, second := c.Begin(in, celconfig.RuntimeCELCostBudget), c.Begin(in, celconfig.RuntimeCELCostBudget)
	for _, e := range []*Evaluation{first, second} {
		if _, err, fatal := e.Evaluate(x); err != nil || fatal != nil {
			t.Fatal(err, fatal)
		}
	}
	first.End()
	second.End()
	if in.evaluations != second || second.next != first || first.next != nil {
		t.Error("got other evaluations to take, want both")
	}
	for _, e := range []*Evaluation{first, second} {
		left := *e
		left.variables.values, left.next = nil, nil
		if !reflect.ValueOf(left).IsZero() || len(e.variables.values) != 0 || cap(e.variables.values) == 0 {
			t.Errorf("got %+v after End", e)
		}
		if v := e.variables.values[:1][0]; v != nil {
			t.Errorf("got the variable %v after End", v)
		}
	}
	again := []*Evaluation{c.Begin(in, 1), c.Begin(in, 1), c.Begin(in, 1)}
	if again[0] != second || again[1] != first || again[2] == first || again[2] == second {
		t.Error("got other evaluations, want those that ended, each once")
	}
	first.End()
	second.End()
	evaluations, frames := in.evaluations, in.frames
	in.Release()
	if in.evaluations != evaluations || in.frames != frames || frames == (closure.Frames{}) {
		t.Error("got other memory after Release, want evaluations and frames")
	}
	left := *in
	if len(left.remembered) != 0 || left.remembered == nil {
		t.Errorf("got the results %v after Release, want an empty map", left.remembered)
	}
	left.evaluations, left.frames, left.remembered = nil, closure.Frames{}, nil
	if !reflect.ValueOf(left).IsZero() {
		t.Errorf("got %+v after Release", in)
	}
	frame := reflect.ValueOf(in.frames).FieldByName("free").Elem()
	if !frame.FieldByName("Input").IsNil() || !frame.FieldByName("slots").IsZero() {
		t.Errorf("got the frame %v after Release", frame)
	}
	if again := newInput(t, t.Context()); again.HidesNamespace || again.Spent != 0 || !again.view.Object.JSON().Exists() {
		t.Errorf("got %+v, want a new Input", again)
	}
}

// TestUnreadableNumbers tests numbers that a float64 cannot represent, which API servers
// never send: an expression that reads one fails.
func TestUnreadableNumbers(t *testing.T) {
	needsClosures(t)
	text := []byte(`{"kind":"X","n":1e999,"list":[1e999,1],"map":{"n":1e999}}`)
	for _, expression := range []string{
		"object.n == 1", "object.n in ['a']", "object.list.all(x, x == 1)", "object.list.map(x, x) == []", "object.list[0] == 1",
		"object.list[?0].orValue(1) == 1",
		"[object.n] == []", "object.map.n < 1", "object.?n.orValue(1) == 1", "object.n + 1 == 1", "1 + object.n == 1", "!object.n",
		"object.n ? true : false", "object.n && true", "true && object.n", "size(object.n) == 1", "object.kind.startsWith(object.n)",
		"object.n.startsWith(object.kind)",
	} {
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		if x.Err != nil || x.closure == nil {
			t.Fatalf("%s: got no closure: %v", expression, x.Err)
		}
		in := NewInput(t.Context(), reviewOf(t, text))
		value, err, fatal := new(Compiler).Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(x)
		if err == nil || fatal != nil || !strings.Contains(err.Error(), "cannot read number") {
			t.Errorf("%s: got %v, %v, %v, want an error of the number", expression, value, err, fatal)
		}
	}
}
