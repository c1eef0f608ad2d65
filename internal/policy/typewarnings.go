package policy

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// Types compares expressions with schemas that are known without an API server. Only one goroutine at a time may
// use it.
type Types struct{ checker *typeChecker }

// NewTypes returns Types with these schemas.
func NewTypes(given *schemas.Given) *Types { return &Types{newTypeChecker(given, given)} }

// A TypeWarning is an error that types show in an expression. kube-apiserver accepts such a policy.
type TypeWarning struct {
	Field   string // such as spec.validations[0].expression
	Message string
}

// An expression of a policy, with its field.
type expression struct {
	path *field.Path
	text string
	// upstream is true if the status of policies has the errors of this expression.
	upstream bool
}

// Check returns the errors in the expressions of a policy, by the rules of the status of policies: for the same
// kinds, and those of validations. In addition it has errors of variables, match conditions and audit annotations,
// but only those for all of these kinds: a variable often has another value for each kind, and then the type check
// knows fields of one kind only. The same holds for validations that ask for the kind, as in
// object.kind != 'Pod' || object.spec.hostPID: the status of a policy has dozens of errors of them.
func (t *Types) Check(ctx context.Context, p *admissionregistrationv1.ValidatingAdmissionPolicy) (warnings []TypeWarning, err error) {
	kinds, err := t.checker.kinds(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, e := range expressionsOf(p) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all := e.upstream && !asksForKind.MatchString(e.text)
		for _, f := range faultsOf(kinds, e.text, all) {
			if everywhere := len(f.kinds) == len(kinds); everywhere || all {
				warnings = append(warnings, TypeWarning{e.path.String(), f.message(everywhere)})
			}
		}
	}
	return warnings, nil
}

// asksForKind matches expressions that ask for the kind or the resource of an object.
var asksForKind = regexp.MustCompile(`\b(object|oldObject|request)\.(kind|resource)\b`)

// expressionsOf returns the expressions of a policy in the order of evaluation.
func expressionsOf(p *admissionregistrationv1.ValidatingAdmissionPolicy) (all []expression) {
	spec := field.NewPath("spec")
	add := func(path *field.Path, text string, upstream bool) {
		if text != "" { // messageExpression need not be there
			all = append(all, expression{path, text, upstream})
		}
	}
	for i, c := range p.Spec.MatchConditions {
		add(spec.Child("matchConditions").Index(i).Child("expression"), c.Expression, false)
	}
	for i, v := range p.Spec.Variables {
		add(spec.Child("variables").Index(i).Child("expression"), v.Expression, false)
	}
	for i, v := range p.Spec.Validations {
		at := spec.Child("validations").Index(i)
		add(at.Child("expression"), v.Expression, true)
		add(at.Child("messageExpression"), v.MessageExpression, true)
	}
	for i, a := range p.Spec.AuditAnnotations {
		add(spec.Child("auditAnnotations").Index(i).Child("valueExpression"), a.ValueExpression, false)
	}
	return all
}

// A fault is an error of an expression, with the kinds for which it is one, and the fields that they have there.
type fault struct {
	cel.TypeFault
	kinds, known []string
}

// faultsOf returns the errors of an expression for the kinds, each once. If not all are wanted, it returns none if the
// expression has none for one kind.
func faultsOf(kinds []checkedKind, text string, wantAll bool) (all []*fault) {
	for _, kind := range kinds {
		name := kind.GroupVersion().String() + " " + kind.Kind
		faults := kind.checker.Faults(text)
		if len(faults) == 0 && !wantAll {
			return nil
		}
		for _, found := range faults {
			i := slices.IndexFunc(all, func(f *fault) bool {
				return f.Path == found.Path && (f.Path != "" || f.Message == found.Message)
			})
			if i < 0 {
				i, all = len(all), append(all, &fault{TypeFault: found})
			}
			if f := all[i]; !slices.Contains(f.kinds, name) { // the field is selected once
				f.kinds, f.known = append(f.kinds, name), append(f.known, found.Known...)
			}
		}
	}
	return all
}

// message describes the fault. everywhere is true if it is one for all kinds of the policy.
func (f *fault) message(everywhere bool) string {
	text, hint := f.Message, ""
	if f.Path != "" {
		text = f.Path + ": no such field"
		slices.Sort(f.known)
		hint = alike.Hint(f.Path[strings.LastIndexByte(f.Path, '.')+1:], slices.Compact(f.known))
	}
	if !everywhere {
		text = fmt.Sprintf("%s in %s", text, strings.Join(f.kinds, ", "))
	}
	return text + hint
}
