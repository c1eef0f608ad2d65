package cel

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
)

// memoryObject is an object of 40 KiB from which expressions make gigabytes.
// Its list has n elements.
func memoryObject(n int) []byte {
	return fmt.Appendf(nil, `{"kind":"X","l":%s,"words":%s,"text":%q,"long":%q,"dots":%q,"query":%q,"path":%q,"quotes":%q,"slashes":%q,`+
		`"m":{%s}}`,
		numbered(n), "["+strings.Repeat(`"aaaaaaaa",`, 500)+`"a"]`,
		strings.Repeat("a", 8<<10), strings.Repeat("é", 8<<10), "1.0.0-"+strings.Repeat("a.", 4<<10)+"a",
		"https://a/?"+strings.Repeat("a&", 4<<10), "https://a/"+strings.Repeat("^", 4<<10), strings.Repeat(`"`, 4<<10),
		strings.Repeat("/", 4<<10), strings.TrimPrefix(strings.Repeat(`,"k":1`, 1000), ","))
}

// memoryAttacks are expressions that take far more memory than their cost suggests.
var memoryAttacks = []string{
	"object.l.map(x, object.text.replace('a', object.text.substring(0, 900))).size() > 0",
	"object.l.map(x, '%s%s%s%s'.format([object.text, object.text, object.long, object.long])).size() > 0",
	"object.l.map(x, '%x%x%.9000f%.9000f'.format([object.long, object.long, dyn(1.5), dyn(1.5)])).size() > 0",
	"object.l.map(x, object.l + object.l + [x]).map(x, object.l.map(y, object.l + [x])).size() > 0",
	"object.l.map(x, object.text.split('')).size() > 0",
	"object.l.map(x, object.text + object.long + object.text + object.long + x).size() > 0",
	"object.l.map(x, semver(object.dots)).size() > 0",
	"object.l.map(x, isSemver(object.dots) ? semver(object.dots, true) : semver('1.0.0')).size() > 0",
	"object.l.map(x, url(object.query).getQuery()).size() > 0",
	"object.l.map(x, [bytes(object.long), bytes(object.long), bytes(object.long), bytes(object.long), bytes(object.long)]).size() > 0",
	"object.l.map(x, object.text.findAll('a')).size() > 0",
	"object.l.map(x, [dyn(object.l), object.l, object.l].flatten()).size() > 0",
	"[[object.l, object.l, object.l, object.l]].map(a, [[a, a, a, a], [a, a, a, a]]).map(b, [b, b, b, b]).map(c, " +
		"[dyn(c)].map(d, [d, d, d, d, d, d, d, d, d, d, d, d, d, d, d, d].flatten(9))).size() > 0",
}

// memoryMakers are expressions whose results contain the results of a function or operator.
var memoryMakers = []string{
	"object.l.map(x, object.text.replace('a', 'bbbb'))",
	"object.l.map(x, object.text.replace('', 'é', 900))",
	"object.l.map(x, '%s %x %.9000f'.format([object.text, object.long, dyn(1.5)]))",
	"object.l.map(x, '%s'.format([object.l]))",
	"object.l.map(x, '%s'.format([object.words]))",
	"object.l.map(x, dyn(object.l) + [dyn(x)])",
	"object.l.map(x, object.text + x)",
	"object.l.map(x, bytes(object.long) + bytes(object.long))",
	"object.l.map(x, object.text.split('a'))",
	"object.l.map(x, object.text.split('', 500))",
	"object.l.map(x, object.text.substring(0, int(x) * 8))",
	"object.l.map(x, object.long.substring(int(x) * 8))",
	"object.l.map(x, [object.text.upperAscii(), object.long.lowerAscii()])",
	"object.l.map(x, semver(object.dots))",
	"object.l.map(x, url(object.query))",
	"object.l.slice(0, 20).map(x, url(object.query).getQuery())",
	"object.l.map(x, url(object.path).getEscapedPath())",
	"object.l.slice(0, 20).map(x, object.words.join(object.text.substring(0, 200)))",
	"object.l.map(x, object.l.map(y, y).join('-'))",
	"object.l.map(x, strings.quote(object.quotes))",
	"object.l.map(x, strings.quote(object.long))",
	"object.l.map(x, string(bytes(object.long)))",
	"object.l.map(x, string(int(x)))",
	"object.l.map(x, object.text.findAll('a'))",
	"object.l.map(x, object.text.substring(0, 250).findAll('a'))",
	"object.l.map(x, object.text.findAll(object.text.substring(0, 1), 99))",
	"object.l.map(x, object.l.slice(0, 99))",
	"object.l.map(x, [dyn(object.l), object.l].flatten())",
	"object.l.map(x, [[[object.l, object.l]]].flatten(3))",
	"object.l.map(x, lists.range(5000))",
	"object.l.map(x, object.l.map(y, y).sort())",
	"object.l.map(x, object.l.map(y, y).sortBy(z, z))",
	"object.l.slice(0, 20).map(x, object.l.map(y, y).distinct())",
	"object.l.map(x, object.l.map(y, y).reverse())",
	"object.l.map(x, object.l.filter(y, true))",
	"object.l.map(x, object.l.map(y, [y, x, y]))",
	"object.l.map(x, object.l.map(y, {x: y}))",
	"object.l.map(x, object.l.transformMap(i, v, v))",
	"object.l.map(x, object.l.transformList(i, v, v + v))",
	"object.l.map(x, object.l.map(y, optional.of(y)))",
	"object.l.map(x, optional.unwrap([optional.of(x), optional.of(x)]))",
	"object.l.map(x, quantity('1e-9000').add(quantity('1e9000')))",
	"object.l.map(x, object.l.map(y, quantity('1.5').sub(1)))",
	"object.l.map(x, jsonpatch.escapeKey(object.slashes))",
	"object.l.map(x, object.l.map(y, Object{spec: Object.spec{a: x, b: y}}))",
	"object.l.map(x, object.l.map(y, JSONPatch{op: 'add', path: '/a', value: y}))",
	"object.l.map(x, object.l.map(y, format.dns1123Label().validate('_')))",
	"object.l.map(x, object.l.map(y, authorizer.group('').resource('pods').namespace('a').name('b')))",
	"object.l.map(x, authorizer.group('').resource('pods').labelSelector('a,b,c,d,e,f,g,h,i,j,k'))",
	"object.l.map(x, object.l.map(y, [ip('10.0.0.1')]))",
	"object.l.map(x, object.l.map(y, [dyn(cidr('10.0.0.0/8').masked()), dyn(timestamp('2024-01-02T03:04:05Z')), dyn(duration('1h'))]))",
}

