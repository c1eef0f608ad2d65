package cel

import (
	"github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// A TypeChecker checks the expressions of a policy against the schema of a kind
// (k8s.io/apiserver pkg/admission/plugin/policy/validating/typechecking.go).
type TypeChecker struct {
	variables *apiservercel.DeclType
	env       *cel.Env
}

// NewTypeChecker returns a TypeChecker. object is the type of the variables object and
// oldObject, and params is that of params, which is declared only if hasParams is true. A
// nil type means any type.
func NewTypeChecker(object, params *apiservercel.DeclType, hasParams bool) (*TypeChecker, error) {
	variables := apiservercel.NewObjectType(variablesTypeName, map[string]*apiservercel.DeclField{})
	types := []*apiservercel.DeclType{variables, namespaceType(), requestType()}
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
			options = append(options, cel.Variable(name, of))
		}
	}
	declare(object, "object", "oldObject")
	if hasParams {
		declare(params, "params")
	}
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: always, EnvOptions: options, DeclTypes: types,
	})
	if err != nil {
		return nil, err
	}
	return &TypeChecker{variables, set.StoredExpressionsEnv()}, nil
}

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
	ast, issues := c.env.Compile(text)
	if issues != nil {
		return nil, invalid("%s", issues.String())
	}
	return ast, nil
}
