package main

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strconv"
)

// markConditions records which expressions below a node are used as values, so that
// those of type bool can be replaced.
func (x *instrumenter) markConditions(n ast.Node) {
	mark := func(all ...ast.Expr) {
		for _, e := range all {
			if e != nil {
				x.values[e] = true
			}
		}
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		mark(n.Cond)
	case *ast.ReturnStmt:
		mark(n.Results...)
		x.unread(n)
	case *ast.AssignStmt:
		mark(n.Rhs...)
	case *ast.ValueSpec:
		mark(n.Values...)
	case *ast.CaseClause:
		mark(n.List...)
	case *ast.KeyValueExpr:
		mark(n.Value)
	case *ast.CompositeLit:
		mark(n.Elts...)
	case *ast.CallExpr:
		mark(n.Args...)
	case *ast.ParenExpr:
		if x.values[n] {
			mark(n.X)
		}
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			mark(n.X)
		}
	case *ast.BinaryExpr:
		if n.Op == token.LAND || n.Op == token.LOR {
			mark(n.X, n.Y)
		}
	}
}

// unread records the constants that are returned with an error: callers do not read
// them.
func (x *instrumenter) unread(n *ast.ReturnStmt) {
	if len(n.Results) < 2 {
		return
	}
	last := x.pkg.info.Types[n.Results[len(n.Results)-1]]
	if last.IsNil() || last.Type == nil || !types.Implements(last.Type, errorType) {
		return
	}
	for _, e := range n.Results {
		x.ignored[e] = true
	}
}

var errorType = types.Universe.Lookup("error").Type().Underlying().(*types.Interface)

// expression makes the points of an expression. It returns false if the points below
// it are made already, or must not be made.
func (x *instrumenter) expression(e ast.Expr) bool {
	tv := x.pkg.info.Types[e]
	if tv.IsType() {
		return false
	}
	if tv.Value != nil {
		x.constant(e, tv)
		return false
	}
	switch e := e.(type) {
	case *ast.CallExpr:
		return x.call(e, tv.Type)
	case *ast.UnaryExpr:
		return x.address(e)
	case *ast.CompositeLit:
		x.literal(e)
	case *ast.BinaryExpr:
		x.binary(e)
	case *ast.SelectorExpr:
		x.condition(e)
		x.walk(e.X)
		return false
	case *ast.Ident, *ast.IndexExpr:
		x.condition(e)
	}
	return true
}

// literal makes the point of a list.
func (x *instrumenter) literal(e *ast.CompositeLit) (made bool) {
	if _, isSlice := x.pkg.info.Types[e].Type.Underlying().(*types.Slice); !isSlice || e.Type == nil {
		return false
	}
	id := x.drops(e)
	if id > 0 {
		x.wrap(e, fmt.Sprintf("_mu.Drop(%d, ", id), ")")
	}
	return id > 0
}

// address makes the points of a list whose address is taken: &[]T{} becomes
// new(...), because a call has no address. It returns true for other expressions.
func (x *instrumenter) address(e *ast.UnaryExpr) bool {
	literal, ok := e.X.(*ast.CompositeLit)
	if e.Op != token.AND || !ok {
		return true
	}
	before := len(x.edits)
	x.wrap(e, "new(", ")")
	x.replace(e.OpPos, literal.Pos(), "")
	if !x.literal(literal) {
		x.edits = x.edits[:before]
	}
	x.markConditions(literal)
	for _, element := range literal.Elts {
		x.walk(element)
	}
	return false
}

func (x *instrumenter) isBool(e ast.Expr) bool {
	tv := x.pkg.info.Types[e]
	return tv.Type != nil && tv.IsValue() && (tv.Type == types.Typ[types.Bool] || tv.Type == types.Typ[types.UntypedBool])
}

// condition makes the points of a bool without operands of type bool.
func (x *instrumenter) condition(e ast.Expr) {
	if !x.values[e] || !x.isBool(e) {
		return
	}
	if id := x.conditionPoint(e); id > 0 {
		x.wrap(e, fmt.Sprintf("_mu.Bool(%d, ", id), ")")
	}
}

// conditionPoint leaves out the mutant in which the condition of a loop is always
// true: the tests would only time out. It also leaves out negation, and "or" for
// "and": they differ from the original only where another mutant does.
func (x *instrumenter) conditionPoint(e ast.Expr, more ...string) int {
	id := x.point(e, append([]string{"always true", "always false"}, more...)...)
	if id > 0 && x.inLoop {
		at := len(x.mutants) - 2 - len(more)
		x.mutants = append(x.mutants[:at], x.mutants[at+1:]...)
	}
	return id
}

