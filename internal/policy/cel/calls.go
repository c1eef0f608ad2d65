package cel

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/internal/quantity"
)

// cel-go counts what a call costs when it has ended, and does not interrupt it. So a
// call that takes quadratic time, or whose result is longer than its arguments, can
// take minutes or gigabytes with what somebody sends, and is stopped only then. What
// these functions do is bounded here:
//
//   - A call that costs more than an expression may is not made. The expression ends
//     with the cost and the error that it has after the call.
//   - Loops over pairs of elements, and regular expressions, end with the context.
//   - Lists and maps are formatted in linear time, and quantities of many digits refused.
//   - What takes more memory than its arguments is asked for first.
//
// Results, errors and costs are upstream's but for that.
var boundedFunctions = map[string]func(e *Evaluation, args []ref.Val) ref.Val{
	"distinct":        distinct,
	"find":            find,
	"findAll":         findAll,
	"format":          format,
	"indexOf":         indexOf,
	"isQuantity":      parsedQuantity,
	"join":            join,
	"lastIndexOf":     lastIndexOf,
	"lists.range":     listsRange,
	"matches":         matches,
	"quantity":        parsedQuantity,
	"replace":         replace,
	"sets.contains":   setsContains,
	"sets.equivalent": setsEquivalent,
	"sets.intersects": setsIntersects,
}

// evaluationName is the name under which a call finds its Evaluation. No expression can
// have it.
const evaluationName = "#evaluation"

// boundCalls has the calls of these functions bounded in a program of an environment.
func boundCalls(env *cel.Env) cel.ProgramOption {
	return cel.CustomDecorator(func(i interpreter.Interpretable) (interpreter.Interpretable, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok {
			return i, nil
		}
		does := boundedFunction(call.Function(), call.OverloadID())
		if does == nil {
			return i, nil
		}
		bindings, _ := env.Functions()[call.Function()].Bindings() // there is no environment if it has an error
		bounded := &boundedCall{InterpretableCall: call, does: does}
		for _, b := range bindings { // as the planner: the overload, or what finds it by the arguments, which all of them have
			if b.Operator == call.OverloadID() || b.Operator == call.Function() && bounded.original == nil {
				bounded.original = b
			}
		}
		return bounded, nil
	})
}

// boundLiteral bounds calls of findAll with a regular expression that is a literal,
// which cel-go replaces by others that have it compiled.
var boundLiteral = cel.OptimizeRegex(&interpreter.RegexOptimization{
	Function: "findAll", RegexIndex: 1,
	Factory: func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
		does, err := compiledRegex(call.Function(), call.OverloadID(), len(call.Args()), pattern)
		return &boundedCall{InterpretableCall: call, does: findAllLiteral, original: &functions.Overload{Function: does}}, err
	},
})

// boundedFunction returns what bounds the calls of a function of that name that were
// checked to be of that overload, "" for one of several; nil for none.
func boundedFunction(name, overload string) func(e *Evaluation, args []ref.Val) ref.Val {
	switch {
	case overload == overloads.Matches:
		return matchesUncharged
	case (name == "indexOf" || name == "lastIndexOf") && overload != "" && !strings.HasPrefix(overload, "string_"):
		return nil // of lists: strings are an error then
	}
	return boundedFunctions[name]
}

// A boundedCall is a call of a function that is bounded.
type boundedCall struct {
	interpreter.InterpretableCall
	does     func(e *Evaluation, args []ref.Val) ref.Val // returns nil for what original does
	original *functions.Overload
}

// Eval does what evalUnary, evalBinary and evalVarArgs do in cel-go's interpreter.
func (c *boundedCall) Eval(vars interpreter.Activation) ref.Val {
	args := make([]ref.Val, len(c.Args()))
	for i, arg := range c.Args() {
		args[i] = arg.Eval(vars)
		if c.isVariadic() && types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	for _, arg := range args {
		if types.IsUnknownOrError(arg) {
			return arg
		}
	}
	found, _ := vars.ResolveName(evaluationName)
	if e, ok := found.(*Evaluation); ok {
		if v := c.does(e, args); v != nil {
			return types.LabelErrNode(c.ID(), v)
		}
	}
	return types.LabelErrNode(c.ID(), c.call(args))
}

// isVariadic reports whether cel-go would plan the call as evalVarArgs, which does not
// evaluate what is behind an argument that is an error.
func (c *boundedCall) isVariadic() bool {
	o := c.original
	switch len(c.Args()) {
	case 1:
		return o.Unary == nil
	case 2:
		return o.Binary == nil
	}
	return true
}

func (c *boundedCall) call(args []ref.Val) ref.Val {
	o, first := c.original, args[0]
	switch {
	case !first.Type().HasTrait(o.OperandTrait):
		if first.Type().HasTrait(traits.ReceiverType) {
			return first.(traits.Receiver).Receive(c.Function(), c.OverloadID(), args[1:])
		}
		return types.NewErr("no such overload: %s", c.Function()) // only matches has a trait, and it is binary
	case c.isVariadic():
		return o.Function(args...)
	case len(args) == 1:
		return o.Unary(first)
	}
	return o.Binary(first, args[1])
}

// oversized stands for the result of a call that is not made, because it costs more
// than an expression may: cel-go's cost tracker asks for its size and ends the
// expression.
type oversized struct {
	types.Null
	size uint64
}

// Size implements traits.Sizer.
func (o oversized) Size() ref.Val { return types.Int(o.size) }

// refused returns what stands for a result of that size.
func refused(size uint64) ref.Val { return oversized{size: size} }

// tooMany reports whether so many pairs cost more than an expression may, at that
// cost for each.
func tooMany(n, m, cost uint64) bool {
	return m > 0 && n > celconfig.PerCallLimit/m/cost
}

// isOver reports whether the context has ended.
func (e *Evaluation) isOver() bool { return e.ctx.Err() != nil }

var errInterrupted = types.NewErr("operation interrupted")

// fits reports whether there is memory for so many bytes. If not, the review is
// refused.
func (e *Evaluation) fits(bytes int) bool { return e.request.review.Object.Fits(bytes) }

// parsedQuantity has the review refused for a quantity that takes long to parse or to
// compare.
func parsedQuantity(e *Evaluation, args []ref.Val) ref.Val {
	if text, _ := args[0].(types.String); quantity.Fits(string(text)) { // "" for what cel-go refuses
		return nil
	}
	e.request.review.Object.TooLarge(quantity.ErrTooLarge)
	return types.WrapErr(quantity.ErrTooLarge)
}

var errNoMemory = types.NewErr("the result or the regular expression takes too much memory")
