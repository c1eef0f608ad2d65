package cel

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// A TypeFault is an error in an expression that types show.
type TypeFault struct {
	// Path is the selected field that its object does not have, such as object.spec.replica. Known are the
	// fields that the object has, nil if its type is not found out. Both are empty for other errors.
	Path  string
	Known []string
	// Message is the error of cel-go, with its line and column.
	Message string
}

// Faults returns the errors of Check one by one, nil if there are none. It leaves out authorizer.requestResource, which
// policies have, and Check does not know, as upstream.
func (c *TypeChecker) Faults(text string) (faults []TypeFault) {
	defer func() {
		if p := recover(); p != nil { // of cel-go, see Compiler.Compile
			faults = []TypeFault{{Message: fmt.Sprintf("cannot compile the expression: %v", p)}}
		}
	}()
	parsed, issues := c.texts.parse(c.env, text)
	if issues == nil {
		_, issues = c.env.Check(parsed)
	}
	for _, e := range issues.Errors() {
		f := TypeFault{Message: fmt.Sprintf("%d:%d: %s", e.Location.Line(), e.Location.Column()+1, e.Message)}
		operand, field := selectionOf(parsed, e.ExprID)
		if operand == nil {
			faults = append(faults, f)
			continue
		}
		of, err := parser.Unparse(operand, parsed.NativeRep().SourceInfo())
		if of == "authorizer" && field == "requestResource" {
			continue
		}
		if err == nil && e.Message == fmt.Sprintf("undefined field '%s'", field) {
			f.Path = of + "." + field
			if t := c.typeOf(operand); t != nil {
				f.Known = slices.Sorted(maps.Keys(t.Fields))
			}
		}
		faults = append(faults, f)
	}
	return faults
}

// selectionOf returns the object and the name of the field that an expression of ast selects, nil if it selects none.
func selectionOf(ast *cel.Ast, id int64) (operand celast.NavigableExpr, field string) {
	if ast == nil {
		return nil, "" // it cannot be parsed
	}
	found := celast.MatchDescendants(celast.NavigateAST(ast.NativeRep()), func(e celast.NavigableExpr) bool { return e.ID() == id })
	if len(found) == 0 {
		return nil, ""
	}
	return selection(found[0])
}

func selection(e celast.NavigableExpr) (operand celast.NavigableExpr, field string) {
	if e.Kind() == celast.SelectKind {
		selected := e.AsSelect()
		return selected.Operand().(celast.NavigableExpr), selected.FieldName()
	}
	if call, ok := callOf(e, operators.OptSelect); ok && call.Args()[1].Kind() == celast.LiteralKind {
		if name, ok := call.Args()[1].AsLiteral().Value().(string); ok {
			return call.Args()[0].(celast.NavigableExpr), name
		}
	}
	return nil, ""
}

// callOf returns e as a call of an operator with two operands.
func callOf(e celast.NavigableExpr, names ...string) (call celast.CallExpr, ok bool) {
	if e.Kind() != celast.CallKind {
		return nil, false
	}
	call = e.AsCall()
	const operands = 2
	return call, slices.Contains(names, call.FunctionName()) && !call.IsMemberFunction() && len(call.Args()) == operands
}

// typeOf returns the declared type of an expression, nil if that takes more than following fields, elements and the
// variables of macros: cel-go has no types for an expression with errors.
func (c *TypeChecker) typeOf(e celast.NavigableExpr) *apiservercel.DeclType {
	if e.Kind() == celast.IdentKind {
		return c.typeOfVariable(e)
	}
	if operand, field := selection(e); operand != nil {
		of := c.typeOf(operand)
		switch {
		case of == nil:
		case of.IsMap():
			return of.ElemType
		case of.Fields[field] != nil:
			return of.Fields[field].Type
		}
		return nil
	}
	if call, ok := callOf(e, operators.Index, operators.OptIndex); ok {
		if of := c.typeOf(call.Args()[0].(celast.NavigableExpr)); of != nil {
			return of.ElemType
		}
	}
	return nil
}

// typeOfVariable returns the type of a variable: of a macro around it, or of all expressions.
func (c *TypeChecker) typeOfVariable(e celast.NavigableExpr) *apiservercel.DeclType {
	within := e
	for at, ok := e.Parent(); ok; at, ok = at.Parent() {
		if at.Kind() == celast.ComprehensionKind {
			loop := at.AsComprehension()
			over := loop.IterRange().(celast.NavigableExpr)
			if loop.IterVar() == e.AsIdent() && over.ID() != within.ID() {
				if of := c.typeOf(over); of != nil && of.IsList() {
					return of.ElemType
				}
				return nil
			}
		}
		within = at
	}
	return c.declared[e.AsIdent()]
}
