// Package policies implements the scenario "policy": a ValidatingAdmissionPolicy of four
// expressions.
package policies

import (
	"bytes"
	_ "embed"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// Manifest contains the policy and a binding that denies, in the form of Kubernetes' static
// manifests.
//
//go:embed policy.yaml
var Manifest []byte

// expressions returns the expressions of the policy.
func expressions() (all []string, err error) {
	policy, _, _ := bytes.Cut(Manifest, []byte("\n---\n"))
	var document admissionregistrationv1.ValidatingAdmissionPolicy
	if err := yaml.UnmarshalStrict(policy, &document); err != nil {
		return nil, err
	}
	for _, v := range document.Spec.Validations {
		all = append(all, v.Expression)
	}
	return all, nil
}

// A Policy is the policy compiled by cel-go, without the cost limits of kube-apiserver and
// fastadmit.
type Policy []check

type check struct {
	expression string
	program    cel.Program
}

// New compiles the policy.
func New() (Policy, error) {
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.Variable("object", cel.DynType))
	if err != nil {
		return nil, err
	}
	all, err := expressions()
	if err != nil {
		return nil, err
	}
	var p Policy
	for _, expression := range all {
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			return nil, issues.Err()
		}
		program, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize))
		if err != nil {
			return nil, err
		}
		p = append(p, check{expression, program})
	}
	return p, nil
}

// Check denies an object if an expression is false or fails.
func (p Policy) Check(object map[string]any) error {
	variables := map[string]any{"object": object}
	for i := range p {
		held, _, err := p[i].program.Eval(variables)
		if err != nil {
			return fmt.Errorf("%s: %w", p[i].expression, err)
		}
		if held != types.True {
			return fmt.Errorf("failed expression: %s", p[i].expression)
		}
	}
	return nil
}
