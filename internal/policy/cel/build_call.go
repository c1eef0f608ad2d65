package cel

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

// A function is one of cel-go or of a library, as a call was checked to mean it. It is
// what closures have for what they do not do themselves: the same Go code as in the
// interpreter, with the same cost, on values that are on the heap then.
type function struct {
	name, overload string
	unary          functions.UnaryOp
	binary         functions.BinaryOp
	any            functions.FunctionOp
	trait          int // that the first argument must have
	bounded        func(*Evaluation, []ref.Val) ref.Val
}

// function returns what the interpreter calls (planner.go planCall), nil for what it
// does not call with values alone.
func (b *builder) function(e ast.Expr, c ast.CallExpr) *function {
	fn := &function{name: c.FunctionName(), overload: b.overload(e)}
	found := b.implementation(fn)
	if !countable[fn.name] || found == nil || found.NonStrict {
		return nil
	}
	fn.unary, fn.binary, fn.any, fn.trait = found.Unary, found.Binary, found.Function, found.OperandTrait
	fn.bounded = boundedFunction(fn.name, fn.overload)
	if args := operands(c); regexFunctions[fn.name] != nil {
		fn.compileRegex(b.constant(args[1]), len(args))
	}
	return fn
}

// countable are the functions whose cost is in runtimecost.go or Kubernetes' library:
// those of policies that other libraries do not count otherwise, as sets and lists do.
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

// implementation returns that of the overload, or else of the name, which is the last one.
func (b *builder) implementation(fn *function) (found *functions.Overload) {
	bindings, _ := b.functions[fn.name].Bindings() // there is no environment if it has an error
	for _, found = range bindings {
		if found.Operator == fn.overload {
			break
		}
	}
	return found
}

// regexFunctions are those of Kubernetes' library whose regular expression is compiled
// once if it is a literal.
var regexFunctions = map[string]*interpreter.RegexOptimization{
	"find": library.FindRegexOptimization, "findAll": library.FindAllRegexOptimization,
}

func (fn *function) compileRegex(literal ref.Val, n int) {
	pattern, ok := literal.(types.String)
	if !ok {
		return
	}
	does, err := compiledRegex(fn.name, fn.overload, n, string(pattern))
	if err != nil {
		return // cel-go has refused it
	}
	fn.unary, fn.binary, fn.any, fn.bounded = nil, nil, does, nil
	if fn.name == "findAll" {
		fn.bounded = findAllLiteral
	}
}

// compiledRegex returns one of regexFunctions, of n arguments, with the regular
// expression compiled.
func compiledRegex(name, overload string, n int, pattern string) (functions.FunctionOp, error) {
	args := make([]interpreter.Interpretable, n)
	for i := range args {
		args[i] = argument(i)
	}
	call, err := regexFunctions[name].Factory(interpreter.NewCall(0, name, overload, args, nil), pattern)
	if err != nil {
		return nil, err
	}
	return func(args ...ref.Val) ref.Val { return call.Eval(arguments(args)) }, nil
}

// An argument is the one of that index in arguments.
type argument int

// ID implements interpreter.Interpretable.
func (i argument) ID() int64 { return 0 }

// Eval implements interpreter.Interpretable.
func (i argument) Eval(all interpreter.Activation) ref.Val { return all.(arguments)[i] }

// arguments is the activation of a function that is called with values.
type arguments []ref.Val

// ResolveName implements interpreter.Activation.
func (arguments) ResolveName(string) (any, bool) { return nil, false }

// Parent implements interpreter.Activation.
func (arguments) Parent() interpreter.Activation { return nil }

// closure is a call of the function.
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

// of2 is a call of a function with two values.
func (fn *function) of2(f *frame, x, y *value) value {
	if x.kind == gaveUp || y.kind == gaveUp {
		return value{}
	}
	return fn.apply(f, []ref.Val{f.box(x), f.box(y)})
}

// apply calls the function and counts what that costs. It gives up where there is an
// error.
func (fn *function) apply(f *frame, args []ref.Val) value {
	result := fn.bound(f, args)
	v := unboxed(result)
	if v.kind == gaveUp || !f.call(fn.cost(args, result)) {
		return value{}
	}
	return v
}

// bound is call, but for what a bounded function does itself. It returns nil for a call
// that is not made, which the interpreter ends the expression at.
func (fn *function) bound(f *frame, args []ref.Val) ref.Val {
	if fn.bounded != nil {
		switch v := fn.bounded(f.Evaluation, args).(type) {
		case nil:
		case oversized:
			return nil
		default:
			return v
		}
	}
	return fn.call(args)
}

// call returns nil where the function panics, which the interpreter makes an error of.
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
	if known := estimator.CallCost(fn.name, fn.overload, args, result); known != nil {
		return *known
	}
	first := actualSize(args[0])
	var second uint64
	if len(args) > 1 {
		second = actualSize(args[1])
	}
	switch fn.overload {
	case overloads.StartsWithString, overloads.EndsWithString, overloads.StringToBytes, overloads.BytesToString,
		overloads.ExtQuoteString, overloads.ExtFormatString:
		return traversal(first)
	case overloads.InList:
		return second
	case overloads.LessString, overloads.LessEqualsString, overloads.GreaterString, overloads.GreaterEqualsString,
		overloads.LessBytes, overloads.LessEqualsBytes, overloads.GreaterBytes, overloads.GreaterEqualsBytes:
		return traversal(min(first, second))
	case overloads.AddString, overloads.AddBytes:
		return traversal(first + second)
	case overloads.MatchesString:
		return costOfMatches(first, second)
	case overloads.ContainsString:
		return costOfContains(first, second)
	}
	return 1
}

var estimator library.CostEstimator

// anyCall is a call of a function that closures do not do themselves.
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

// add is the operator +. Two strings that were checked to be strings cost what going
// through both takes, anything else costs 1.
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
			cost = traversal(f.size(&x) + f.size(&y))
		}
		if !f.call(cost) {
			return value{}
		}
		return value{kind: kindText, text: x.text + y.text}
	}
}
