package cel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/codec"
)

// These tests compare the functions that are bounded here with those of kube-apiserver's package.

// addf adds an expression.
func (p *expressionsOf) addf(format string, args ...any) { p.add(fmt.Sprintf(format, args...)) }

// compareCalls compares both sides on an object with long texts and lists.
func (p *expressionsOf) compareCalls(t *testing.T) {
	t.Helper()
	object := fmt.Sprintf(`{"kind":"X","int":3,"text":"aéa","empty":"","list":["a",1,"a",{"b":[1]},{"b":[1.0]}],"same":["a",1],`+
		`"long":%q,"medium":%q,"lines":%q,"deep":%s,"bools":{"t":true,"f":false},"ones":[1%s],"few":[1%s]}`,
		strings.Repeat("aé", 3000), strings.Repeat("aé", 500), strings.Repeat("a aé-\naab\n\n", 100),
		strings.Repeat(`{"b":1.5,"a":[{"x":null},`, 50)+`{}`+strings.Repeat(`]}`, 50), strings.Repeat(",1", 1500),
		strings.Repeat(",1", 665))
	asked, values := newAsked(t, review("CREATE", object, "null")), 0
	for c := range slices.Chunk(p.conditions, 100) {
		values += (&expressionsOf{conditions: c}).compareWithUpstream(t, 1e12, asked)
	}
	if values < len(p.conditions)/4 {
		t.Errorf("%d of %d had a value, want more", values, len(p.conditions))
	}
}

func TestCallsStrings(t *testing.T) {
	var p expressionsOf
	texts := [...]string{"", "a", "aa", "aab", "abaaba", "aéaé", "😀a"}
	for _, s := range texts {
		for _, sub := range texts {
			p.addf("['%s'.indexOf('%s'), '%[1]s'.lastIndexOf('%[2]s')]", s, sub)
			p.addf("'%s'.matches(object.empty + '%s') ? '%[1]s'.find(object.empty + '%[2]s*') : ''", s, sub)
			for _, name := range [...]string{"indexOf", "lastIndexOf"} {
				p.addf("[0, 1, 2, 3, 4, 6, 7].map(i, '%s'.%s('%s', i))", s, name, sub)
			}
			p.addf(
				"['%s'.replace('%s', 'xyz'), '%[1]s'.replace('%[2]s', 'é', 1), '%[1]s'.replace('%[2]s', 'x', -1), "+
					"'%[1]s'.replace('%[2]s', '', 0)]",
				s, sub,
			)
		}
	}
	p.compareCalls(t)
}

func TestCallsNumbers(t *testing.T) {
	var p expressionsOf
	for _, n := range [...]string{"-1", "0", "1", "3", "object.int", "object.text", "object.nope"} {
		p.addf("lists.range(%s)", n)
		p.addf("'abc'.indexOf('c', %s)", n)
		p.addf("'abc'.lastIndexOf('c', %s)", n)
		for _, call := range [...]string{"indexOf", "lastIndexOf", "matches", "find", "findAll", "distinct", "join"} {
			p.addf("dyn(%s).%s(object.text)", n, call)
			p.addf("dyn(object.text).%s(%s)", call, n)
		}
		p.addf("object.text.replace(object.text, %s)", n)
	}
	for _, text := range [...]string{
		"1e9999", "1e-10000", "0." + strings.Repeat("7", 9998), strings.Repeat("7", 9998) + "Mi", "1e99999999999999999999",
		"1e4294967296",
	} {
		p.addf("isQuantity('%s')", text)
		p.addf("quantity(object.empty + '%s').isGreaterThan(quantity('1'))", text)
	}
	p.compareCalls(t)
}

func TestCallsLists(t *testing.T) {
	var p expressionsOf
	for _, a := range callsLists {
		p.addf("dyn(%s).distinct()", a)
		p.addf("[dyn(%s).join(), dyn(%[1]s).join(', ')]", a)
	}
	for _, other := range [...]string{"[dyn('a')]", "[dyn('a'), 1]", "[dyn('a'), 1, 2]", "[dyn('a'), 2]", "[object.bools.t]", "[]"} {
		p.addf(
			"[object.same == %s, %[1]s == object.same, [object.same] == [%[1]s], [[object.bools.f]] == [%[1]s], "+
				"[object.same].exists(x, x "+
				"== %[1]s)]",
			other,
		)
	}
	p.addf("[object.bools.t == object.bools.f, object.bools == {'t': true, 'f': false}, object.bools == {'t': true, 'f': true}, " +
		"[object.bools.f] == [object.bools.t]]")
	p.compareCalls(t)
}

func TestCallsContains(t *testing.T)   { compareSets(t, "contains") }
func TestCallsEquivalent(t *testing.T) { compareSets(t, "equivalent") }
func TestCallsIntersects(t *testing.T) { compareSets(t, "intersects") }

