package cel

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// needsClosures skips a test of closures in a run without them.
func needsClosures(t *testing.T) {
	t.Helper()
	if evaluator == onlyInterpreter {
		t.Skip("only the interpreter evaluates in this run")
	}
}

// TestInterpreterOnly expects no closure if only the interpreter is to evaluate, and the
// same value and cost.
func TestInterpreterOnly(t *testing.T) {
	needsClosures(t)
	const text = "object.spec.containers.all(c, c.name != '')"
	var spent [2]int64
	for i, only := range []bool{false, true} {
		c := &Compiler{InterpreterOnly: only}
		x := c.Compile(text, Declarations{}, Bool)
		if x.Err != nil || (x.closure == nil) != only || (x.program.made == nil) == only {
			t.Errorf("only the interpreter: %v: got a closure: %v, a program: %v, %v", only, x.closure != nil, x.program.made != nil, x.Err)
		}
		in := newInput(t, t.Context())
		if value, err, fatal := c.Begin(in, celconfig.RuntimeCELCostBudget).Evaluate(x); value != types.True || err != nil || fatal != nil {
			t.Errorf("only the interpreter: %v: got %v, %v, %v, want true", only, value, err, fatal)
		}
		spent[i] = in.Spent
	}
	if spent[0] != spent[1] || spent[0] == 0 {
		t.Errorf("got costs %v, want the same", spent)
	}
}

// closures counts the comparisons of compareClosure.
var closures struct{ expressions, built, gaveUp int }

// compareClosure evaluates an expression that has a closure, and compares its result with
// that of the interpreter.
func compareClosure(t testing.TB, x *Expression, text []byte, want result) {
	t.Helper()
	closures.expressions++
	if x.closure == nil {
		return
	}
	closures.built++
	e := new(Compiler).Begin(NewInput(t.Context(), reviewOf(t, text)), 0)
	value, cost, ok, err := x.closure.Evaluate(&e.closures, celconfig.PerCallLimit)
	if !ok {
		closures.gaveUp++
		return
	}
	got := result{cost: uint64(cost)}
	if err != nil {
		got.err = err.Error()
	} else {
		got.value = plain(value)
	}
	if !reflect.DeepEqual(got, want) || e.review.Err() != nil {
		t.Errorf("closure of %s of %.300s\ngot  %v, %v\nwant %v", x.Text, text, got, e.review.Err(), want)
	}
}

// test makes an expression of type bool, as policies have them.
func (g *generator) test(depth int, element string) string {
	path := func() string { return g.paths[g.IntN(len(g.paths))] }
	if g.IntN(8) == 0 {
		path = g.path
	}
	if element != "" {
		path = func() string {
			return g.pick(element, element+".name", element+".image", element+".nope", element+"['name']", g.path())
		}
	}
	if depth > 0 && g.IntN(3) > 0 {
		a, b := g.test(depth-1, element), g.test(depth-1, element)
		switch g.IntN(7) {
		case 0:
			return fmt.Sprintf("(%s && %s)", a, b)
		case 1:
			return fmt.Sprintf("(%s || %s)", a, b)
		case 2:
			return "!" + a
		case 3:
			return fmt.Sprintf("(%s ? %s : %s)", a, b, g.test(depth-1, element))
		case 4:
			list := "[1, 'a', null]" // not a map, whose order varies
			if len(g.lists) > 0 {
				list = g.lists[g.IntN(len(g.lists))]
			}
			return fmt.Sprintf("%s.%s(e%d, %s)", list, g.pick("all", "exists"), depth, g.test(depth-1, fmt.Sprintf("e%d", depth)))
		case 5:
			return fmt.Sprintf("(%s ? %s : %s) == %s", a, path(), path(), path())
		}
	}
	literal := g.pick(
		"'a'", "''", "'app'", "1", "0", "true", "false", "null", "1.5", "['a', 'b']", "[]", "[1, 'a']",
		"'registry.example.com/a/long/name:latest'",
	)
	switch g.IntN(16) {
	case 13, 14:
		return g.collection(path)
	case 15:
		return g.function(path)
	case 0:
		return fmt.Sprintf("has(%s.%s)", path(), g.pick("name", "labels", "spec", "nope", "image"))
	case 1:
		return fmt.Sprintf("%s %s %s", path(), g.pick("==", "!="), literal)
	case 2:
		return fmt.Sprintf("%s %s %s", path(), g.pick("==", "!="), path())
	case 3:
		return fmt.Sprintf("%s in %s", g.pick("'app'", "'name'", "1", "null", path()), path())
	case 4:
		return fmt.Sprintf("%s in %s", path(), g.pick("['a', 'app', 'Always', 'Pod', 'v1']", "[]", "[1, 2]", "['a', 1]", "[null]"))
	case 5:
		return fmt.Sprintf("size(%s) %s %s", path(), g.pick("<", "<=", ">", ">=", "==", "!="), g.pick("0", "1", "2", "10", "2.0"))
	case 6:
		return fmt.Sprintf("%s.%s(%s)", path(), g.pick("startsWith", "endsWith", "contains", "matches"),
			g.pick("'a'", "''", "'app'", "'o'"))
	case 7:
		return fmt.Sprintf(
			"%s.?%s.orValue(%s) == %s", path(), g.pick("name", "labels", "nope"), g.pick("'a'", "1", "false", path()),
			g.pick(literal, path()),
		)
	case 8:
		return fmt.Sprintf("%s.?%s.?%s.hasValue()", path(), g.pick("name", "metadata", "spec", "nope"), g.pick("name", "labels", "nope"))
	case 9:
		return fmt.Sprintf("%s[%s] == %s", path(), g.pick("0", "1", "'name'", g.path(), "-1", "size("+path()+") - 1"), path())
	case 10:
		return fmt.Sprintf("%s[?%s].orValue('a') == 'a'", path(), g.pick("0", "'name'", "'nope'", g.path()))
	case 11:
		return fmt.Sprintf("%s %s %s", path(), g.pick("<", "<=", ">", ">="), g.pick(path(), "1", "'b'", "'a'"))
	}
	return fmt.Sprintf("%s.matches('%s')", path(), g.pick("^[a-z]+$", "latest$", "a*b", ".*", "x|y"))
}

