package cel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/admission"
)

const (
	// explainedValuesMax is the maximum number of sub-expressions in an explanation: those of three
	// screens.
	explainedValuesMax = 60

	// explainedDepthMax is how deep a sub-expression may be in an expression and in the variables that it uses. It
	// bounds recursion; expressions of public policies nest some 20 deep.
	explainedDepthMax = 100
)

// Hidden are the fields of variables that may hold secrets. What depends on them is not shown, except
// booleans and sizes.
type Hidden struct {
	Object, Params [][]string

	read [][]string // of the variable resource
}

// userExtra may have secrets of the authenticator, as package recording has it.
var userExtra = [][]string{{"userInfo", "extra"}}

// of returns the fields of a variable.
func (h *Hidden) of(variable string) [][]string {
	switch variable {
	case "object", "oldObject":
		return h.Object
	case "params":
		return h.Params
	case "request":
		return userExtra
	case resourceName:
		return h.read
	}
	return nil
}

// Explain evaluates an expression. If it is false or fails, Explain evaluates it once more with cel-go's interpreter,
// and returns the values of the sub-expressions that made it so. That needs a thousand times the time of Evaluate.
// field is the field of the policy.
func (e *Evaluation) Explain(x *Expression, field string, hidden Hidden) (explained admission.ExpressionExplanation) {
	explained = admission.ExpressionExplanation{Field: field, Expression: x.Text}
	if x.Err != nil {
		explained.Value = "error: " + x.Err.Error()
		return explained
	}
	if value, err, fatal := e.Evaluate(x); fatal != nil || err == nil && value == types.True {
		explained.Value = "true"
		if fatal != nil {
			explained.Value = "error: " + fatal.Error()
		}
		return explained
	}
	defer func() {
		if p := recover(); p != nil { // cel-go panics on some expressions
			explained.Value = fmt.Sprintf("error: cannot explain the expression: %v", p)
		}
	}()
	if _, reads := resourceOf(e); reads { // whoever may read the explanation may not read all objects
		hidden.read = [][]string{nil}
	}
	w := &explainer{Evaluation: e, hidden: hidden, into: &explained, seen: make(map[string]bool)}
	part, err := w.evaluate(x)
	if err != nil {
		explained.Value = "error: " + err.Error()
		return explained
	}
	root := part.checked.Expr()
	explained.Value = part.shown(root, part.result)
	if _, failed := part.result.(*types.Err); failed || part.result == types.False {
		part.below(root, part.result, 0)
	}
	return explained
}

// An explainer walks through an expression and the variables that it uses.
type explainer struct {
	*Evaluation
	hidden Hidden
	into   *admission.ExpressionExplanation
	seen   map[string]bool // the texts of sub-expressions that were added, with their values
}

// A part is an expression with the values of its sub-expressions.
type part struct {
	*explainer
	checked  *ast.AST
	state    interpreter.EvalState
	result   ref.Val
	nodes    map[int64]ast.Expr // of the expression, by ID: the texts of macros do not contain nested macros
	elements map[int64]element  // by the ID of the body of a loop
	tainted  map[string]bool    // the variables of loops over values that are hidden
}

// An element is what the variables of a loop were when its body was evaluated last.
type element struct {
	names  []string
	values []ref.Val
}

// evaluate evaluates an expression and notes the values.
func (w *explainer) evaluate(x *Expression) (*part, error) {
	env, err := x.program.env.Extend(cel.EnableMacroCallTracking()) // for the texts of macros
	if err != nil {
		return nil, err
	}
	compiled, issues := env.Compile(x.Text)
	if issues != nil {
		return nil, issues.Err()
	}
	p := &part{
		explainer: w, checked: compiled.NativeRep(), nodes: make(map[int64]ast.Expr), elements: make(map[int64]element),
		tainted: make(map[string]bool),
	}
	ast.PreOrderVisit(p.checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) { p.nodes[e.ID()] = e }))
	options := append(optionsOf(env, compiled, x.program.version), cel.CustomDecoratorV2(p.watch()), cel.EvalOptions(cel.OptTrackState))
	program, err := env.Program(compiled, options...)
	if err != nil {
		return nil, err
	}
	w.limits.Checks = 0
	result, details, err := program.Eval(w.Evaluation)
	if result == nil {
		result = types.WrapErr(err)
	}
	if p.result, p.state = result, details.State(); p.state == nil {
		p.state = interpreter.NewEvalState()
	}
	return p, nil
}