var callsLists = [...]string{
	"[]", "[1]", "[2, 1]", "[1, 2, 1]", "['a', 'b', 'a']", "object.list", "object.same", "[object.text, 1.0, 1, 2u, null]",
	"[[1], [1.0], {'a': 1}]", "object.nope", "object.text", "[b'\\xff']",
}

// compareSets calls a function of sets with pairs of lists, some of which cost as much as an
// expression may cost.
func compareSets(t *testing.T, name string) {
	t.Helper()
	var p expressionsOf
	for _, a := range callsLists {
		for _, b := range callsLists {
			p.addf("sets.%s(dyn(%s), dyn(%s))", name, a, b)
		}
	}
	p.addf("[sets.%s(object.ones, object.few), sets.%[1]s(object.few, object.ones)]", name)
	p.addf("sets.%s(object.ones, object.few)", name) // costs just less than an expression may cost, or more
	p.addf("sets.%s(object.ones + [1], object.few)", name)
	p.compareCalls(t)
}

func TestCallsPatterns(t *testing.T) {
	var p expressionsOf
	for _, pattern := range [...]string{"a", "(", "[a-z]+", "^", "$", "é|a", "(a{99}){9}", "a{1001}", "\\xff"} {
		p.addf("matches(object.text, object.empty + r'%s')", pattern)
		for _, call := range [...]string{"matches", "find", "findAll"} {
			p.addf("object.text.%s(object.empty + r'%s')", call, pattern)
			p.addf("object.long.%s(object.empty + r'%s')", call, pattern)
		}
	}
	p.compareCalls(t)
}

func TestCallsFindAll(t *testing.T) {
	var p expressionsOf
	for _, pattern := range [...]string{"a", "[a-z]+", "^", "^a", "$", "(?m)^.", "(?m)$", `\b`, `\B`, `\ba`, `a\b`, "a*", "a*?", "(?U)a+",
		"(a.*b|a)", "é|(a)(é)", "(?i)A", `\x{e9}`,
		"x*", "(?:)", ".", "(?s).",
		`\A.`, `.\z`, `\Qa`, `\Qa)\E`, "(", `(a|aé)*?$`, "(?P<n>a)", strings.Repeat("(", 999) + "a" + strings.Repeat(")", 999)} {
		for _, text := range [...]string{"object.medium", "object.lines"} {
			p.addf("%s.findAll(object.empty + r'%s')", text, pattern)
			p.addf("[-2, 0, 1, 3].map(n, %s.findAll(object.empty + r'%s', n))", text, pattern)
			if pattern != "(" { // does not compile
				p.addf("[%s.findAll(r'%s'), %[1]s.findAll(r'%[2]s', 2)]", text, pattern)
			}
		}
	}
	p.compareCalls(t)
}

func TestCallsFormat(t *testing.T) {
	var p expressionsOf
	for _, value := range [...]string{"object.deep", "object.list", "[object.deep, object]", "{'b': object.list, 'a': 1, 'c': {2: " +
		"[b'x'], 1: null, true: 1u}}", "[1.5, double('NaN'), -1.0/0.0, 1.0/0.0, 1e300]", "[duration('1h1.5s'), duration('-1ns')]",
		"[timestamp('2024-01-02T03:04:05.678+01:00')]", "[type(1), string, type([])]", "[true, false, null, '', 'a, b']", "[]", "{}",
		"[quantity('1')]", "{'a': [quantity('1')]}", "[ip('::1')]", "{'a': object.?nope}",
		"object.int", "object.text", "quantity('1')", "object.nope"} {
		for _, clauses := range [...]string{"%s", "a%%%sb", "%d", "%.2f", "%s %s", "%", "%.3", "%.0s", ""} {
			p.addf("(object.empty + '%s').format([dyn(%s)])", clauses, value)
		}
		p.addf("(object.empty + '%%d%%s%%s').format([dyn(object.int), dyn(%s), dyn(object.list)])", value)
		p.addf("'%%s'.format([dyn(%s)])", value)
		p.addf("(object.empty + '%%s%%s').format(dyn(%s))", value)
	}
	p.addf("(object.empty + '%%.20f').format([1.5])")
	p.addf("'%%s'.format([{dyn(double('NaN')): 1}])")
	p.compareCalls(t)
}

// numbered returns an array of n texts.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d"`, i)
	}
	return "[" + b.String()[1:] + "]"
}

