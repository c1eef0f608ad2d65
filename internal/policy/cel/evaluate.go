package cel

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel/calls"
	"github.com/fastadmit/fastadmit/internal/policy/cel/closure"
	"github.com/fastadmit/fastadmit/internal/policy/cel/view"
)

// Input contains the values of the variables of expressions for one review. Only one
// goroutine at a time may use it. It is valid until the review is released.
type Input struct {
	ctx         context.Context
	review      *codec.Review
	view        view.Review
	evaluations *Evaluation // that have ended
	frames      closure.Frames
	retained    calls.Limits // the account of what is kept until the review is answered
	remembered  map[*shared]remembered
	kept        int // bytes that the values in remembered take

	// Params is the value of the variable params. Nil means null.
	Params ref.Val
	// Cluster returns the values of variables that depend on the cluster. If it is nil,
	// namespaceObject is null, and expressions that use authorizer fail.
	Cluster Cluster
	// HidesNamespace makes namespaceObject null. HidesAuthorizer makes expressions fail
	// that use authorizer or authorizer.requestResource.
	HidesNamespace, HidesAuthorizer bool
	// IgnoredCondition is the error because of which Matches returned false without one.
	IgnoredCondition error
	// Spent is the total cost of all evaluations, in the units of CEL. It does not
	// include expressions that exceeded the budget.
	Spent int64
}

// Cluster returns the values of variables that depend on the cluster. Its methods are
// called each time an expression uses a variable.
type Cluster interface {
	// NamespaceObject returns the value of the variable namespaceObject.
	NamespaceObject() ref.Val
	// Authorizer returns the values of authorizer and authorizer.requestResource.
	Authorizer() (authorizer, requestResource ref.Val)
	// Resources returns the objects that the policy can read. It is nil for a policy that cannot read any.
	Resources() Resources
}

// NewInput returns the Input for a review. Evaluations stop when ctx ends.
func NewInput(ctx context.Context, review *codec.Review) *Input {
	in := inputs.Get().(*Input)
	in.ctx, in.review, in.retained = ctx, review, calls.Limits{Context: ctx, Review: review}
	in.view.Read(review)
	return in
}

var inputs = sync.Pool{New: func() any { return new(Input) }}

// Release returns the memory of in for the next Input. Calling it is optional. The caller
// must not use in or values of its evaluations after that.
func (in *Input) Release() {
	in.frames.Reset()
	in.forget()
	*in = Input{evaluations: in.evaluations, frames: in.frames, remembered: in.remembered}
	inputs.Put(in)
}

// An Evaluation evaluates some expressions of a policy on one Input. They and the
// variables that they use share a cost budget. It corresponds to one call of ForInput in
// k8s.io/apiserver pkg/admission/plugin/cel. Only one goroutine at a time may use it.
type Evaluation struct {
	*Input
	// Remaining is the rest of the budget, in the units of CEL.
	Remaining int64

	compiler  *Compiler
	variables variables
	limits    calls.Limits
	closures  closure.Input
	next      *Evaluation // in Input.evaluations
}

// Begin returns an Evaluation for expressions that c compiled. budget is the maximum cost
// in the units of CEL. The expressions see the object with all edits up to this call.
func (c *Compiler) Begin(input *Input, budget int64) *Evaluation {
	if input.view.Refresh() {
		input.forget()
	}
	e := input.evaluations
	if e == nil {
		e = new(Evaluation)
	} else {
		input.evaluations = e.next
	}
	e.Input, e.Remaining, e.compiler = input, budget, c
	e.variables.of = e
	e.limits = calls.Limits{Context: input.ctx, Review: input.review, Kept: input.kept}
	e.limits.Take(input.retained.Bytes())
	e.closures = closure.Input{Review: &input.view, Limits: &e.limits, Policy: policy{e}, Frames: &input.frames}
	return e
}

// End returns the memory of the evaluation for the next one on the same Input. Calling
// it is optional. The caller must not use e after that. Values that e returned stay valid
// until Release.
func (e *Evaluation) End() {
	in := e.Input
	clear(e.variables.values)
	*e = Evaluation{variables: variables{values: e.variables.values[:0]}, next: in.evaluations}
	in.evaluations = e
}

// A policy gives closures the variables of an Evaluation.
type policy struct{ *Evaluation }

// Params implements closure.Policy.
func (p policy) Params() ref.Val { return orNull(p.Evaluation.Params) }

// NamespaceObject implements closure.Policy.
func (p policy) NamespaceObject() ref.Val { return p.namespaceObject() }

// Variables implements closure.Policy.
func (p policy) Variables() ref.Val { return &p.variables }

// Variable implements closure.Policy.
func (p policy) Variable(i int) ref.Val { return p.variables.value(i, &p.compiler.variables[i]) }

// ResolveName implements interpreter.Activation.
func (e *Evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case "object":
		return e.view.Object.OrNull(), true
	case "oldObject":
		return e.view.OldObject.OrNull(), true
	case "request":
		return &e.view.Request, true
	case "variables":
		return &e.variables, true
	case "params":
		return orNull(e.Params), true
	case "namespaceObject":
		return e.namespaceObject(), true
	case "authorizer", "authorizer.requestResource":
		if e.Cluster == nil || e.HidesAuthorizer {
			return nil, false
		}
		authorizer, requestResource := e.Cluster.Authorizer()
		if name == "authorizer" {
			return authorizer, true
		}
		return requestResource, true
	case resourceName:
		return resourceOf(e)
	case "json":
		return jsonLibrary, true
	case "yaml":
		return yamlLibrary, true
	case calls.LimitsName:
		return &e.limits, true
	}
	return nil, false
}