// collection makes an expression about the results of macros.
func (g *generator) collection(path func() string) string {
	list := func() string {
		if len(g.lists) > 0 && g.IntN(3) > 0 {
			return g.lists[g.IntN(len(g.lists))]
		}
		return g.pick("[]", "['a', 'b', 'a']", "[1, 2.0, 'a']", "["+path()+", 1]", path())
	}
	of := func(element string) string {
		return g.pick(
			element+" == 'a'", "has("+element+".name)", element+".name != "+path(), element+" in ['a', 'Pod']", "true",
			element+".?name.hasValue()", element,
		)
	}
	made := g.pick("c", "c.name", "c.name + '/' + "+path(), "[c, c]", "size(c.name)", "c == "+path()+" ? 'a' : c", "1")
	collected := g.pick(
		fmt.Sprintf("%s.filter(c, %s)", list(), of("c")),
		fmt.Sprintf("%s.map(c, %s)", list(), made),
		fmt.Sprintf("%s.map(c, %s, %s)", list(), of("c"), made),
		fmt.Sprintf("(%s + %s).filter(c, %s).map(c, %s)", list(), list(), of("c"), made),
		fmt.Sprintf("(%s + %s)", list(), list()),
		fmt.Sprintf("(%s ? %s : %s)", of(path()), list(), list()),
		fmt.Sprintf("%s.?name.orValue(%s)", path(), g.pick("[]", "{}", "{'a': 1}")))
	switch g.IntN(6) {
	case 0:
		return fmt.Sprintf("%s.exists_one(c, %s)", list(), of("c"))
	case 1:
		return fmt.Sprintf("size(%s) %s %s", collected, g.pick("==", ">", "<="), g.pick("0", "1", "size("+list()+")"))
	case 2:
		return fmt.Sprintf("%s[%s] == %s", collected, g.pick("0", "1", "-1", "'a'"), path())
	case 3:
		return fmt.Sprintf("%s in %s", path(), collected)
	case 4:
		return fmt.Sprintf("%s.all(d, %s)", collected, of("d"))
	}
	return fmt.Sprintf("%s == %s", collected, list())
}

// function makes an expression that calls functions.
func (g *generator) function(path func() string) string {
	text := func() string {
		return g.pick("'a,b'", "'100m'", "'v1.2.3'", "''", "'"+g.pick("ä", "a", "1")+"' + "+path(), path(), path(), "string("+path()+")")
	}
	return g.pick(
		fmt.Sprintf("%s + %s == %s", text(), text(), text()),
		fmt.Sprintf(
			"%s %s %s %s %s", path(), g.pick("+", "-", "*", "/", "%"), g.pick("1", "2.0", "0", path()), g.pick("==", "<", ">="),
			g.pick("1", "0", "1.5", path()),
		),
		fmt.Sprintf("-%s < 1", path()),
		fmt.Sprintf("(%s).split('%s')[%d].%s('a')", text(), g.pick(",", ".", "/"), g.IntN(2), g.pick("contains", "startsWith")),
		fmt.Sprintf("(%s).split(',').join('-') == %s", text(), path()),
		fmt.Sprintf("(%s).%s() == %s", text(), g.pick("lowerAscii", "upperAscii", "trim"), path()),
		fmt.Sprintf("(%s).replace('a', %s) != %s", text(), g.pick("'b'", path()), path()),
		fmt.Sprintf("(%s).substring(%s) == 'a'", text(), g.pick("0", "1", "1, 2", "0, "+path())),
		fmt.Sprintf("(%s).indexOf('a') >= 0", text()),
		fmt.Sprintf("(%s).find%s.size() > 0", text(), g.pick("('[a-z]+')", "All('[a-z]')", "All('[a-z]', 1)", "All("+path()+")")),
		fmt.Sprintf("(%s).matches(%s)", text(), path()),
		fmt.Sprintf("int(%s) %s 1", g.pick("'12'", path()), g.pick("==", "<")),
		fmt.Sprintf("'%%s-%%d'.format([%s, %s]) == 'a'", path(), g.pick("1", path())),
		fmt.Sprintf("quantity(%s).compareTo(quantity('100m')) %s 0", text(), g.pick("==", "<", "!=")),
		fmt.Sprintf("isQuantity(%s) && quantity(%s).isGreaterThan(quantity('1'))", text(), text()),
		fmt.Sprintf("type(%s) == %s", path(), g.pick("string", "map", "list")),
		fmt.Sprintf("isIP(%s) || isURL(%s)", text(), text()),
		fmt.Sprintf("duration('1h') > duration('%s')", g.pick("1m", "2h")),
	)
}