// TestCallsLimit has calls that cost less than an expression may cost, as much, and more.
func TestCallsLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("expressions up to their limit of cost take seconds")
	}
	object := fmt.Sprintf(`{"kind":"X","n":%s,"numbers":%s,"few":["a","b","c"],"text":%q}`, numbered(1001),
		"["+strings.Repeat("1,", 708)+"2]", strings.Repeat("a", 20_000))
	asked := newAsked(t, review("CREATE", object, "null"))
	for expression, sizes := range map[string][]int{
		"size(object.n.slice(0, %d).distinct()) > 0":                              {688, 689, 690, 691},
		"size(object.numbers.slice(0, %d).distinct()) > 0":                        {705, 706, 707, 708},
		"sets.contains(object.n.slice(0, 1000), object.n.slice(0, %d))":           {998, 999, 1000, 1001},
		"sets.equivalent(object.n.slice(0, 500), object.n.slice(0, %d)) || true":  {996, 997, 999, 1000, 1001},
		"sets.intersects(['x'].map(x, 'y'), lists.range(%d).map(x, 'z')) || true": {900, 1000},
		"size(lists.range(%d)) > 0": {
			celconfig.PerCallLimit - 12, celconfig.PerCallLimit - 11, celconfig.PerCallLimit - 10, celconfig.PerCallLimit,
			celconfig.PerCallLimit + 1,
		},
		"size(['a', 'b'].join(lists.range(%d).map(x, object.text).join())) > 0":               {10, 100, 248, 249, 250, 251, 260},
		"lists.range(%d).map(x, 'a').join().matches('(' + object.text.substring(0, 5) + ')')": {1000},
		"object.text.substring(0, 19999).matches(object.text.substring(0, %d))":               {1999, 2000, 2001},
		"object.text.substring(0, 19999).find(object.text.substring(0, %d)) == ''":            {1999, 2000, 2001},
		"object.text.substring(0, 19999).findAll(object.text.substring(0, %d)).size() > 0":    {1999, 2000, 2001},
	} {
		for _, n := range sizes {
			p := expressionsOf{conditions: []named{{text: fmt.Sprintf(expression, n), returns: Any}}}
			p.compareWithUpstream(t, celconfig.RuntimeCELCostBudget, asked)
		}
	}
}

// TestCallsEnd has calls with values that a tenant may send. Without bounds, they would take minutes or
// gigabytes.
func TestCallsEnd(t *testing.T) {
	const limit = "actual cost limit exceeded"
	long := strings.Repeat("a", 400_000)
	text := fmt.Appendf(nil, `{"kind":"X","n":%s,"long":%q,"sub":%q,"pattern":%q,"replicas":2147483647,"empty":"","words":%s,`+
		`"deep":%s,"nested":%s}`, numbered(100_000), long,
		long[:200_000]+"b", "("+strings.Repeat("(a?){500}", 10)+")", "["+strings.Repeat(`"a",`, 9999)+`"a"]`,
		strings.Repeat(`{"a":`, 11_000)+"1"+strings.Repeat("}", 11_000),
		strings.Repeat(`{"a":[`, 4900)+strconv.Quote(long)+strings.Repeat("]}", 4900))
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		expression, want string
		ctx              context.Context
	}{
		{"object.n.distinct().size() > 0", limit, t.Context()},
		{"sets.contains(object.n, object.n)", limit, t.Context()},
		{"sets.equivalent(object.n, object.n)", limit, t.Context()},
		{"sets.intersects(object.n, object.n)", limit, t.Context()},
		{"lists.range(object.replicas).all(i, i >= 0)", "lists.range: size", t.Context()},
		{"lists.range(9223372036854775807).size() > 0", "lists.range: size", t.Context()},
		{"object.words.join(object.long) == ''", limit, t.Context()},
		{"(object.words + dyn([1])).join(object.long) == ''", "join: invalid input: 1", t.Context()},
		{"object.long.indexOf(object.sub) == -1 && object.long.lastIndexOf('b' + object.sub) == -1", "", t.Context()},
		{
			"string(object.long).indexOf(string(object.sub)) == -1 && string(object.long).lastIndexOf('b' + string(object.sub)) == -1",
			"", t.Context(),
		},
		{"object.long.matches(object.long)", limit, t.Context()},
		{"object.long.find(object.long) == ''", limit, t.Context()},
		{"object.long.findAll(object.long) == []", limit, t.Context()},
		{"object.long.matches(object.pattern)", "operation interrupted", canceled},
		{"matches(object.long, object.pattern)", "operation interrupted", canceled},
		{"object.long.find(object.pattern) == ''", "operation interrupted", canceled},
		{"object.long.findAll(object.pattern) == []", "operation interrupted", canceled},
		{"object.long.findAll('(a.*b|a)') == []", "operation interrupted", canceled},
		{"object.long.findAll('(a.*b|a)', 300000) == []", "operation interrupted", canceled},
		{"object.long.findAll(object.empty + '(a.*b|a)') == []", "operation interrupted", canceled},
		{"object.long.findAll('a').size() == 400000", "", t.Context()},
		{"'%s'.format([object.deep]).size() == 0", "too much memory", t.Context()},
		{"'%s'.format([object.nested]).size() > 400000", "", t.Context()},
		{"'%s'.format([object.nested]).size() > 0", "operation interrupted", canceled},
		{"object.n.slice(0, 600).distinct() == []", "operation interrupted", canceled},
		{"sets.contains(object.n.slice(0, 600), object.n.slice(0, 600))", "operation interrupted", canceled},
		{"sets.equivalent(object.n.slice(0, 600), object.n.slice(0, 600))", "operation interrupted", canceled},
		{"sets.intersects(object.n.slice(0, 600), object.n.slice(700, 900))", "operation interrupted", canceled},
	} {
		x := new(Compiler).Compile(test.expression, Declarations{}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		allocated := allocatedBytes()
		_, err, fatal := new(Compiler).Begin(NewInput(test.ctx, reviewOf(t, text)), 1<<62).Evaluate(x)
		if test.want == limit && fatal != nil && errors.Is(fatal, errOutOfBudget) {
			fatal = nil
			err = errors.New(limit) // it costs more than the budget
		}
		if got := fmt.Sprint(err); fatal != nil || (err != nil) != (test.want != "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %.300v, %v, want %q", test.expression, err, fatal, test.want)
		}
		// Runs with the race detector set -short; there, the pools of package regexp drop their memory.
		if took := allocatedBytes() - allocated; took > 100<<20 && !testing.Short() {
			t.Errorf("%s: allocated %d MiB, want at most 100", test.expression, took>>20)
		}
	}
}