// bothEvaluators calls test for closures and for cel-go's interpreter.
func bothEvaluators(t *testing.T, test func(t *testing.T, c *Compiler)) {
	for _, interpreter := range []bool{false, true} {
		t.Run(map[bool]string{false: "closures", true: "interpreter"}[interpreter], func(t *testing.T) {
			test(t, &Compiler{InterpreterOnly: interpreter})
		})
	}
}

// compiledWith compiles an expression with all declarations.
func compiledWith(t *testing.T, c *Compiler, expression string) *Expression {
	t.Helper()
	x := c.Compile(expression, Declarations{Authorizer: true, PatchTypes: true}, Any)
	if x.Err != nil {
		t.Fatal(x.Err)
	}
	return x
}

// begun begins an evaluation on memoryObject with an unlimited budget.
func begun(t *testing.T, c *Compiler, n int) *Evaluation {
	t.Helper()
	in := NewInput(t.Context(), reviewOf(t, memoryObject(n)))
	in.Cluster = someCluster{newAsked(t, review("CREATE", `{"kind":"X"}`, "null")), nil}
	return c.Begin(in, 1<<62)
}

// TestMemoryAttacks checks that all attacks end because they are out of memory, before they allocate
// much more than they are charged.
func TestMemoryAttacks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and says nothing new with poisoned memory")
	}
	bothEvaluators(t, func(t *testing.T, c *Compiler) {
		for _, expression := range memoryAttacks {
			x, e := compiledWith(t, c, expression), begun(t, c, 1000)
			before := allocatedBytes()
			value, err, fatal := e.Evaluate(x)
			took := allocatedBytes() - before
			if value != nil || !errors.Is(fatal, errOutOfMemory) {
				t.Errorf("%s: got %.50v, %.200v, %v, want it out of memory", expression, value, err, fatal)
			}
			if most := uint64(6 * calls.BytesMax); took > most && !testing.Short() {
				t.Errorf("%s: allocated %d MiB, want at most %d", expression, took>>20, most>>20)
			}
		}
	})
}

// TestMemoryCharged checks that each function and operator charges the memory of its results, except what
// Go's allocator rounds up: up to a seventh of a text of 8 KiB.
func TestMemoryCharged(t *testing.T) {
	if testing.Short() {
		t.Skip("freed memory is poisoned in short runs, for which values are copied")
	}
	const tolerance = 128 << 10
	bothEvaluators(t, func(t *testing.T, c *Compiler) {
		for _, expression := range memoryMakers {
			x, e := compiledWith(t, c, expression), begun(t, c, 100)
			before := liveBytes()
			value, err, fatal := e.Evaluate(x)
			took := int(liveBytes() - before)
			if err != nil || fatal != nil {
				t.Errorf("%s: got %.200v, %v", expression, err, fatal)
			}
			if charged := e.limits.Bytes(); took > charged*8/7+tolerance {
				t.Errorf("%s: its value takes %d KiB, %d were charged", expression, took>>10, charged>>10)
			}
			runtime.KeepAlive(value)
		}
	})
}

