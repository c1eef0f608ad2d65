package closure

import (
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fastadmit/fastadmit/admission"
)

// A builder makes the closure of a checked expression. Its methods return nil for what
// closures cannot evaluate.
type builder struct {
	*ast.AST
	functions map[string]*decls.FunctionDecl
	variables []string // the policy's
	slots     []string // the variables of the loops around the expression, by slot
	version   admission.Version
	refused   bool // the interpreter refuses a constant or a literal when it plans
}

func (b *builder) expr(e ast.Expr) closure {
	if known := b.constant(e); known != nil {
		v := unboxed(known)
		return func(*frame) value { return v }
	}
	switch e.Kind() {
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

// constant returns the value of an expression that the interpreter evaluates once, when it
// plans, without cost: a literal; a list, a map or a conversion of constants; in with an
// empty list. It returns nil for other expressions.
func (b *builder) constant(e ast.Expr) ref.Val {
	switch e.Kind() {
	case ast.LiteralKind:
		return e.AsLiteral()
	case ast.ListKind:
		if all := b.constants(e.AsList().Elements()); all != nil { // an optional one is no constant
			return listValue(all).val
		}
	case ast.MapKind:
		return b.constantMap(e.AsMap())
	case ast.CallKind:
		c := e.AsCall()
		if list := b.constantList(e, c); list != nil && list.Size() == types.IntZero {
			return types.False
		}
		if !overloads.IsTypeConversionFunction(c.FunctionName()) {
			return nil
		}
		if fn, args := b.function(e, c), b.constants(operands(c)); fn != nil && len(args) == 1 {
			result := fn.call(args)
			b.refused = b.refused || result == nil || types.IsError(result)
			return result
		}
	}
	return nil
}

// constantList returns the list of the operator in. It returns nil if the list is no
// constant or may be a map, and for other calls.
func (b *builder) constantList(e ast.Expr, c ast.CallExpr) traits.Lister {
	if b.overload(e) != overloads.InList {
		return nil
	}
	list, _ := b.constant(c.Args()[1]).(traits.Lister)
	return list
}

// constants returns the values of constants, nil if an expression is no constant.
func (b *builder) constants(exprs []ast.Expr) []ref.Val {
	all := make([]ref.Val, len(exprs))
	for i, e := range exprs {
		if all[i] = b.constant(e); all[i] == nil {
			return nil
		}
	}
	return all
}

func (b *builder) constantMap(m ast.MapExpr) ref.Val {
	all := make(map[ref.Val]ref.Val)
	for _, entry := range m.Entries() {
		e := entry.AsMapEntry()
		key, val := b.constant(e.Key()), b.constant(e.Value())
		if key == nil || val == nil { // the value of an optional one is no constant
			return nil
		}
		all[key] = val
	}
	return types.NewRefValMap(types.DefaultTypeAdapter, all)
}

// list makes a list whose elements are not all constants. b.expr returns nil for an optional
// element: cel-go compiles only those whose type is optional.
func (b *builder) list(e ast.Expr) closure {
	var elements []closure
	for _, element := range e.AsList().Elements() {
		c := b.expr(element)
		if c == nil {
			return nil
		}
		elements = append(elements, c)
	}
	return func(f *frame) value {
		if !f.TakeList(len(elements)) {
			return value{}
		}
		all := make([]ref.Val, len(elements))
		for i, element := range elements {
			v := element(f)
			if v.kind == gaveUp {
				return value{}
			}
			all[i] = f.box(&v)
		}
		if !f.call(common.ListCreateBaseCost) {
			return value{}
		}
		return listValue(all)
	}
}

func listValue(all []ref.Val) value {
	return value{kind: kindOther, val: types.NewRefValList(types.DefaultTypeAdapter, all)}
}

// call calls a function or an operator.
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
		return b.optional(c)
	case operators.Add:
		return b.add(e, c)
	case "size":
		return b.size(e, c)
	case "startsWith", "endsWith", "contains", "matches":
		if does := b.stringFunction(e, c); does != nil {
			return does
		}
	}
	return b.anyCall(e, c)
}

// args returns the closures of the arguments of a call, the target first; nil if one of them
// has none.
func (b *builder) args(c ast.CallExpr) []closure {
	exprs := operands(c)
	all := make([]closure, len(exprs))
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

// overload returns the overload that a call was checked to be, empty if it may be one of
// several. The cost depends on it: a call that may be one of several costs 1.
func (b *builder) overload(e ast.Expr) string {
	if r := b.ReferenceMap()[e.ID()]; r != nil && len(r.OverloadIDs) == 1 {
		return r.OverloadIDs[0]
	}
	return ""
}
