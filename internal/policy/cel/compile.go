package cel

import (
	"fmt"
	"maps"

	"github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/internal/policy/cel/closure"
)

// An Expression is a compiled expression, or one that does not compile. Several
// goroutines may evaluate it at the same time.
type Expression struct {
	// Text is the source text of the expression. Name is the name of a match condition, for explanations.
	Text, Name string
	// Err is the compilation error, nil if the expression compiles.
	Err *apiservercel.Error

	program *program
	closure closure.Evaluator // nil if only the program can evaluate it
	returns *cel.Type

	shared *shared // nil if its result cannot be shared with equal expressions
	uses   []uint8 // the places of the variables of the policy that it uses; only if it is shared
}

// A Compiler compiles the expressions of one policy. Add the variables of the policy
// before the expressions that use them. Only one goroutine at a time may use a Compiler.
type Compiler struct {
	// InterpreterOnly makes cel-go's interpreter evaluate the expressions that are compiled
	// later. Nothing else changes: it is for debugging, see package closure.
	InterpreterOnly bool
	// Version is the release of Kubernetes whose libraries the expressions can use. Set it
	// before the first expression is compiled.
	Version admission.Version
	// ConditionFailed is called with the error of match conditions that cannot be evaluated, also if
	// their failure policy ignores it. It may be nil.
	ConditionFailed func(err error)

	variables     []variable
	variablesType *apiservercel.DeclType // nil for a policy without variables
	envs          map[Declarations]*cel.Env
	redefines     bool // a variable replaced another one
}

// evaluator is onlyInterpreter if all Compilers are InterpreterOnly. The linker sets it where
// make test runs the tests of policies without closures.
var evaluator string

const onlyInterpreter = "interpreter"

// A variable is a variable of the policy.
type variable struct {
	name string
	*Expression
}

// NewCompiler returns a Compiler. hasVariables is true if AddVariable will be called.
func NewCompiler(hasVariables bool) *Compiler {
	c := new(Compiler)
	if hasVariables {
		c.variablesType = apiservercel.NewObjectType(variablesTypeName, map[string]*apiservercel.DeclField{})
		c.envs = make(map[Declarations]*cel.Env)
	}
	return c
}

// The allowed types of an expression, for Compile.
var (
	Bool         = []*cel.Type{cel.BoolType}
	String       = []*cel.Type{cel.StringType}
	StringOrNull = []*cel.Type{cel.StringType, cel.NullType}
	Any          = []*cel.Type{cel.AnyType}
	JSONPatches  = []*cel.Type{cel.ListType(jsonPatchType)}
	Object       = []*cel.Type{objectRoot}
)

// AddVariable compiles the variable name of the policy. Expressions that are compiled
// later can use it. A second variable with the same name replaces the first one, also in
// expressions that are already compiled.
func (c *Compiler) AddVariable(name, text string, d Declarations) *Expression {
	e := c.Compile(text, d, Any)
	if e.shared != nil { // the validations, the messages and the annotations evaluate the variable each
		e.shared.many.Store(true)
	}
	field := apiservercel.NewDeclField(name, declType(e.returns), true, nil, nil)
	for i := range c.variables {
		if c.variables[i].name == name { // expressions that are compiled keep their environments
			fields := maps.Clone(c.variablesType.Fields)
			fields[name] = field
			c.variablesType = apiservercel.NewObjectType(variablesTypeName, fields)
			clear(c.envs)
			c.variables[i].Expression, c.redefines = e, true
			return e
		}
	}
	c.variablesType.Fields[name] = field
	c.variables = append(c.variables, variable{name, e})
	return e
}

// Compile compiles an expression. It is an error if the type of the expression is not
// one of returns. Compile never returns nil; errors are in the Err of the result.
func (c *Compiler) Compile(text string, d Declarations, returns []*cel.Type) (e *Expression) {
	e = &Expression{Text: text}
	defer func() {
		if p := recover(); p != nil { // cel-go panics on [?object.x]
			e.Err = internal("cannot compile the expression: %v", p)
		}
	}()
	e.Err = c.compile(e, d, returns)
	return e
}

func (c *Compiler) env(d Declarations) (env *cel.Env, err error) {
	if c.variablesType == nil {
		return sharedEnv(d, c.Version)
	}
	if env = c.envs[d]; env == nil {
		env, err = newEnv(d, c.Version, c.variablesType)
		c.envs[d] = env
	}
	return env, err
}

// compile does what CompileCELExpression does upstream.
func (c *Compiler) compile(e *Expression, d Declarations, returns []*cel.Type) *apiservercel.Error {
	env, err := c.env(d)
	if err != nil {
		return internal("unexpected error loading CEL environment: %v", err)
	}
	ast, issues := env.Compile(e.Text)
	if issues != nil {
		return &apiservercel.Error{
			Type: apiservercel.ErrorTypeInvalid, Detail: "compilation failed: " + issues.String(), Cause: apiservercel.NewCompilationError(issues),
		}
	}
	if !isOneOf(ast.OutputType(), returns) {
		if len(returns) == 1 {
			return invalid("must evaluate to %v but got %v", returns[0], ast.OutputType())
		}
		return invalid("must evaluate to one of %v but got %v", returns, ast.OutputType())
	}
	if _, err = cel.AstToCheckedExpr(ast); err != nil { // for example a JSONPatch with an unknown field
		return internal("unexpected compilation error: %v", err)
	}
	e.program = newProgram(env, e.Text, c.Version)
	e.returns = ast.OutputType()
	if !c.InterpreterOnly && evaluator != onlyInterpreter {
		e.closure = closure.New(env, ast, c.variableNames(), c.Version)
	}
	if e.closure == nil { // then the interpreter may refuse the expression when it plans
		e.program.ast.Store(ast)
		if err := e.program.make(); err != nil {
			return internal("program instantiation failed: %v", err)
		}
	}
	c.share(e, d, ast.NativeRep())
	return nil
}

func (c *Compiler) variableNames() []string {
	names := make([]string, len(c.variables))
	for i := range c.variables {
		names[i] = c.variables[i].name
	}
	return names
}

func isOneOf(got *cel.Type, want []*cel.Type) bool {
	for _, t := range want {
		if got.IsExactType(t) || cel.AnyType.IsExactType(t) {
			return true
		}
	}
	return false
}

func invalid(format string, args ...any) *apiservercel.Error {
	return &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: fmt.Sprintf(format, args...)}
}

func internal(format string, args ...any) *apiservercel.Error {
	return &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: fmt.Sprintf(format, args...)}
}

var declTypes = map[*cel.Type]*apiservercel.DeclType{
	cel.AnyType: apiservercel.AnyType, cel.BoolType: apiservercel.BoolType, cel.BytesType: apiservercel.BytesType,
	cel.DoubleType: apiservercel.DoubleType, cel.DurationType: apiservercel.DurationType, cel.IntType: apiservercel.IntType,
	cel.NullType: apiservercel.NullType, cel.StringType: apiservercel.StringType,
	cel.TimestampType: apiservercel.TimestampType, cel.UintType: apiservercel.UintType,
}

// declType is convertCelTypeToDeclType upstream: the declared type of a variable whose
// expression has that type. t is nil if the expression does not compile.
func declType(t *cel.Type) *apiservercel.DeclType {
	if known := declTypes[t]; known != nil {
		return known
	}
	switch parameters := t.Parameters(); t.Kind() {
	case cel.ListKind:
		return apiservercel.NewListType(declType(parameters[0]), -1)
	case cel.MapKind:
		return apiservercel.NewMapType(declType(parameters[0]), declType(parameters[1]), -1)
	}
	return apiservercel.DynType
}