// liveBytes returns how many bytes are in use.
func liveBytes() int64 {
	runtime.GC()
	runtime.GC() // empties the pools
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestMemoryLimit has evaluations that take one byte less than the limit, as much, and one byte more.
func TestMemoryLimit(t *testing.T) {
	bothEvaluators(t, func(t *testing.T, c *Compiler) {
		for _, expression := range []string{
			"object.l.map(x, object.text.replace('a', 'bb')).size() > 0", "object.text + object.long != ''",
			"[dyn(object.kind), dyn('a')] == []",
			"object.text.split('a').size() > 0", "object.l.map(x, x).size() > 0", "object.l.filter(x, true).size() > 0",
		} {
			x, e := compiledWith(t, c, expression), begun(t, c, 100)
			if _, err, fatal := e.Evaluate(x); err != nil || fatal != nil {
				t.Fatalf("%s: got %v, %v", expression, err, fatal)
			}
			makes := e.limits.Bytes()
			for more := -1; more <= 1; more++ {
				e := begun(t, c, 100)
				e.limits.Take(calls.BytesMax - makes + more)
				if value, err, fatal := e.Evaluate(x); err != nil || (fatal != nil) != (more > 0) ||
					fatal != nil && !errors.Is(fatal, errOutOfMemory) {
					t.Errorf("%s with %+d bytes: got %v, %v, %v", expression, more, value, err, fatal)
				}
			}
		}
	})
}

// TestRetain retains one byte less than the limit, as much, and one byte more. An evaluation may use the
// rest.
func TestRetain(t *testing.T) {
	bothEvaluators(t, func(t *testing.T, c *Compiler) {
		x := compiledWith(t, c, "object.text + object.text != ''")
		makes := begun(t, c, 1)
		if _, err, fatal := makes.Evaluate(x); err != nil || fatal != nil {
			t.Fatalf("got %v, %v", err, fatal)
		}
		for more := -1; more <= 1; more++ {
			e := begun(t, c, 1)
			if err := e.Retain(calls.BytesMax + more); (err != nil) != (more > 0) || err != nil && !errors.Is(err, errOutOfMemory) {
				t.Errorf("%+d bytes: got %v", more, err)
			}
			e = begun(t, c, 1)
			if err := e.Retain(calls.BytesMax - makes.limits.Bytes() + more); err != nil {
				t.Error(err)
			}
			value, err, fatal := c.Begin(e.Input, 1<<62).Evaluate(x)
			if err != nil || (fatal != nil) != (more > 0) || fatal != nil && !errors.Is(fatal, errOutOfMemory) {
				t.Errorf("%+d bytes: got %v, %v, %v", more, value, err, fatal)
			}
		}
	})
}

// TestMemoryOfVariables checks that an evaluation is charged the memory of the variables that it uses.
func TestMemoryOfVariables(t *testing.T) {
	bothEvaluators(t, func(t *testing.T, _ *Compiler) {
		c := NewCompiler(true)
		c.InterpreterOnly = strings.HasSuffix(t.Name(), "interpreter")
		for i := range 9 {
			c.AddVariable(fmt.Sprintf("v%d", i), "object.l.map(x, object.text + x)", Declarations{})
		}
		x := compiledWith(t, c,
			"variables.v0 != [] && variables.v1 != [] && variables.v2 != [] && variables.v3 != [] && variables.v4 != [] && "+
				"variables.v5 != [] && variables.v6 != [] && variables.v7 != [] && variables.v8 != []")
		if _, err, fatal := begun(t, c, 1000).Evaluate(x); !errors.Is(fatal, errOutOfMemory) {
			t.Errorf("got %v, %v, want it out of memory", err, fatal)
		}
		if value, err, fatal := begun(t, c, 500).Evaluate(x); err != nil || fatal != nil {
			t.Errorf("got %v, %v, %v of half as much", value, err, fatal)
		}
	})
}

// TestMemoryKnown checks that each function of the environment either charges the memory of its results,
// or is in memorySmall: it returns a part of its arguments, or a value of constant size.
func TestMemoryKnown(t *testing.T) {
	env, err := sharedEnv(Declarations{Params: true, Authorizer: true, PatchTypes: true}, admission.Newest())
	if err != nil {
		t.Fatal(err)
	}
	small := strings.Fields(memorySmall)
	for name := range env.Functions() {
		charges := calls.Charges(name)
		if isSmall := slices.Contains(small, name) || strings.HasPrefix(name, "format."); charges == isSmall {
			t.Errorf("%s: charges its memory: %v, makes only small values: %v, want one of both", name, charges, isSmall)
		}
	}
}

const memorySmall = `!_ -_ @in @not_strictly_false __not_strictly_false__ _!=_ _%_ _&&_ _*_ _-_ _/_ _<=_ _<_ _==_ _>=_ _>_ _?._ _?_:_
	_[?_] _[_] _in_ in _||_ allowed asApproximateFloat asInteger check compareTo contains dyn endsWith error errored family find first
	getDate getDayOfMonth getDayOfWeek getDayOfYear getFullYear getHost getHostname getHours getMilliseconds getMinutes getMonth getPort
	getScheme getSeconds hasValue includes isGlobalUnicast isGreaterThan isInteger isLessThan isLinkLocalMulticast isLinkLocalUnicast
	isLoopback isSorted isUnspecified last major matches max min minor optional.none optional.of optional.ofNonZeroValue or orValue patch
	prefixLength reason sets.contains sets.equivalent sets.intersects sign size startsWith sum trim type value`