var orders = map[token.Token]struct{ function, other string }{
	token.LSS: {"Less", "<="}, token.LEQ: {"LessEqual", "<"}, token.GTR: {"Greater", ">="}, token.GEQ: {"GreaterEqual", ">"},
}

func (x *instrumenter) binary(e *ast.BinaryExpr) {
	order, ok := orders[e.Op]
	switch {
	case ok:
		if id := x.conditionPoint(e, order.other+" for "+e.Op.String()); id > 0 {
			x.wrap(e, fmt.Sprintf("_mu.%s(%d, ", order.function, id), ")")
			x.replace(e.OpPos, e.OpPos+token.Pos(len(e.Op.String())), ",")
		}
	case e.Op == token.EQL || e.Op == token.NEQ:
		if x.isBool(e) {
			x.values[e] = true
			x.condition(e)
		}
	}
}

// constant makes the point of a constant: an integer, true or false.
func (x *instrumenter) constant(e ast.Expr, tv types.TypeAndValue) {
	if x.ignored[e] {
		return
	}
	if name, ok := e.(*ast.Ident); ok && x.values[e] && x.isBool(e) && (name.Name == "true" || name.Name == "false") {
		if id := x.point(e, "the opposite"); id > 0 {
			x.replace(e.Pos(), e.End(), map[string]string{"true": "!", "false": ""}[name.Name]+"_mu.Is("+strconv.Itoa(id)+")")
		}
		return
	}
	if tv.Value.Kind() != constant.Int {
		return
	}
	kind := types.Default(tv.Type)
	basic, ok := kind.Underlying().(*types.Basic)
	if !ok || basic.Info()&types.IsInteger == 0 {
		return
	}
	spelled, ok := x.spell(kind)
	if !ok {
		return
	}
	if id := x.point(e, "one more"); id > 0 {
		x.wrap(e, fmt.Sprintf("_mu.Int(%d, %s(", id, spelled), "))")
	}
}

// spell returns the source text of a type in the file.
func (x *instrumenter) spell(kind types.Type) (spelled string, ok bool) {
	ok = true
	spelled = types.TypeString(kind, func(of *types.Package) string {
		if of.Path() == x.pkg.path {
			return ""
		}
		for _, spec := range x.file.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err == nil && path == of.Path() {
				if spec.Name != nil {
					return spec.Name.Name
				}
				return of.Name()
			}
		}
		ok = false
		return ""
	})
	return spelled, ok
}

// call makes the points of a call.
func (x *instrumenter) call(e *ast.CallExpr, result types.Type) bool {
	if function := x.text(e.Fun); function == "strings.Clone" || function == "bytes.Clone" || function == "slices.Clone" {
		if id := x.point(e, "no clone"); id > 0 {
			clone := map[string]string{"strings.Clone": "_mu.Clone"}[function]
			if clone == "" {
				clone = "_mu.CloneSlice"
			}
			x.replace(e.Fun.Pos(), e.Fun.End(), clone)
			x.replace(e.Lparen+1, e.Lparen+1, strconv.Itoa(id)+", ")
			x.used[function[:len(function)-len("Clone")]] = true
		}
		for _, arg := range e.Args {
			x.values[arg] = true
			x.walk(arg)
		}
		return false
	}
	if named, ok := result.(*types.Named); ok && named.Obj().Name() == "Rule" && named.Obj().Pkg().Name() == "admission" && named.Obj().Pkg().Path() != x.pkg.path {
		operations := []string{"without its first operation", "without its second operation"}
		if len(e.Args) == 0 || x.operations(e) == 1 { // admission.Any, or a rule with one
			operations = operations[:1]
		}
		if id := x.point(e, operations...); id > 0 {
			x.wrap(e, fmt.Sprintf("_mu.Rule(%d, ", id), ")")
		}
	}
	x.condition(e)
	return true
}

// operations returns how many operations are arguments of a call.
func (x *instrumenter) operations(e *ast.CallExpr) (n int) {
	for _, arg := range e.Args {
		if named, ok := x.pkg.info.Types[arg].Type.(*types.Named); ok && named.Obj().Name() == "Operation" {
			n++
		}
	}
	return n
}
