package closure

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// A quantifier is the macro all or exists (cel-go parser/macro.go makeQuantifier).
type quantifier struct {
	init   bool   // the result without elements; the opposite ends the loop
	before uint64 // the cost of the loop's condition: the result so far, and its functions
}

var (
	all    = quantifier{init: true, before: 2}
	exists = quantifier{init: false, before: 3}
)

// fold is a macro that iterates over the elements of an array or the names of an object.
// Only macros make comprehensions, so it only distinguishes the macros.
func (b *builder) fold(e ast.Expr) closure {
	c := e.AsComprehension()
	if c.HasIterVar2() || len(b.slots) == slotsMax {
		return nil
	}
	if isTrue(c.LoopCondition()) {
		return b.collect(c)
	}
	var q quantifier
	switch {
	case isCall(c.LoopStep(), operators.LogicalAnd):
		q = all
	case isCall(c.LoopStep(), operators.LogicalOr):
		q = exists
	default: // cel.bind
		return nil
	}
	over, slot := b.expr(c.IterRange()), len(b.slots)
	holds := b.within(c, c.LoopStep().AsCall().Args()[1])
	if over == nil || holds == nil {
		return nil
	}
	return q.closure(over, holds, slot)
}

// within is an expression inside the loop.
func (b *builder) within(c ast.ComprehensionExpr, e ast.Expr) closure {
	slot := len(b.slots)
	b.slots = append(b.slots, c.IterVar())
	defer func() { b.slots = b.slots[:slot] }()
	return b.expr(e)
}

func (q quantifier) closure(over, holds closure, slot int) closure {
	return func(f *frame) value {
		v := over(f)
		it := f.elements(&v)
		if it.kind == gaveUp {
			return value{}
		}
		result := boolValue(q.init)
		for it.next(&f.slots[slot]) {
			f.steps(q.before) // if that exceeds the limit, the next steps report it
			if result.isTrue() != q.init {
				break
			}
			if !f.steps(1) {
				return value{}
			}
			if result = holds(f); result.kind != kindBool || f.IsInterrupted() {
				return value{}
			}
		}
		if !f.steps(1) { // the result
			return value{}
		}
		return result
	}
}

func isCall(e ast.Expr, function string) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == function
}
