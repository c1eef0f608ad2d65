package cel

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// A quantifier is one of the macros all and exists, and what it costs besides the
// list and what is said of each element (cel-go parser/macro.go makeQuantifier).
type quantifier struct {
	init   bool   // the result if there are no elements; the other one ends the loop
	before uint64 // the condition of the loop: the result so far, and the functions around it
}

var (
	all    = quantifier{init: true, before: 2}
	exists = quantifier{init: false, before: 3}
)

// fold is a macro that goes over the elements of an array or the names of an object.
// Only macros make comprehensions, so what tells theirs apart is enough.
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

// within is an expression in a loop.
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
			f.steps(q.before) // the next step tells whether that was too many
			if result.isTrue() != q.init {
				break
			}
			if !f.steps(1) {
				return value{}
			}
			if result = holds(f); result.kind != kindBool || f.isInterrupted() {
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
