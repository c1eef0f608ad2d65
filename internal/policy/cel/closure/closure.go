package closure

import (
	"math"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// An Evaluator evaluates one expression. Several goroutines may use it at the same time.
type Evaluator interface {
	// Evaluate returns the value and the cost of the expression. It stops with an error when
	// the cost exceeds limit; that is the only error. ok is false if it gave up: then the
	// interpreter must evaluate the expression.
	Evaluate(in *Input, limit uint64) (val ref.Val, cost int64, ok bool, err error)
}

// New returns the Evaluator of a checked expression; nil if it has a part that closures
// cannot evaluate, or that the interpreter refuses when it plans: a conversion of a constant
// that fails, or a literal regular expression that does not compile. variables are the names of the
// policy's variables, v is the release whose costs calls have.
func New(env *cel.Env, checked *cel.Ast, variables []string, v admission.Version) Evaluator {
	b := &builder{AST: checked.NativeRep(), functions: env.Functions(), variables: variables, version: v}
	if c := b.expr(b.Expr()); c != nil && !b.refused {
		return c
	}
	return nil
}

// Input is what expressions are evaluated on. Only one goroutine at a time may use it.
type Input struct {
	*view.Review
	*calls.Limits
	Policy
	*Frames
}

// Policy has the values of the variables that do not come from the review.
type Policy interface {
	// Params returns the value of params.
	Params() ref.Val
	// NamespaceObject returns the value of namespaceObject.
	NamespaceObject() ref.Val
	// Variables returns the value of variables.
	Variables() ref.Val
	// Variable returns the value of the i-th variable of the policy.
	Variable(i int) ref.Val
}

// A closure evaluates a part of an expression. It gives up where the interpreter would have
// an error, and at values that it does not know.
type closure func(f *frame) value

// A frame is the state that the closures of one evaluation share.
type frame struct {
	*Input
	cost    uint64
	limit   uint64 // of the cost
	stopped bool   // because the cost exceeded the limit
	slots   [slotsMax]value
	next    *frame // in Frames
}

// Frames are the frames that no evaluation uses. The zero Frames has none.
type Frames struct{ free *frame }

// Reset removes everything that frames hold of a review.
func (all *Frames) Reset() {
	for f := all.free; f != nil; f = f.next {
		*f = frame{next: f.next}
	}
}

// take returns a frame for an evaluation. Evaluations nest: a variable is evaluated during
// the evaluation of the expression that uses it.
func (all *Frames) take() *frame {
	f := all.free
	if f == nil {
		return new(frame)
	}
	all.free = f.next
	return f
}

func (all *Frames) put(f *frame) { f.next, all.free = all.free, f }

// slotsMax is the maximum number of nested loops around an expression. Policies have two,
// seldom three.
const slotsMax = 8

// kind is the type of a value.
type kind uint8

const (
	gaveUp     kind = iota // there is no value
	kindNull               // types.Null
	kindBool               // types.Bool: bits
	kindInt                // types.Int: bits
	kindDouble             // types.Double: bits
	kindText               // types.String
	kindObject             // an object of a document: json
	kindArray              // an array of a document: json
	kindOther              // anything else: val
	kindNone               // types.OptionalNone, of an optional path that ends early
)

// A value is a CEL value. Only kindOther needs the heap.
type value struct {
	kind kind
	bits uint64
	text string
	json codec.Value
	val  ref.Val
}

func boolValue(b bool) value {
	if b {
		return value{kind: kindBool, bits: 1}
	}
	return value{kind: kindBool}
}

func (v *value) isTrue() bool { return v.bits != 0 }

// jsonValue returns the value that view.ValueOf returns. It gives up for a missing one.
func jsonValue(v codec.Value) value {
	switch v.Kind() {
	case codec.KindObject:
		return value{kind: kindObject, json: v}
	case codec.KindArray:
		return value{kind: kindArray, json: v}
	case codec.KindString:
		return value{kind: kindText, text: v.String()}
	case codec.KindBool:
		return boolValue(v.Bool())
	case codec.KindNull:
		return value{kind: kindNull}
	case codec.KindNumber:
		return unboxed(view.ValueOf(v))
	}
	return value{}
}

// unboxed returns the value of a ref.Val. It gives up for an error.
func unboxed(v ref.Val) value {
	switch v := v.(type) {
	case nil:
		return value{}
	case types.Null:
		return value{kind: kindNull}
	case types.Bool:
		return boolValue(bool(v))
	case types.Int:
		return value{kind: kindInt, bits: uint64(v)}
	case types.Double:
		return value{kind: kindDouble, bits: math.Float64bits(float64(v))}
	case types.String:
		return value{kind: kindText, text: string(v)}
	case *view.Object:
		return value{kind: kindObject, json: v.JSON()}
	case *view.List:
		return value{kind: kindArray, json: v.JSON()}
	case *types.Err, *types.Unknown:
		return value{}
	}
	return value{kind: kindOther, val: v}
}

// box returns the ref.Val of a value.
func (f *frame) box(v *value) ref.Val {
	switch v.kind {
	case kindNull:
		return types.NullValue
	case kindBool:
		return types.Bool(v.isTrue())
	case kindInt:
		return types.Int(v.bits)
	case kindDouble:
		return types.Double(math.Float64frombits(v.bits))
	case kindText:
		return types.String(v.text)
	case kindObject, kindArray:
		return f.Index.ValueOf(v.json)
	}
	return v.val
}

// size returns the size of a value as cel-go's cost tracker sees it; see calls.Size.
func (f *frame) size(v *value) uint64 {
	switch v.kind {
	case kindText:
		return uint64(utf8.RuneCountInString(v.text))
	case kindObject, kindArray:
		return uint64(f.Index.Len(v.json))
	case kindOther:
		return calls.Size(v.val)
	}
	return 1
}

// steps adds the cost of n steps, 1 each. It reports whether to continue.
func (f *frame) steps(n uint64) bool {
	if f.cost += n; f.cost <= f.limit {
		return true
	}
	f.cost, f.stopped = f.limit+1, true // the interpreter stops after this step
	return false
}

// call adds the cost of one step. It reports whether to continue.
func (f *frame) call(cost uint64) bool {
	f.cost += cost
	f.stopped = f.cost > f.limit
	return !f.stopped
}

var errCostLimit = interpreter.EvalCancelledError{
	Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded",
}

// Evaluate implements Evaluator.
func (c closure) Evaluate(in *Input, limit uint64) (val ref.Val, cost int64, ok bool, err error) {
	f := in.take()
	f.Input, f.cost, f.limit, f.stopped = in, 0, limit, false
	v := c(f)
	stopped := f.stopped
	if cost = int64(f.cost); v.kind != gaveUp {
		val = f.box(&v)
	}
	in.put(f)
	if stopped {
		return nil, cost, true, errCostLimit
	}
	return val, cost, val != nil, nil
}