func allocatedBytes() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.TotalAlloc
}

// TestCallsMemory has calls that take more memory than an evaluation may use: they exceed its budget. It
// also has quantities that take too long to parse: the review is refused.
func TestCallsMemory(t *testing.T) {
	text := fmt.Appendf(nil, `{"kind":"X","places":%q,"long":%q,"by":%q,"pattern":%q,"digits":%q,`+
		`"numbers":%s}`, strings.Repeat("%.1000000f", 99), strings.Repeat("a", 1000), strings.Repeat("b", 70_000),
		strings.Repeat("(?:b{999})", 300), strings.Repeat("7", 1_400_000),
		"["+strings.Repeat("1e300,", 300_000)+"1]")
	const fits, refuses, exhausts = "fits", "refuses", "exhausts"
	for expression, want := range map[string]string{
		"object.long.replace('a', object.by) == ''":               exhausts,
		"object.long.replace('', object.by) == ''":                exhausts,
		"object.long.replace('a', object.by, 900) != ''":          fits,
		"object.long.replace('a', object.by, 1000) == ''":         exhausts,
		"object.long.replace('a', object.by, -1) == ''":           exhausts,
		"object.long.replace('a', object.by, 0) != ''":            fits,
		"object.long.matches(object.pattern)":                     exhausts,
		"matches('a', object.pattern)":                            exhausts,
		"'a'.find(object.pattern) == ''":                          exhausts,
		"'a'.findAll(object.pattern) == []":                       exhausts,
		"object.long.matches(object.long + '{3}') == false":       fits,
		"quantity('1e-1000000000').isInteger()":                   refuses,
		"isQuantity(object.digits)":                               refuses,
		"isQuantity(object.by) == false":                          fits,
		"quantity(object.digits).isInteger()":                     refuses,
		"isQuantity(object.digits.substring(0, 10000))":           fits,
		"'%.1000000f'.format([dyn(1.5)]) != ''":                   fits,
		"object.places.format(object.numbers.slice(0, 99)) != ''": exhausts,
		"'%s'.format([object.numbers]) != ''":                     exhausts,
		"'%s'.format([object.numbers.slice(0, 9)]) != ''":         fits,
	} {
		x := new(Compiler).Compile(expression, Declarations{}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		review := reviewOf(t, text)
		_, err, fatal := new(Compiler).Begin(NewInput(t.Context(), review), celconfig.RuntimeCELCostBudget).Evaluate(x)
		got := fits
		var tooLarge *codec.SizeError
		switch {
		case errors.As(review.Object.Err(), &tooLarge) && err != nil && fatal == nil:
			got = refuses
		case errors.Is(fatal, errOutOfMemory) && err == nil && review.Object.Err() == nil:
			got = exhausts
		case err != nil || fatal != nil:
			got = "fails"
		}
		if got != want {
			t.Errorf("%s: got %v, %v, the review's error %v: it %s, want that it %s", expression, err, fatal,
				review.Object.Err(), got, want)
		}
	}
}
