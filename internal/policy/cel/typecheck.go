package cel

import (
	"github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/fastadmit/fastadmit/admission"
)

// A TypeChecker checks the expressions of a policy against the schema of a kind
// (k8s.io/apiserver pkg/admission/plugin/policy/validating/typechecking.go).
type TypeChecker struct {
	variables *apiservercel.DeclType
	env       *cel.Env
	declared  map[string]*apiservercel.DeclType // the types of the variables of all expressions, if they are known
	texts     *Texts
}

// textBytesMax is how many bytes of expressions Texts keeps. A parsed expression takes some 50 times as much memory as its text.
const textBytesMax = 64 << 10

// Texts keeps parsed expressions for TypeCheckers, because each expression of a policy is checked for several kinds, and
// policies have expressions in common. The zero value is ready. Only one goroutine at a time may use it.
type Texts struct {
	parsed map[string]*cel.Ast
	bytes  int
}

// parse returns an expression of an environment. The macros of all TypeCheckers are the same.
func (t *Texts) parse(env *cel.Env, text string) (*cel.Ast, *cel.Issues) {
	if known := t.parsed[text]; known != nil {
		return known, nil
	}
	ast, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, issues
	}
	if t.parsed == nil || t.bytes > textBytesMax {
		t.parsed, t.bytes = make(map[string]*cel.Ast), 0
	}
	t.parsed[text] = ast
	t.bytes += len(text)
	return ast, nil
}

// NewTypeChecker returns a TypeChecker. object is the type of the variables object and
// oldObject, and params is that of params, which is declared only if hasParams is true. A
// nil type means any type.
func NewTypeChecker(object, params *apiservercel.DeclType, hasParams bool, texts *Texts) (*TypeChecker, error) {
	variables := apiservercel.NewObjectType(variablesTypeName, map[string]*apiservercel.DeclField{})
	types := []*apiservercel.DeclType{variables, namespaceType(), requestType()}
	declared := map[string]*apiservercel.DeclType{"variables": variables, "namespaceObject": types[1], "request": types[2]}
	options := []cel.EnvOption{
		cel.Variable("variables", variables.CelType()),
		cel.Variable("namespaceObject", types[1].CelType()),
		cel.Variable("request", types[2].CelType()),
		cel.Variable("authorizer", library.AuthorizerType),
	}
	declare := func(t *apiservercel.DeclType, names ...string) {
		of := cel.DynType
		if t != nil {
			of, types = t.CelType(), append(types, t)
		}
		for _, name := range names {
			options, declared[name] = append(options, cel.Variable(name, of)), t
		}
	}
	declare(object, "object", "oldObject")
	if hasParams {
		declare(params, "params")
	}
	set, err := baseOf(admission.Newest()).Extend(environment.VersionedOptions{ // the stored expressions of all releases are the same
		IntroducedVersion: always, EnvOptions: options, DeclTypes: types,
	})
	if err != nil {
		return nil, err
	}
	return &TypeChecker{variables, set.StoredExpressionsEnv(), declared, texts}, nil
}

// Reset removes the variables of the policy. The TypeChecker can then check another policy.
func (c *TypeChecker) Reset() { clear(c.variables.Fields) }

// AddVariable adds a variable of the policy. If the expression text does not compile, the
// variable can have any type.
func (c *TypeChecker) AddVariable(name, text string) {
	var returns *cel.Type
	if ast, err := c.compile(text); err == nil {
		returns = ast.OutputType()
	}
	c.variables.Fields[name] = apiservercel.NewDeclField(name, declType(returns), true, nil, nil)
}

// Check returns the errors in an expression as one error, nil if there are none.
func (c *TypeChecker) Check(text string) *apiservercel.Error {
	_, err := c.compile(text)
	return err
}

func (c *TypeChecker) compile(text string) (ast *cel.Ast, err *apiservercel.Error) {
	defer func() {
		if p := recover(); p != nil { // of cel-go, see Compiler.Compile
			err = internal("cannot compile the expression: %v", p)
		}
	}()
	ast, issues := c.texts.parse(c.env, text)
	if issues == nil {
		ast, issues = c.env.Check(ast)
	}
	if issues != nil {
		return nil, invalid("%s", issues.String())
	}
	return ast, nil
}