// watch returns a decorator that notes the elements of loops.
func (p *part) watch() interpreter.InterpretableDecoratorV2 {
	names := make(map[int64][]string) // of the variables, by the ID of the body
	for _, call := range p.checked.SourceInfo().MacroCalls() {
		if variables, body := loopOf(call); body != nil {
			names[body.ID()] = variables
		}
	}
	return func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		if names[i.ID()] == nil {
			return i, nil
		}
		if _, isAttribute := i.(interpreter.InterpretableAttribute); isAttribute {
			return i, nil // the planner adds fields to it
		}
		return &watched{i, p, names[i.ID()]}, nil
	}
}

// watched is the body of a loop.
type watched struct {
	interpreter.InterpretableV2
	of    *part
	names []string
}

// Eval implements interpreter.Interpretable.
func (b *watched) Eval(vars interpreter.Activation) ref.Val { return b.Exec(interpreter.AsFrame(vars)) }

// Exec implements interpreter.InterpretableV2.
func (b *watched) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	e := element{names: b.names}
	for _, name := range b.names {
		found, _ := frame.ResolveName(name)
		value, _ := found.(ref.Val)
		e.values = append(e.values, value)
	}
	b.of.elements[b.ID()] = e
	return b.InterpretableV2.Exec(frame)
}

// loopMacros are the macros whose result one element can decide.
var loopMacros = []string{operators.All, operators.Exists, operators.ExistsOne, "existsOne"}

// loopOf returns the variables and the body of a macro of loopMacros, no body for other calls.
func loopOf(call ast.Expr) (variables []string, body ast.Expr) {
	if call.Kind() != ast.CallKind || !slices.Contains(loopMacros, call.AsCall().FunctionName()) || !call.AsCall().IsMemberFunction() {
		return nil, nil
	}
	args := call.AsCall().Args()
	for _, arg := range args[:len(args)-1] {
		variables = append(variables, arg.AsIdent())
	}
	return variables, args[len(args)-1]
}

// value returns the value of a sub-expression, nil if it was not evaluated.
func (p *part) value(e ast.Expr) ref.Val {
	v, _ := p.state.Value(e.ID())
	return v
}

// add adds a sub-expression, unless it was added before or there are too many. It returns false if what is below
// it need not be added.
func (p *part) add(e ast.Expr, v ref.Val, depth int, of string) bool {
	text, err := parser.Unparse(e, p.checked.SourceInfo())
	if err != nil {
		return true
	}
	return p.addText(text, p.shown(e, v), depth, of)
}

func (p *part) addText(text, value string, depth int, of string) bool {
	key := text + "\n" + value
	if p.seen[key] {
		return false
	}
	p.seen[key] = true
	if len(p.into.Values) >= explainedValuesMax {
		p.into.MoreValues++
		return true
	}
	p.into.Values = append(p.into.Values, admission.SubExpression{
		Depth: depth, Expression: admission.ShownValue(text), Value: value, Of: admission.ShownValue(of),
	})
	return true
}

// walk adds a sub-expression that was evaluated, and those below it.
func (p *part) walk(e ast.Expr, depth int) {
	v := p.value(e)
	if v == nil || depth > explainedDepthMax {
		return
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return
	case ast.ListKind, ast.MapKind, ast.StructKind:
		p.below(e, v, depth)
		return
	}
	if name, ok := variableName(e); ok {
		p.addVariable(e, name, v, depth)
		return
	}
	if p.add(e, v, depth, "") {
		p.below(e, v, depth+1)
	}
}

