package closure

import (
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// A collection is the macro map, filter or exists_one. It goes over all elements, and for
// those that it picks it adds an element to its result, or 1 to its count (cel-go
// parser/macro.go).
type collection struct {
	over  closure
	picks closure // whether it picks an element; nil if it picks all
	makes closure // the element for the result; nil for exists_one
	slot  int
}

// collect is a macro that goes over all elements. Its step adds a list of one element to a
// list, or 1 to the count of exists_one.
func (b *builder) collect(c ast.ComprehensionExpr) closure {
	m := collection{over: b.expr(c.IterRange()), slot: len(b.slots)}
	step := c.LoopStep()
	if isCall(step, operators.Conditional) {
		args := step.AsCall().Args()
		if m.picks = b.within(c, args[0]); m.picks == nil {
			return nil
		}
		step = args[1]
	}
	if m.over == nil {
		return nil
	}
	added := step.AsCall().Args()[1]
	if added.Kind() != ast.ListKind {
		return m.isOne
	}
	if b.constant(added) != nil {
		return nil // the interpreter makes the list once, without cost
	}
	if m.makes = b.within(c, added.AsList().Elements()[0]); m.makes == nil {
		return nil
	}
	return m.list
}

func isTrue(e ast.Expr) bool { return e.Kind() == ast.LiteralKind && e.AsLiteral() == types.True }

// each calls do for each element that m picks. It returns false if it gave up.
func (m *collection) each(f *frame, do func() bool) bool {
	v := m.over(f)
	it := f.elements(&v)
	if it.kind == gaveUp {
		return false
	}
	for it.next(&f.slots[m.slot]) {
		picked := true
		if m.picks != nil {
			v := m.picks(f)
			if v.kind != kindBool {
				return false
			}
			picked = v.isTrue()
		}
		if picked && !do() || f.IsInterrupted() {
			return false
		}
	}
	return true
}

// list is map or filter. An element costs what its expressions cost, reading the result so
// far, creating a list of the element, and adding that list.
func (m *collection) list(f *frame) value {
	var all []ref.Val
	done := m.each(f, func() bool {
		if !f.steps(1) {
			return false
		}
		v := m.makes(f)
		if v.kind == gaveUp || !f.call(common.ListCreateBaseCost) || !f.TakeList(1) || !f.steps(1) {
			return false
		}
		all = append(all, f.box(&v))
		return true
	})
	if !done || !f.steps(1) { // the result
		return value{}
	}
	return listValue(all)
}

// isOne is exists_one. An element costs what its expression costs, reading the count, and
// adding 1. The result costs reading the count and comparing it.
func (m *collection) isOne(f *frame) value {
	n := 0
	done := m.each(f, func() bool {
		n++
		return f.steps(2)
	})
	if !done || !f.steps(2) {
		return value{}
	}
	return boolValue(n == 1)
}
