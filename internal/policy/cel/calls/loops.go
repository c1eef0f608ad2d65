package calls

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// loopConditions returns the IDs of the conditions of all loops in an expression. cel-go's
// interpreter evaluates the condition of a loop before each step.
func loopConditions(expression *cel.Ast) map[int64]bool {
	ids := make(map[int64]bool)
	ast.PreOrderVisit(expression.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			ids[e.AsComprehension().LoopCondition().ID()] = true
		}
	}))
	return ids
}

// interruptible returns the condition of a loop that ends the expression with its context. cel-go's
// own way needs a channel, so a timer for each review, and lets no other evaluation have its turn.
func interruptible(condition interpreter.InterpretableV2) interpreter.InterpretableV2 {
	if call, ok := condition.(interpreter.InterpretableCall); ok { // which cel-go's cost tracker charges
		return &loopCall{call}
	}
	return &loopCondition{condition}
}

// A loopCall is a condition that is a call.
type loopCall struct{ interpreter.InterpretableCall }

// Eval implements interpreter.Interpretable.
func (c *loopCall) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (c *loopCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	limitsIn(frame).interrupt()
	return c.InterpretableCall.Exec(frame)
}

// A loopCondition is a condition that is no call, such as the constant true.
type loopCondition struct{ interpreter.InterpretableV2 }

// Eval implements interpreter.Interpretable.
func (c *loopCondition) Eval(vars interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (c *loopCondition) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	limitsIn(frame).interrupt()
	return c.InterpretableV2.Exec(frame)
}

// interrupt ends the expression if its context has ended, with the error that cel-go gives.
func (l *Limits) interrupt() {
	if l != nil && l.IsInterrupted() {
		panic(interpreter.EvalCancelledError{Cause: interpreter.ContextCancelled, Message: interpreter.InterruptError{}.Error()})
	}
}
