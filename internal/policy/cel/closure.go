package cel

import (
	"math"
	"unicode/utf8"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/codec"
)

// A closure evaluates a part of an expression, as cel-go's interpreter does, with the
// same cost, and without values on the heap. It gives up where the interpreter would
// have an error, and at what it does not know: the interpreter then evaluates the
// whole expression anew. So closures have no errors, and these are the interpreter's.
type closure func(f *frame) value

// A frame is what the closures of one evaluation share.
type frame struct {
	*Evaluation
	cost    uint64
	stopped bool // because of the limit of the cost
	slots   [slotsMax]value
	next    *frame // of the evaluation of a variable on the way
}

// slotsMax is how many variables of loops there may be around an expression, two for
// a loop. Policies have two loops in one another, seldom three.
const slotsMax = 8

// kind says what a value is.
type kind uint8

const (
	gaveUp     kind = iota
	kindNull        // types.Null
	kindBool        // types.Bool: bits
	kindInt         // types.Int: bits
	kindDouble      // types.Double: bits
	kindText        // types.String
	kindObject      // an object of a document: json
	kindArray       // an array of a document: json
	kindOther       // anything else: val
	kindNone        // what an optional path comes to that ends early: types.OptionalNone
)

// A value is one of CEL's.
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

// jsonValue returns the value that ValueOf returns. It gives up for a missing one.
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
		return unboxed(number(v))
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
	case *object:
		return value{kind: kindObject, json: v.v}
	case *list:
		return value{kind: kindArray, json: v.v}
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
		return valueOf(v.json, f.object.in)
	}
	return v.val
}

// size is what cel-go's cost tracker takes for the size of a value.
func (f *frame) size(v *value) uint64 {
	switch v.kind {
	case kindText:
		return uint64(utf8.RuneCountInString(v.text))
	case kindObject, kindArray:
		return uint64(f.object.in.len(v.json))
	case kindOther:
		return actualSize(v.val)
	}
	return 1
}

// actualSize does what cel-go's cost tracker does, except for optional values: no function
// that is counted here costs the size of one.
func actualSize(v ref.Val) uint64 {
	if s, ok := v.(traits.Sizer); ok {
		n, _ := s.Size().(types.Int)
		return uint64(n)
	}
	return 1
}

// traversal is the cost of going through a string of so many characters, or so many
// elements.
func traversal(size uint64) uint64 {
	return uint64(math.Ceil(float64(size) * common.StringTraversalCostFactor))
}

// steps counts n steps that cost 1 each. It reports whether to go on.
func (f *frame) steps(n uint64) bool {
	if f.cost += n; f.cost <= celconfig.PerCallLimit {
		return true
	}
	f.cost, f.stopped = celconfig.PerCallLimit+1, true // where the interpreter stops
	return false
}

// call counts one step that costs as much. It reports whether to go on.
func (f *frame) call(cost uint64) bool {
	f.cost += cost
	f.stopped = f.cost > celconfig.PerCallLimit
	return !f.stopped
}

var errCostLimit = interpreter.EvalCancelledError{
	Cause: interpreter.CostLimitExceeded, Message: "operation cancelled: actual cost limit exceeded",
}

// runClosure evaluates an expression that has a closure. It is not ok if that gave
// up.
func (e *Evaluation) runClosure(x *Expression) (val ref.Val, cost int64, ok bool, err error) {
	f := e.frames
	if f == nil {
		f = new(frame)
	} else {
		e.frames = f.next
	}
	f.Evaluation, f.cost, f.stopped = e, 0, false
	v := x.closure(f)
	stopped := f.stopped
	if cost = int64(f.cost); v.kind != gaveUp {
		val = f.box(&v)
	}
	f.next, e.frames = e.frames, f
	if stopped {
		return nil, cost, true, errCostLimit
	}
	return val, cost, val != nil, nil
}