// below adds the sub-expressions of one with the value v, as far as they made it so.
func (p *part) below(e ast.Expr, v ref.Val, depth int) {
	if call, ok := p.checked.SourceInfo().GetMacroCall(e.ID()); ok && e.Kind() == ast.ComprehensionKind {
		p.macro(call, e, v, depth)
		return
	}
	switch e.Kind() {
	case ast.SelectKind:
		if operand := e.AsSelect().Operand(); e.AsSelect().IsTestOnly() {
			p.walk(operand, depth)
		} else {
			p.base(operand, depth)
		}
	case ast.CallKind:
		p.call(e.AsCall(), v, depth)
	case ast.ComprehensionKind:
		p.walk(e.AsComprehension().IterRange(), depth)
	case ast.ListKind:
		for _, element := range e.AsList().Elements() {
			p.walk(element, depth)
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			p.walk(entry.AsMapEntry().Key(), depth)
			p.walk(entry.AsMapEntry().Value(), depth)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			p.walk(field.AsStructField().Value(), depth)
		}
	}
}

// base adds what a path such as object.spec.replicas begins with, if it is a variable of the policy or the result of a
// call. Other beginnings of a path are no sub-expressions of their own.
func (p *part) base(e ast.Expr, depth int) {
	_, isVariable := variableName(e)
	isStep := e.Kind() == ast.SelectKind || e.Kind() == ast.CallKind && isIndex(e.AsCall())
	switch {
	case isVariable, !isStep && e.Kind() != ast.IdentKind:
		p.walk(e, depth)
	case isStep:
		p.below(e, nil, depth)
	}
}

func isIndex(call ast.CallExpr) bool {
	return slices.Contains([]string{operators.Index, operators.OptIndex, operators.OptSelect}, call.FunctionName())
}

// call adds the operands that decided.
func (p *part) call(call ast.CallExpr, v ref.Val, depth int) {
	args := call.Args()
	if name := call.FunctionName(); isIndex(call) {
		p.base(args[0], depth)
		args = args[1:]
	} else if name == operators.LogicalAnd || name == operators.LogicalOr {
		for _, arg := range args {
			switch value := p.value(arg); {
			case types.IsBool(v) && value != v:
			case arg.Kind() == ast.CallKind && arg.AsCall().FunctionName() == name: // a && b && c is one list of operands
				p.below(arg, value, depth)
			default:
				p.walk(arg, depth)
			}
		}
		return
	}
	if call.IsMemberFunction() {
		p.walk(call.Target(), depth)
	}
	for _, arg := range args {
		p.walk(arg, depth)
	}
}

// macro adds the operands of a macro, which made the loop e. Of a loop that one element decided, it adds that element and
// the body.
func (p *part) macro(call, e ast.Expr, v ref.Val, depth int) {
	loop, name := e.AsComprehension(), call.AsCall().FunctionName()
	p.walk(loop.IterRange(), depth)
	variables, body := loopOf(call)
	if body == nil || (name != operators.All || v != types.False) && (name != operators.Exists || v != types.True) {
		return
	}
	hidden := p.isHidden(loop.IterRange())
	for _, name := range variables {
		p.tainted[name] = hidden
	}
	if at, ok := p.elements[body.ID()]; ok {
		for i, name := range at.names {
			text := admission.HiddenValue
			if !hidden {
				text = textOf(at.values[i])
			}
			p.addText(name, text, depth, "")
		}
	}
	if body = p.nodes[body.ID()]; body != nil {
		p.walk(body, depth)
	}
}

// variableName returns the name of the policy's variable that an expression is.
func variableName(e ast.Expr) (name string, ok bool) {
	if e.Kind() != ast.SelectKind || e.AsSelect().IsTestOnly() {
		return "", false
	}
	operand := e.AsSelect().Operand()
	if operand.Kind() != ast.IdentKind || operand.AsIdent() != "variables" {
		return "", false
	}
	name, ok = apiservercel.Unescape(e.AsSelect().FieldName())
	return name, ok
}

// addVariable adds a variable with its expression, and the sub-expressions of that.
func (p *part) addVariable(e ast.Expr, name string, v ref.Val, depth int) {
	at := slices.IndexFunc(p.compiler.variables, func(v variable) bool { return v.name == name })
	if at < 0 {
		p.add(e, v, depth, "")
		return
	}
	x := p.compiler.variables[at].Expression
	if !p.add(e, v, depth, strings.TrimSpace(x.Text)) || x.Err != nil || len(p.into.Values) >= explainedValuesMax {
		return
	}
	if of, err := p.evaluate(x); err == nil {
		of.below(of.checked.Expr(), of.result, depth+1)
	}
}