func (in *Input) namespaceObject() ref.Val {
	if in.Cluster == nil || in.HidesNamespace {
		return types.NullValue
	}
	return orNull(in.Cluster.NamespaceObject())
}

func orNull(v ref.Val) ref.Val {
	if v == nil {
		return types.NullValue
	}
	return v
}

// Parent implements interpreter.Activation.
func (e *Evaluation) Parent() interpreter.Activation { return nil }

// Evaluate returns the value of an expression. err means that this expression failed.
// fatal means that the whole evaluation failed, for example because the budget is spent.
// The messages of both are those of kube-apiserver.
func (e *Evaluation) Evaluate(x *Expression) (value ref.Val, err, fatal error) {
	if x.Err != nil {
		return nil, &apiservercel.Error{
			Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf("compilation error: %v", x.Err), Cause: x.Err,
		}, nil
	}
	e.variables.cost = 0
	value, cost, ok, err := e.run(x)
	e.limits.Leave()
	switch {
	case e.limits.IsExhausted():
		return nil, nil, errOutOfMemory
	case !e.charge(e.variables.cost): // of the variables that the expression used first
		return nil, nil, errOutOfBudget
	case !ok:
		return nil, nil, internal("runtime cost could not be calculated for expression: %v, no further expression will be run", x.Text)
	case !e.charge(cost):
		return nil, nil, errOutOfBudget
	case err != nil:
		return nil, invalid("expression '%v' resulted in error: %v", x.Text, message(err)), nil
	}
	return value, nil, nil
}

var errOutOfBudget = &apiservercel.Error{
	Type:   apiservercel.ErrorTypeInvalid,
	Detail: "validation failed due to running out of cost budget, no further validation rules will be run",
	Cause:  apiservercel.ErrOutOfBudget,
}

// errOutOfMemory is the error of an evaluation that exceeds calls.BytesMax. kube-apiserver has no
// such limit.
var errOutOfMemory = &apiservercel.Error{
	Type:   apiservercel.ErrorTypeInvalid,
	Detail: "validation failed due to running out of memory budget, no further validation rules will be run",
	Cause:  apiservercel.ErrOutOfBudget,
}

// Converts returns an error if the evaluation exceeds its memory when a value is converted to a
// patch.
func (e *Evaluation) Converts(v ref.Val) error {
	return e.outOfMemory(&e.limits, e.limits.Passing(e.limits.Decoded(v)))
}

// Keeps charges n bytes that were made of a value. It returns an error if the evaluation
// exceeds its memory.
func (e *Evaluation) Keeps(n int) error { return e.outOfMemory(&e.limits, e.limits.Take(n)) }

// Retain charges a text of n bytes that is kept until the review is answered, such as the value of
// an audit annotation for each of many parameters. It is charged to all evaluations that begin
// later. Retain returns an error if these texts alone exceed the memory of an evaluation.
func (in *Input) Retain(n int) error { return in.outOfMemory(&in.retained, in.retained.Take(n)) }

func (in *Input) outOfMemory(l *calls.Limits, fits bool) error {
	switch {
	case fits:
		return nil
	case l.IsExhausted():
		return errOutOfMemory
	}
	return in.review.Err()
}

func (e *Evaluation) charge(cost int64) bool {
	if cost > e.Remaining {
		return false
	}
	e.Remaining -= cost
	e.Spent += cost
	return true
}

// run evaluates an expression, unless an equal one was evaluated before. ok is false if the cost is
// not known.
func (e *Evaluation) run(x *Expression) (value ref.Val, cost int64, ok bool, err error) {
	if e.shares(x) {
		return e.runShared(x)
	}
	return e.compute(x)
}

// compute evaluates an expression, with its closure if it has one that does not give up.
func (e *Evaluation) compute(x *Expression) (value ref.Val, cost int64, ok bool, err error) {
	if x.closure != nil {
		if value, cost, ok, err = x.closure.Evaluate(&e.closures, celconfig.PerCallLimit); ok || e.limits.IsExhausted() {
			return value, cost, ok, err
		}
	}
	return e.interpret(x)
}

// interpret evaluates an expression with cel-go's interpreter.
func (e *Evaluation) interpret(x *Expression) (value ref.Val, cost int64, ok bool, err error) {
	var details *cel.EvalDetails
	e.limits.Checks = 0
	value, details, err = x.program.Eval(e)
	actual := details.ActualCost()
	if actual == nil {
		return nil, 0, false, err
	}
	return value, int64(min(*actual, math.MaxInt64)), true, err
}

// message returns the text of an error of CEL. One of them names a Go type: then the types of
// package view get the names of the types that kube-apiserver has in their place.
func message(err error) string { return goTypes.Replace(err.Error()) }

var goTypes = strings.NewReplacer(
	"invalid qualifier type: *view.Object", "invalid qualifier type: map[string]interface {}",
	"invalid qualifier type: *view.List", "invalid qualifier type: []interface {}",
)