// TestClosuresGenerated compares closures with the interpreter, with generated
// expressions on all recordings.
func TestClosuresGenerated(t *testing.T) { testGenerated(t, (*generator).policy) }

func (g *generator) policy() string { return g.test(1+g.IntN(3), "") }

func FuzzClosures(f *testing.F) {
	f.Add([]byte(sample), uint64(1))
	fuzz(f, (*generator).policy)
}

// TestClosureLimit exceeds the cost limit in different steps of an expression.
func TestClosureLimit(t *testing.T) {
	needsClosures(t)
	if testing.Short() {
		t.Skip("expressions up to their limit of cost take seconds")
	}
	text := manyOf(700)
	for _, test := range []string{
		"x.name in ['a'] || x.name.startsWith('n')", "object.metadata.labels == oldObject.metadata.labels", "x.?name.orValue('') != 'a'",
		"x.name.matches('n') ? y.name.matches('n[0-9]*') : true", "x.?nope.hasValue() == false || size(x.name) > 0",
		"has(x.name) && x.name > 'a'",
	} {
		expression := "object.list.all(x, object.list.all(y, " + test + "))"
		x := new(Compiler).Compile(expression, Declarations{}, Any)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		if x.closure == nil {
			t.Errorf("%s: got no closure", expression)
			continue
		}
		e := new(Compiler).Begin(NewInput(t.Context(), reviewOf(t, text)), celconfig.RuntimeCELCostBudget)
		_, cost, ok, err := x.closure.Evaluate(&e.closures, celconfig.PerCallLimit)
		_, wantCost, wantOK, wantErr := e.interpret(x)
		if cost != wantCost || ok != wantOK || fmt.Sprint(err) != fmt.Sprint(wantErr) || cost <= celconfig.PerCallLimit {
			t.Errorf("%s: got %d, %v, %v, want %d, %v, %v", expression, cost, ok, err, wantCost, wantOK, wantErr)
		}
	}
}

// TestHell tests expressions that would take minutes: they end by their budget. Loops over
// the contents of the largest objects end with a result, or with their context.
func TestHell(t *testing.T) {
	if testing.Short() {
		t.Skip("expressions up to their limit of cost take seconds")
	}
	const n = 100_000
	texts := strings.Repeat(`,"t"`, n)[1:]
	text := fmt.Appendf(nil, `{"kind":"X","texts":[%s],"long":%q}`, texts, strings.Repeat("a", n))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for expression, want := range map[string]string{
		"object.texts.all(x, x == 't')":                                "",
		"object.texts.exists(x, x == 'u')":                             "",
		"object.texts.all(x, object.texts.all(y, x == y))":             "operation cancelled: actual cost limit exceeded",
		"object.texts.all(x, object.long.matches('(a|aa)+$'))":         "operation cancelled: actual cost limit exceeded",
		"object.texts.exists(x, object.long.contains('aaaaaaaaaaab'))": "operation cancelled: actual cost limit exceeded",
		"object.texts.all(x, object.texts == oldObject.texts)":         "operation cancelled: actual cost limit exceeded",
		"object.long.matches('((a*)*)*b')":                             "",
		"object.texts.map(x, x + 'a').size() > 0":                      "operation interrupted",
	} {
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		ctx := t.Context()
		if want == "operation interrupted" {
			ctx = canceled
		}
		_, err, fatal := new(Compiler).Begin(NewInput(ctx, reviewOf(t, text)), celconfig.RuntimeCELCostBudget).Evaluate(x)
		if got := fmt.Sprint(err); fatal != nil || (err != nil) != (want != "") || !strings.Contains(got, want) {
			t.Errorf("%s: got %v, %v, want %q", expression, err, fatal, want)
		}
	}
}
