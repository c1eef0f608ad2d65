package closure

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
)

// A function is a function of cel-go or of a library. Closures call it where they have no
// code of their own: the interpreter calls the same Go code, with the same cost, on values on
// the heap.
type function struct {
	name, overload string
	unary          functions.UnaryOp
	binary         functions.BinaryOp
	any            functions.FunctionOp
	trait          int        // that the first argument must have
	bounded        calls.Func // nil for none
	costs          calls.Cost // nil for the newest release's
}

// function returns the function that the interpreter calls (planner.go planCall). It returns
// nil if its cost is not known here, or if it is not strict: its arguments may be errors.
func (b *builder) function(e ast.Expr, c ast.CallExpr) *function {
	fn := &function{name: c.FunctionName(), overload: b.overload(e)}
	found := b.implementation(fn)
	if !countable[fn.name] || found == nil || found.NonStrict {
		return nil
	}
	fn.unary, fn.binary, fn.any, fn.trait = found.Unary, found.Binary, found.Function, found.OperandTrait
	fn.bounded, fn.costs = calls.Bounded(fn.name, fn.overload, b.version), calls.CostOf(b.version, fn.overload)
	switch args := operands(c); {
	case calls.TakesRegex(fn.name):
		b.compileRegex(fn, b.constant(args[1]), len(args))
	case fn.name == overloads.Matches:
		b.matchesConstant(b.constant(args[1])) // which may refuse it
	}
	return fn
}

// countable are the functions whose cost is in runtimecost.go or in Kubernetes' library.
// Libraries such as sets and lists count theirs in other ways.
var countable = setOf(
	operators.Add, operators.Subtract, operators.Multiply, operators.Divide, operators.Modulo, operators.Negate,
	operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals, operators.In,
	"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint",
	"size", "contains", "endsWith", "matches", "startsWith",
	"charAt", "format", "indexOf", "join", "lastIndexOf", "lowerAscii", "replace", "split", "substring", "trim", "upperAscii",
	"find", "findAll", "isSorted", "max", "min", "sum",
	"quantity", "isQuantity", "add", "sub", "asApproximateFloat", "asInteger", "isInteger", "sign",
	"compareTo", "isGreaterThan", "isLessThan", "semver", "isSemver", "major", "minor", "patch",
	"cidr", "containsCIDR", "containsIP", "family", "ip", "isCIDR", "isIP", "masked", "prefixLength",
	"url", "isURL", "getEscapedPath", "getHost", "getHostname", "getPort", "getQuery", "getScheme",
)

func setOf(names ...string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range names {
		set[name] = true
	}
	return set
}

// implementation returns the implementation of the overload. Without one it returns the last,
// which is that of the name.
func (b *builder) implementation(fn *function) (found *functions.Overload) {
	bindings, _ := b.functions[fn.name].Bindings() // there is no environment if it has an error
	for _, found = range bindings {
		if found.Operator == fn.overload {
			break
		}
	}
	return found
}

// compileRegex compiles the regular expression of the function, if it is a literal.
func (b *builder) compileRegex(fn *function, literal ref.Val, n int) {
	pattern, ok := literal.(types.String)
	if !ok {
		return
	}
	does, bounds, err := calls.Literal(fn.name, fn.overload, n, string(pattern))
	if err != nil {
		b.refused = true
		return
	}
	fn.unary, fn.binary, fn.any, fn.bounded = nil, nil, does, bounds
}

// closure calls the function.
func (fn *function) closure(args []closure) closure {
	return func(f *frame) value {
		vals := make([]ref.Val, len(args))
		for i, arg := range args {
			v := arg(f)
			if v.kind == gaveUp {
				return value{}
			}
			vals[i] = f.box(&v)
		}
		return fn.apply(f, vals)
	}
}

