package cel

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// A quantifier is one of the macros all and exists, and what it costs besides the
// list and what is said of each element (cel-go parser/macro.go makeQuantifier).
type quantifier struct {
	init    types.Bool
	ends    bool   // the result that ends the loop
	before  uint64 // the condition of the loop: the result so far, and the functions around it
	combine string // the operator of the step, whose other term is the result so far, for 1
}

var (
	all    = quantifier{init: types.True, ends: false, before: 2, combine: operators.LogicalAnd}
	exists = quantifier{init: types.False, ends: true, before: 3, combine: operators.LogicalOr}
)

// fold is a macro that goes over the elements of an array or the names of an object.
func (b *builder) fold(e ast.Expr) closure {
	c := e.AsComprehension()
	if c.HasIterVar2() || len(b.slots) == slotsMax {
		return nil
	}
	if isTrue(c.LoopCondition()) {
		return b.collect(c)
	}
	if !isIdent(c.Result(), c.AccuVar()) || c.AccuInit().Kind() != ast.LiteralKind {
		return nil
	}
	var q quantifier
	switch {
	case isCall(c.LoopStep(), all.combine) && isNotStrictlyFalse(c.LoopCondition(), c.AccuVar(), false):
		q = all
	case isCall(c.LoopStep(), exists.combine) && isNotStrictlyFalse(c.LoopCondition(), c.AccuVar(), true):
		q = exists
	default:
		return nil
	}
	terms := c.LoopStep().AsCall().Args()
	if c.AccuInit().AsLiteral() != q.init || len(terms) != 2 || !isIdent(terms[0], c.AccuVar()) {
		return nil
	}
	over, slot := b.expr(c.IterRange()), len(b.slots)
	holds := b.within(c, terms[1])
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
		result := boolValue(bool(q.init))
		for it.next(&f.slots[slot]) {
			if !f.steps(q.before) {
				return value{}
			}
			if result.isTrue() == q.ends {
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

func isIdent(e ast.Expr, name string) bool { return e.Kind() == ast.IdentKind && e.AsIdent() == name }

func isCall(e ast.Expr, function string) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == function
}

// isNotStrictlyFalse reports whether e is what says that a loop goes on, as long as
// the variable, or what is not the variable, is not false.
func isNotStrictlyFalse(e ast.Expr, variable string, negated bool) bool {
	if !isCall(e, operators.NotStrictlyFalse) || len(e.AsCall().Args()) != 1 {
		return false
	}
	e = e.AsCall().Args()[0]
	if negated {
		if !isCall(e, operators.LogicalNot) || len(e.AsCall().Args()) != 1 {
			return false
		}
		e = e.AsCall().Args()[0]
	}
	return isIdent(e, variable)
}
