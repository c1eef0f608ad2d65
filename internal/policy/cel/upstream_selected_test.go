package cel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// These tests compare both sides for expressions that other tests reach rarely or slowly.

// add adds expressions.
func (p *expressionsOf) add(expressions ...string) {
	for _, text := range expressions {
		p.conditions = append(p.conditions, named{text: text, returns: Any})
	}
}

// compareSelected compares both sides on an object with values of each kind.
func (p *expressionsOf) compareSelected(t *testing.T) {
	t.Helper()
	object := fmt.Sprintf(`{"kind":"X","int":3,"float":1.5,"text":"aéa","flag":true,"null":null,"list":["a",1,{"b":[1]}],`+
		`"map":{"a":1,"b":{"c":2}},"long":%q,`+
		`"deep":{"a":[{"b":1},{"b":"1"}]},"equals":[{"a":1},{"a":1.0},{"a":2},{"a":2},[1],[1.0],[2],"1",1,1.0,null,{},`+
		`[]]}`, strings.Repeat("aé", 500))
	old := `{"kind":"X","int":4,"float":1.25,"text":"aéb","flag":false,"null":1,"list":["a",1,{"b":[2]}],"map":{"b":{"c":3},"a":1},` +
		`"deep":{"a":[{"b":1},{"b":"2"}]}}`
	reviews := []*asked{newAsked(t, review("UPDATE", object, old)), newAsked(t, review("UPDATE", object, object))}
	values := 0
	for c := range slices.Chunk(p.conditions, 100) {
		values += (&expressionsOf{variables: p.variables, conditions: c}).compareWithUpstream(t, 1e12, reviews...)
	}
	if values < len(p.conditions)/2 {
		t.Errorf("%d of %d had a value on two reviews, want more", values, len(p.conditions))
	}
}

// TestSelectedMacros tests nested macros, up to the maximum depth and deeper, and variables of
// loops that hide others.
func TestSelectedMacros(t *testing.T) {
	var p expressionsOf
	const loops = 8 // the maximum for a closure
	for n := 1; n <= loops+1; n++ {
		inner := "object.kind == 'X'"
		for i := range n {
			inner = fmt.Sprintf("[object.int].%s(v%d, v%[2]d == 3 && %s)", [...]string{"all", "exists"}[i%2], i, inner)
		}
		p.add(inner)
		if n <= loops/2+1 {
			inner = "object.int"
			for i := range n {
				inner = fmt.Sprintf("[object.int].map(v%d, %s)", i, inner)
			}
			p.add(inner)
		}
	}
	for _, name := range []string{"object", "request", "variables"} { // the name of a loop's variable has this meaning only in the loop
		p.add(fmt.Sprintf("[object.int].all(%s, %[1]s == 3) && has(%[1]s.kind)", name), fmt.Sprintf(
			"[object.int].map(%s, %[1]s) == [3] && has(%[1]s.kind)", name,
		),
			fmt.Sprintf("[[1], [2]].all(%s, size(%[1]s) == 1 && %[1]s[0] < 3) ? %[1]s.kind : 1", name))
	}
	p.compareSelected(t)
}

// TestSelectedEqual tests values that are equal, almost equal, or different.
func TestSelectedEqual(t *testing.T) {
	var p expressionsOf
	for _, member := range []string{"int", "float", "text", "flag", "null", "list", "map", "kind", "deep"} {
		p.add(fmt.Sprintf(
			"[object.%s == oldObject.%[1]s, object.%[1]s == object.%[1]s, [object.%[1]s] == [oldObject.%[1]s], "+
				"object.%[1]s != oldObject.%[1]s]",
			member,
		),
			fmt.Sprintf("object.equals.all(e, e == object.%s || e != object.%[1]s) && object.%[1]s in object.equals", member))
	}
	p.add("[object.equals[0] == object.equals[1], object.equals[0] == object.equals[2], object.equals[2] == object.equals[3]]",
		"object.equals.map(e, object.equals.filter(f, f == e).size())")
	for _, operator := range []string{"<", "<=", ">", ">=", "==", "+", "in"} {
		for _, other := range []string{"'z'", "1", "object.long", "object.int", "object.map", "[1]"} {
			p.add(fmt.Sprintf("dyn(object.long) %s dyn(%s)", operator, other), fmt.Sprintf("dyn(object.map) %s dyn(%s)", operator, other))
		}
	}
	p.add(
		"object.long < object.long + 'a'", "string(object.long) < 'z'", "string(object.long) >= string(object.long)",
		"'aéa' > string(object.text)",
	)
	p.compareSelected(t)
}

// TestSelectedPlain compares values of Kubernetes' libraries with others.
func TestSelectedPlain(t *testing.T) {
	var p expressionsOf
	for _, other := range []string{"quantity('3')", "ip('10.0.0.1')", "cidr('10.0.0.0/8')", "url('https://a')", "semver('1.2.3')"} {
		for _, plain := range []string{"object.int", "object.text", "object.map", "object.list", "object.null", other} {
			p.add(
				fmt.Sprintf("dyn(%s) == dyn(%s)", plain, other), fmt.Sprintf("dyn(%s) != dyn(%s)", other, plain),
				fmt.Sprintf("dyn(%s) in [dyn(%s)]", plain, other),
			)
		}
	}
	p.compareSelected(t)
}

