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
)

// Input contains the values of the variables of expressions for one review. Only one
// goroutine at a time may use it. It is valid until the review is released.
type Input struct {
	ctx               context.Context
	object, oldObject object
	request           request
	places            places
	changes           int         // of the object when it was read
	evaluations       *Evaluation // that have ended
	frames            *frame      // that nothing is evaluated in

	// Params is the value of the variable params. Nil means null.
	Params ref.Val
	// Cluster returns the values of variables that depend on the cluster. If it is nil,
	// namespaceObject is null, and expressions that use authorizer fail.
	Cluster Cluster
	// HidesNamespace makes namespaceObject null. HidesAuthorizer makes expressions fail
	// that use authorizer or authorizer.requestResource.
	HidesNamespace, HidesAuthorizer bool
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
}

// NewInput returns the Input for a review. Evaluations stop when ctx ends.
func NewInput(ctx context.Context, review *codec.Review) *Input {
	in := inputs.Get().(*Input)
	in.ctx, in.request = ctx, request{review}
	in.read()
	return in
}

var inputs = sync.Pool{New: func() any { return new(Input) }}

// Release returns the memory of in for the next Input. Calling it is optional. The caller
// must not use in or values of its evaluations after that.
func (in *Input) Release() {
	evaluations, frames := in.evaluations, in.frames
	for f := frames; f != nil; f = f.next {
		*f = frame{next: f.next}
	}
	*in = Input{evaluations: evaluations, frames: frames}
	inputs.Put(in)
}

// read makes the objects what the review has now.
func (in *Input) read() {
	review := in.request.review
	in.changes = review.Object.Changes()
	var p *places
	if max(review.Object.TextLen(), review.OldObject.TextLen()) >= largeMin {
		in.places = places{fits: review.Object.Fits}
		p = &in.places
	}
	in.object, in.oldObject = object{review.Object.Root(), p}, object{review.OldObject.Root(), p}
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
	checks    uint
	next      *Evaluation // that has ended too
}

// Begin returns an Evaluation for expressions that c compiled. budget is the maximum cost
// in the units of CEL. The expressions see the object with all edits up to this call.
func (c *Compiler) Begin(input *Input, budget int64) *Evaluation {
	if input.request.review.Object.Changes() != input.changes {
		input.read()
	}
	e := input.evaluations
	if e == nil {
		e = new(Evaluation)
	} else {
		input.evaluations = e.next
	}
	e.Input, e.Remaining, e.compiler = input, budget, c
	e.variables.of = e
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

// ResolveName implements interpreter.Activation.
func (e *Evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case "object":
		return e.object.orNull(), true
	case "oldObject":
		return e.oldObject.orNull(), true
	case "request":
		return &e.request, true
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
	case evaluationName:
		return e, true
	case "#interrupted":
		return true, e.isInterrupted()
	}
	return nil, false
}

func (in *Input) namespaceObject() ref.Val {
	if in.Cluster == nil || in.HidesNamespace {
		return types.NullValue
	}
	return orNull(in.Cluster.NamespaceObject())
}

// orNull returns the object, or null where the request has none.
func (m *object) orNull() ref.Val {
	if m.v.Kind() != codec.KindObject {
		return types.NullValue
	}
	return m
}

func orNull(v ref.Val) ref.Val {
	if v == nil {
		return types.NullValue
	}
	return v
}

// isInterrupted looks at the context as often as cel.Program.ContextEval does. That
// one asks for ctx.Done, which needs a timer.
func (e *Evaluation) isInterrupted() bool {
	e.checks++
	return e.checks%celconfig.CheckFrequency == 0 && e.ctx.Err() != nil
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
	switch {
	case !e.charge(e.variables.cost): // what variables cost that were evaluated on the way
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

func (e *Evaluation) charge(cost int64) bool {
	if cost > e.Remaining {
		return false
	}
	e.Remaining -= cost
	e.Spent += cost
	return true
}

// run runs a program. It is not ok if there is no telling what it cost.
func (e *Evaluation) run(x *Expression) (value ref.Val, cost int64, ok bool, err error) {
	if x.closure != nil {
		if value, cost, ok, err = e.runClosure(x); ok {
			return value, cost, true, err
		}
	}
	return e.interpret(x)
}

// interpret has cel-go run a program.
func (e *Evaluation) interpret(x *Expression) (value ref.Val, cost int64, ok bool, err error) {
	var details *cel.EvalDetails
	e.checks = 0
	value, details, err = x.program.Eval(e)
	actual := details.ActualCost()
	if actual == nil {
		return nil, 0, false, err
	}
	return value, int64(min(*actual, math.MaxInt64)), true, err
}

// message returns the text of an error of CEL. In the one that names a Go type, the
// types of this package have the names of those that stand in their place upstream.
func message(err error) string { return goTypes.Replace(err.Error()) }

var goTypes = strings.NewReplacer(
	"invalid qualifier type: *cel.object", "invalid qualifier type: map[string]interface {}",
	"invalid qualifier type: *cel.list", "invalid qualifier type: []interface {}",
)
