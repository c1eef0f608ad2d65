package policies

import (
	"context"
	"reflect"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// newCompiler returns upstream's compiler. If untyped is set, it gives expressions their variables as
// Kubernetes 1.36 does.
func newCompiler(untyped bool) (*plugincel.CompositedCompiler, error) {
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err == nil && untyped {
		own := untypedCompiler{compiler.Compiler}
		compiler.Compiler, compiler.ConditionCompiler, compiler.MutatingCompiler = own, own, own
	}
	return compiler, err
}

// untypedCompiler compiles expressions with upstream's compiler. When they run, their variables are the maps,
// lists and scalars of JSON, as in Kubernetes 1.36. 1.37 gives them the Go types of built-in kinds.
type untypedCompiler struct{ plugincel.Compiler }

// CompileCELExpression implements plugincel.Compiler.
func (c untypedCompiler) CompileCELExpression(e plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations,
	mode environment.Type) plugincel.CompilationResult {
	result := c.Compiler.CompileCELExpression(e, options, mode)
	if result.Program != nil {
		result.Program = untypedProgram{result.Program}
	}
	return result
}

// CompileCondition implements plugincel.ConditionCompiler as upstream does.
func (c untypedCompiler) CompileCondition(all []plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations,
	mode environment.Type) plugincel.ConditionEvaluator {
	results := make([]plugincel.CompilationResult, len(all))
	for i, e := range all {
		if e != nil {
			results[i] = c.CompileCELExpression(e, options, mode)
		}
	}
	return plugincel.NewCondition(results)
}

// CompileMutatingEvaluator implements plugincel.MutatingCompiler as upstream does.
func (c untypedCompiler) CompileMutatingEvaluator(e plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations,
	mode environment.Type) plugincel.MutatingEvaluator {
	return plugincel.NewMutatingEvaluator(c.CompileCELExpression(e, options, mode))
}

type untypedProgram struct{ cel.Program }

// ContextEval implements cel.Program. Upstream calls no other method of it.
func (p untypedProgram) ContextEval(ctx context.Context, input any) (ref.Val, *cel.EvalDetails, error) {
	return p.Program.ContextEval(ctx, &untypedActivation{input.(cel.Activation), make(map[string]any)})
}

// untypedActivation resolves names to what upstream's activation has for them, without its Go types.
type untypedActivation struct {
	cel.Activation

	resolved map[string]any
}

// ResolveName implements cel.Activation.
func (a *untypedActivation) ResolveName(name string) (any, bool) {
	if value, ok := a.resolved[name]; ok {
		return value, true
	}
	value, ok := a.Activation.ResolveName(name)
	switch name {
	case plugincel.ObjectVarName, plugincel.OldObjectVarName, plugincel.RequestVarName, plugincel.NamespaceVarName, plugincel.ParamsVarName:
		value = untyped(value)
		a.resolved[name] = value
	}
	return value, ok
}

// untyped returns the value of a variable as Kubernetes 1.36 makes it of a Go type.
func untyped(value any) any {
	typed, ok := value.(ref.Val)
	if !ok {
		return value
	}
	content := reflect.ValueOf(typed.Value())
	if content.Kind() != reflect.Struct {
		return value
	}
	pointer := reflect.New(content.Type())
	pointer.Elem().Set(content)
	object, err := admission.ConvertObjectToUnstructured(pointer.Interface())
	if err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(object.Object)
}
