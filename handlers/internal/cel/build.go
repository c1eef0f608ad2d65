package cel

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// A builder makes the closure of a checked expression. Its methods return nil for
// what they do not know, and then so does build: the interpreter evaluates such an
// expression. What the interpreter does is in cel-go's interpreter/planner.go, what
// it counts in runtimecost.go.
type builder struct {
	*ast.AST
	compiler *Compiler
	slots    []string // the variables of the loops around the expression, by their slot
}

// build returns the closure of an expression.
func (c *Compiler) build(checked *cel.Ast) closure {
	b := &builder{AST: checked.NativeRep(), compiler: c}
	return b.expr(b.Expr())
}

func (b *builder) expr(e ast.Expr) closure {
	switch e.Kind() {
	case ast.LiteralKind:
		return constant(e)
	case ast.ListKind:
		return b.list(e)
	case ast.ComprehensionKind:
		return b.fold(e)
	case ast.CallKind:
		if c := e.AsCall(); !isIndex(c) {
			return b.call(e, c)
		}
	}
	if p := b.path(e); p != nil {
		return p.closure()
	}
	return nil
}

// constant is a literal, which costs nothing.
func constant(e ast.Expr) closure {
	v := unboxed(e.AsLiteral())
	return func(*frame) value { return v }
}

// list is a list of literals, which the interpreter makes once: it costs nothing.
func (b *builder) list(e ast.Expr) closure {
	for _, element := range e.AsList().Elements() {
		if element.Kind() != ast.LiteralKind {
			return nil
		}
	}
	if len(e.AsList().OptionalIndices()) > 0 {
		return nil
	}
	v := value{kind: kindOther, val: types.NewRefValList(types.DefaultTypeAdapter, literals(e))}
	return func(*frame) value { return v }
}

// call is a function or an operator.
func (b *builder) call(e ast.Expr, c ast.CallExpr) closure {
	switch name := c.FunctionName(); name {
	case operators.LogicalAnd:
		return b.logical(c, false)
	case operators.LogicalOr:
		return b.logical(c, true)
	case operators.LogicalNot:
		return b.not(c)
	case operators.Conditional:
		return b.conditional(c)
	case operators.Equals:
		return b.equals(c, true)
	case operators.NotEquals:
		return b.equals(c, false)
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return b.compare(e, c)
	case operators.In:
		return b.in(e, c)
	case "orValue", "hasValue":
		return b.optional(e, c)
	case "size":
		return b.size(c)
	case "startsWith", "endsWith", "contains", "matches":
		return b.stringFunction(e, c)
	}
	return nil
}

// args returns the closures of the arguments of a call, the target first; nil if one
// of them is not known, or there are not so many.
func (b *builder) args(c ast.CallExpr, n int) []closure {
	exprs := operands(c)
	if len(exprs) != n {
		return nil
	}
	all := make([]closure, n)
	for i, e := range exprs {
		if all[i] = b.expr(e); all[i] == nil {
			return nil
		}
	}
	return all
}

// operands returns the arguments of a call, the target first.
func operands(c ast.CallExpr) []ast.Expr {
	if c.IsMemberFunction() {
		return append([]ast.Expr{c.Target()}, c.Args()...)
	}
	return c.Args()
}

// overload returns the overload that a call was checked to be of, "" if it may be
// one of several. The cost depends on it: a call of several costs 1.
func (b *builder) overload(e ast.Expr) string {
	if r := b.ReferenceMap()[e.ID()]; r != nil && len(r.OverloadIDs) == 1 {
		return r.OverloadIDs[0]
	}
	return ""
}
