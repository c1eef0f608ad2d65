package calls

import (
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// A Func implements a function of CEL within the limits. It returns nil if the caller has to
// call the original function, for which the Func may have changed args.
type Func func(l *Limits, args []ref.Val) ref.Val

var boundedFunctions = map[string]Func{
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
	"sets.contains":   setsContains,
	"sets.equivalent": setsEquivalent,
	"sets.intersects": setsIntersects,
}

// LimitsName is the name of the variable under which a call finds its *Limits. No
// expression can use it.
const LimitsName = "#limits"

// Options returns the options that bound the calls and loops of a program for an expression in an
// environment, and give its calls the costs of a release. The activation of the program must have
// the variable LimitsName.
func Options(env *cel.Env, expression *cel.Ast, v admission.Version) []cel.ProgramOption {
	conditions := loopConditions(expression)
	return []cel.ProgramOption{
		cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
			if conditions[i.ID()] {
				return interruptible(i), nil
			}
			return bound(env, i, v), nil
		}),
		boundLiteral,
		costsOf(v),
	}
}

func bound(env *cel.Env, i interpreter.InterpretableV2, v admission.Version) interpreter.InterpretableV2 {
	if made, ok := i.(interpreter.InterpretableConstructor); ok {
		return boundConstructor(made)
	}
	call, ok := i.(interpreter.InterpretableCall)
	switch {
	case !ok:
		return i
	case call.Function() == operators.Equals || call.Function() == operators.NotEquals:
		return &boundedEqual{call}
	}
	does := Bounded(call.Function(), call.OverloadID(), v)
	if does == nil {
		return i
	}
	bindings, _ := env.Functions()[call.Function()].Bindings() // there is no environment if it has an error
	bounded := &boundedCall{InterpretableCall: call, does: does}
	// Like cel-go's planner: the overload, or the binding that selects it by the arguments, which
	// every function has.
	for _, b := range bindings {
		if b.Operator == call.OverloadID() || b.Operator == call.Function() && bounded.original == nil {
			bounded.original = b
		}
	}
	return bounded
}

// boundLiteral bounds the calls of findAll with a literal regular expression, which cel-go
// replaces by calls that have compiled it.
var boundLiteral = cel.OptimizeRegex(&interpreter.RegexOptimization{
	Function: "findAll", RegexIndex: 1,
	Factory: func(call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableCall, error) {
		does, bounds, err := Literal(call.Function(), call.OverloadID(), len(call.Args()), pattern)
		return &boundedCall{InterpretableCall: call, does: bounds, original: &functions.Overload{Function: does}}, err
	},
})

// Bounded returns the Func that bounds the calls of a function in a release, nil if they need no
// bound. overload is the one that the type checker found for the call, empty if it found several.
func Bounded(name, overload string, v admission.Version) Func {
	return read(ofCall(name, overload, v), reading[name])
}

func ofCall(name, overload string, v admission.Version) Func {
	if overload == overloads.Matches && CostOf(v, overload) != nil {
		return charged(matchesAtAnyCost, makes[name])
	}
	if (name == "indexOf" || name == "lastIndexOf") && overload != "" && !strings.HasPrefix(overload, "string_") {
		return nil // the overloads for lists, which return an error for a string
	}
	if name == "lastIndexOf" && !v.AtLeast(1, 34) {
		return charged(lastIndexOfInEmpty, makes[name])
	}
	if name == "lists.range" && !v.AtLeast(1, 37) {
		return charged(listsRangeOfNegative, makes[name])
	}
	return charged(boundedFunctions[name], makes[name])
}

// charged returns a Func that charges the memory of a call if does returns nil, so that the
// original function is called. does may be nil.
func charged(does Func, size func(args []ref.Val) made) Func {
	if size == nil {
		return does
	}
	return func(l *Limits, args []ref.Val) ref.Val {
		if does != nil {
			if v := does(l, args); v != nil {
				return v
			}
		}
		if !l.charge(size, args) {
			return errNoMemory
		}
		return nil
	}
}

// A boundedCall is a call of a function that is bounded.
type boundedCall struct {
	interpreter.InterpretableCall
	does     Func
	original *functions.Overload
}

// Eval implements interpreter.Interpretable.
func (c *boundedCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec does what evalUnary, evalBinary and evalVarArgs do in cel-go's interpreter.
func (c *boundedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	args := make([]ref.Val, len(c.Args()))
	for i, arg := range c.Args() {
		args[i] = arg.Exec(frame)
		if c.isVariadic() && types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	for _, arg := range args {
		if types.IsUnknownOrError(arg) {
			return arg
		}
	}
	if l := limitsIn(frame); l != nil {
		v := c.does(l, args)
		l.stop()
		if v != nil {
			return types.LabelErrNode(c.ID(), v)
		}
	}
	return types.LabelErrNode(c.ID(), c.call(args))
}

// boundedEqual is == or != with bounds.
type boundedEqual struct{ interpreter.InterpretableCall }

// Eval implements interpreter.Interpretable.
func (c *boundedEqual) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec does what evalEq and evalNe do in cel-go's interpreter.
func (c *boundedEqual) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	x, y := c.Args()[0].Exec(frame), c.Args()[1].Exec(frame)
	switch {
	case types.IsUnknownOrError(x):
		return x
	case types.IsUnknownOrError(y):
		return y
	}
	if l := limitsIn(frame); l != nil && !l.Compares(x, y) {
		l.stop()
	}
	equal := types.Equal(x, y)
	if c.Function() == operators.NotEquals {
		return types.Bool(equal != types.True)
	}
	return equal
}

// isVariadic reports whether cel-go would plan the call as evalVarArgs, which evaluates no
// argument after one that is an error.
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

// oversized stands for the result of a call that is not made because it costs more than an
// expression may. cel-go's cost tracker asks for its size, and then ends the expression.
type oversized struct {
	types.Null
	size uint64
}

// Size implements traits.Sizer.
func (o oversized) Size() ref.Val { return types.Int(o.size) }

// IsRefused reports whether v, which a Func returned, stands for a call that was not made
// because it costs more than an expression may.
func IsRefused(v ref.Val) bool {
	_, ok := v.(oversized)
	return ok
}

// refused returns the value that stands for a result of this size.
func refused(size uint64) ref.Val { return oversized{size: size} }

// tooMany reports whether n times m pairs, at this cost for each, cost more than an
// expression may.
func tooMany(n, m, cost uint64) bool {
	return m > 0 && n > celconfig.PerCallLimit/m/cost
}

var errInterrupted = types.NewErr("operation interrupted")

// parsedQuantity refuses the review if a quantity takes long to parse or to compare.
func parsedQuantity(l *Limits, args []ref.Val) ref.Val {
	if text, _ := args[0].(types.String); quantity.Fits(string(text)) { // "" for what cel-go refuses
		return nil
	}
	l.Review.Object.TooLarge(quantity.ErrTooLarge)
	return types.WrapErr(quantity.ErrTooLarge)
}

var errNoMemory = types.NewErr("the result or the regular expression takes too much memory")