// of2 calls the function with two values.
func (fn *function) of2(f *frame, x, y *value) value {
	if x.kind == gaveUp || y.kind == gaveUp {
		return value{}
	}
	return fn.apply(f, []ref.Val{f.box(x), f.box(y)})
}

// apply calls the function and adds its cost. It gives up if the result is an error.
func (fn *function) apply(f *frame, args []ref.Val) value {
	result := fn.bound(f, args)
	v := unboxed(result)
	if v.kind == gaveUp || !f.call(fn.cost(args, result)) {
		return value{}
	}
	return v
}

// bound calls the function within its bounds. It returns nil if the call costs more than an
// expression may; the interpreter then ends the expression.
func (fn *function) bound(f *frame, args []ref.Val) ref.Val {
	if fn.bounded != nil {
		if v := fn.bounded(f.Limits, args); calls.IsRefused(v) {
			return nil
		} else if v != nil {
			return v
		}
	}
	return fn.call(args)
}

// call returns nil if the function panics. In the interpreter, a panic is an error.
func (fn *function) call(args []ref.Val) (result ref.Val) {
	defer func() { _ = recover() }()
	switch {
	case !args[0].Type().HasTrait(fn.trait):
		return nil
	case fn.unary != nil:
		return fn.unary(args[0])
	case fn.binary != nil:
		return fn.binary(args[0], args[1])
	}
	return fn.any(args...)
}

// cost does as CostTracker.costCall in runtimecost.go.
func (fn *function) cost(args []ref.Val, result ref.Val) uint64 {
	if fn.costs != nil {
		return fn.costs(calls.Size(args[0]), calls.Size(args[1]))
	}
	if known := estimator.CallCost(fn.name, fn.overload, args, result); known != nil {
		return *known
	}
	first := calls.Size(args[0])
	var second uint64
	if len(args) > 1 {
		second = calls.Size(args[1])
	}
	switch fn.overload {
	case overloads.StartsWithString, overloads.EndsWithString:
		return calls.TraversalCost(second)
	case overloads.StringToBytes, overloads.BytesToString, overloads.ExtQuoteString, overloads.ExtFormatString:
		return calls.TraversalCost(first)
	case overloads.InList:
		return second
	case overloads.LessString, overloads.LessEqualsString, overloads.GreaterString, overloads.GreaterEqualsString,
		overloads.LessBytes, overloads.LessEqualsBytes, overloads.GreaterBytes, overloads.GreaterEqualsBytes:
		return calls.TraversalCost(min(first, second))
	case overloads.AddString, overloads.AddBytes:
		return calls.TraversalCost(first + second)
	case overloads.Matches, overloads.MatchesString:
		return calls.MatchesCost(first, second)
	case overloads.ContainsString:
		return costOfContains(first, second)
	}
	return 1
}

var estimator library.CostEstimator

// anyCall calls a function for which closures have no code of their own.
func (b *builder) anyCall(e ast.Expr, c ast.CallExpr) closure {
	fn := b.function(e, c)
	if fn == nil {
		return nil
	}
	args := b.args(c)
	if args == nil {
		return nil
	}
	return fn.closure(args)
}

// add is the operator +. For two strings that were checked to be strings it costs what
// reading both does, otherwise 1.
func (b *builder) add(e ast.Expr, c ast.CallExpr) closure {
	fn := b.function(e, c)
	args := b.args(c)
	if args == nil {
		return nil
	}
	first, second := args[0], args[1]
	areStrings := fn.overload == overloads.AddString
	return func(f *frame) value {
		x, y := first(f), second(f)
		if x.kind != kindText || y.kind != kindText {
			return fn.of2(f, &x, &y)
		}
		cost := uint64(1)
		if areStrings {
			cost = calls.TraversalCost(f.size(&x) + f.size(&y))
		}
		if !f.TakeText(len(x.text)+len(y.text)) || !f.call(cost) {
			return value{}
		}
		return value{kind: kindText, text: x.text + y.text}
	}
}