// TestSelectedPaths tests members and elements of values of each kind, and of variables.
func TestSelectedPaths(t *testing.T) {
	var p expressionsOf
	for _, of := range []string{
		"dyn([1])", "dyn('text')", "dyn({'a': 1})", "dyn({1: 'b'})", "object.text.split('')", "object.map", "object.list", "dyn(1)",
	} {
		for _, at := range []string{"'a'", "0", "-1", "1.0", "true", "object.int", "object.kind", "object.nope"} {
			p.add(of+"["+at+"]", of+"[?"+at+"].orValue(7)", at+" in "+of)
		}
		p.add("size("+of+")", of+".a", of+".?a.hasValue()", "has("+of+".a)")
	}
	for name, text := range map[string]string{"m": "{'a': 1}", "l": "[1]", "o": "object.map", "s": "'x'", "q": "optional.of(1)"} {
		p.variables = append(p.variables, named{name: name, text: text, returns: Any})
	}
	for _, name := range []string{"m", "l", "o", "s", "q"} {
		p.add("dyn(variables).map(v, v).size()", "dyn(variables).filter(v, v == "+
			"variables."+name+").size()", "dyn(variables).exists_one(v, v == "+
			"'x')", "size(dyn(variables))", "'a' in dyn(variables)", "dyn(variables) == variables", "dyn(variables) + 1",
			"variables."+name+".a == 'x'", "variables."+name+"['a'] == 1", "variables."+name+"[0] == 'x'",
			"variables."+name+"[0] == 1", "variables."+name+" + 1", "variables."+name)
	}
	p.compareSelected(t)
}

// TestSelectedCalls tests calls on values of each kind, with long texts, and calls that fail.
func TestSelectedCalls(t *testing.T) {
	var p expressionsOf
	for _, of := range []string{
		"dyn(1)", "dyn('aba')", "dyn(timestamp('2024-01-01T00:00:00Z'))", "dyn(duration('1s'))", "dyn(null)", "dyn([1])",
		"object.nope",
	} {
		p.add(of+".indexOf('a')", of+".indexOf('a', 1)", of+".lastIndexOf(dyn(1))", of+".replace('a', 'b')",
			of+".replace('a', 'b', dyn('c'))", of+".split('b')", of+".join()", of+".distinct()", of+".matches('a')",
			of+".find('a')", of+".findAll('a', dyn('b'))", of+".format([1])", of+".getHours()")
	}
	for _, text := range []string{
		"", "text", "x", "100%% of %s", "%", "%.", "%.3f", "%.3e|%d", "%x %X", "%o %b", "%q", "a%", "%.2d", "%5s",
	} {
		p.add(
			fmt.Sprintf("'%s'.format([object.int, 2])", text), fmt.Sprintf("(object.kind + '%s').format([object.text])", text),
			fmt.Sprintf("'%s'.format([])", text),
		)
	}
	for _, pattern := range []string{
		"object.kind", "object.kind + '+'", "'^' + object.text + '$'", "'['", "'' + object.kind + '?a'", "object.int",
	} {
		p.add(
			fmt.Sprintf("dyn(object.text).matches(dyn(%s))", pattern), fmt.Sprintf("'XXaéa'.matches(string(%s))", pattern),
			fmt.Sprintf("'Xa'.find(string(%s))", pattern),
		)
	}
	p.add("[1, 2, 3].lastIndexOf(2)", "'abcb'.lastIndexOf('b', 0)", "'abcb'.lastIndexOf('a')",
		"'abcb'.lastIndexOf('')", "'aéa'.lastIndexOf('a', 1)",
		"sets.intersects([1, 2], [2])", "sets.intersects([1], [2])", "sets.intersects([1], [])",
		"sets.intersects(object.list, object.equals)",
		"['a'].join('--')", "['a', 'b'].join(object.long)", "[].join('a')", "object.list.map(x, 'a').join()",
		"'aXbXc'.findAll('X', 1)", "'aXbXc'.findAll('X', 0)", "'aXbXc'.findAll('X', 2)", "object.long.findAll('a|é', 2)",
		"object.long.findAll('', 3)",
		"object.long.find('é')", "object.long.find('z|X')", "object.long.findAll('a*', 3)", "object.long.findAll(object.kind + '|a', 2)",
		"(object.long + object.long).findAll('(?:a|)', 4)", "object.long.findAll('\\\\ba', 3)",
		"dyn(authorizer).matches('a')", "dyn(request).matches('a')", "'%s'.format([[variables]])", "'%s'.format([{'a': variables}])",
		"optional.of('abc')", "optional.none()", "[optional.of(object.long)].size()",
		"dyn(quantity('1'))[?0].orValue(7)", "dyn(quantity('1')).?a.orValue(7)", "optional.of(object.long).hasValue()")
	p.compareSelected(t)
}
