package policy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// checkedTypesMax is how many types a rule is checked against, as upstream
// (validating/typechecking.go maxTypesToCheck).
const checkedTypesMax = 10

const (
	// servedAge is how long a typeChecker is used. Many policies select the same kinds, and a policy that
	// selects a resource of the core group needs the resources of every group: asked for each of a thousand
	// policies, these would be tens of thousands of requests.
	servedAge = 10 * time.Second
	// declTypesMax is how many types of kinds it keeps, and how many environments with them. That of Pod takes 0.7 MB.
	declTypesMax = 16
)

// A typeChecker compares expressions with the schemas of the kinds that they are evaluated
// on, as kube-controller-manager does for the status of policies (k8s.io/apiserver
// pkg/admission/plugin/policy/validating/typechecking.go). It keeps what the API server served.
type typeChecker struct {
	schemas   kindTypes
	resources resourceLists
	made      time.Time
	mappers   map[schema.GroupVersion]meta.RESTMapper // nil for a group version that is not served
	types     map[declared]*apiservercel.DeclType     // nil for a kind without a schema
	checkers  map[checkedFor]*cel.TypeChecker         // nil for a kind that is not checked
	texts     *cel.Texts
}

// kindTypes have the types of kinds. See schemas.Schemas and schemas.Given.
type kindTypes interface {
	Versions(ctx context.Context) ([]schema.GroupVersion, error)
	DeclType(ctx context.Context, gvk schema.GroupVersionKind, name string) (*apiservercel.DeclType, error)
}

// checkedFor identifies what the expressions of a policy are evaluated on. params is empty for a policy without paramKind.
type checkedFor struct{ kind, params schema.GroupVersionKind }

// declared identifies a type of CEL: a kind, and the name of the type in error messages.
type declared struct {
	kind schema.GroupVersionKind
	name string
}

func newTypeChecker(t kindTypes, l resourceLists) *typeChecker {
	return &typeChecker{
		t, l, time.Now(), make(map[schema.GroupVersion]meta.RESTMapper), make(map[declared]*apiservercel.DeclType),
		make(map[checkedFor]*cel.TypeChecker), new(cel.Texts),
	}
}

// declType is DeclType of the schemas, for which Schemas reads all schemas of a group version.
func (c *typeChecker) declType(ctx context.Context, kind schema.GroupVersionKind, name string) (*apiservercel.DeclType, error) {
	key := declared{kind, name}
	if known, ok := c.types[key]; ok {
		return known, nil
	}
	made, err := c.schemas.DeclType(ctx, kind, name)
	if err != nil {
		return nil, err
	}
	if len(c.types) == declTypesMax {
		clear(c.types)
	}
	c.types[key] = made
	return made, nil
}

// resourceLists say which resources a group version has. See cluster.Discovery.
type resourceLists interface {
	Resources(ctx context.Context, version schema.GroupVersion) (*metav1.APIResourceList, error)
}

// checkedKind is a kind that a policy selects.
type checkedKind struct {
	schema.GroupVersionKind
	checker *cel.TypeChecker
}

// checkTypes returns the errors of the validations of a policy for the current schemas of the
// kinds. The error means that the API server did not answer.
func (c *typeChecker) checkTypes(ctx context.Context, p *admissionregistrationv1.ValidatingAdmissionPolicy) (warnings []admissionregistrationv1.ExpressionWarning, err error) {
	kinds, err := c.kinds(ctx, p)
	if err != nil {
		return nil, err
	}
	path := field.NewPath("spec", "validations")
	for i, v := range p.Spec.Validations {
		for _, expression := range [...]struct{ name, text string }{{"expression", v.Expression}, {"messageExpression", v.MessageExpression}} {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if expression.text == "" { // a validation need not have a messageExpression
				continue
			}
			if warning := warningOf(kinds, expression.text); warning != "" {
				warnings = append(warnings, admissionregistrationv1.ExpressionWarning{FieldRef: path.Index(i).Child(expression.name).String(), Warning: warning})
			}
		}
	}
	return warnings, nil
}

// warningOf returns the errors of an expression for some of the kinds, with upstream's text.
func warningOf(kinds []checkedKind, text string) string {
	var warnings []string
	for _, kind := range kinds {
		switch err := kind.checker.Check(text); {
		case err == nil:
		case err.Type == apiservercel.ErrorTypeInvalid:
			warnings = append(warnings, fmt.Sprintf("%v: %s\n", kind.GroupVersionKind, err))
		default:
			warnings = append(warnings, fmt.Sprintf("%v: type checking error: %v\n", kind.GroupVersionKind, err))
		}
	}
	return strings.Join(warnings, "\n")
}

// kinds returns the kinds that a policy selects and that have a schema. A type is named after
// its kind and a number.
func (c *typeChecker) kinds(ctx context.Context, p *admissionregistrationv1.ValidatingAdmissionPolicy) (kinds []checkedKind, err error) {
	all, err := c.typesToCheck(ctx, p)
	if err != nil {
		return nil, err
	}
	var params schema.GroupVersionKind
	if kind := p.Spec.ParamKind; kind != nil {
		if version, err := schema.ParseGroupVersion(kind.APIVersion); err == nil {
			params = version.WithKind(kind.Kind)
		}
	}
	for _, gvk := range all {
		checker, err := c.checker(ctx, checkedFor{gvk, params})
		if err != nil {
			return nil, err
		}
		if checker == nil {
			continue
		}
		checker.Reset()
		for _, v := range p.Spec.Variables {
			checker.AddVariable(v.Name, v.Expression)
		}
		kinds = append(kinds, checkedKind{gvk, checker})
	}
	return kinds, nil
}

// checker returns the checker of expressions for a kind, nil if the kind has no schema. It has no variables of a policy,
// or those of the last one.
func (c *typeChecker) checker(ctx context.Context, of checkedFor) (checker *cel.TypeChecker, err error) {
	if known, ok := c.checkers[of]; ok {
		return known, nil
	}
	object, err := c.declType(ctx, of.kind, of.kind.Kind+"0")
	if err != nil {
		return nil, err
	}
	var params *apiservercel.DeclType
	hasParams := !of.params.Empty()
	if hasParams {
		if params, err = c.declType(ctx, of.params, of.params.Kind+"1"); err != nil {
			return nil, err
		}
	}
	if object != nil {
		if checker, err = cel.NewTypeChecker(object, params, hasParams, c.texts); err != nil {
			checker = nil // as there: its schema declares the types of CEL
		}
	}
	if len(c.checkers) >= declTypesMax {
		clear(c.checkers)
	}
	c.checkers[of] = checker
	return checker, nil
}

// typesToCheck returns the kinds of the resources that the rules of a policy name,
// sorted. Rules with wildcards in groups or versions have none.
func (c *typeChecker) typesToCheck(ctx context.Context, p *admissionregistrationv1.ValidatingAdmissionPolicy) (kinds []schema.GroupVersionKind, err error) {
	if p.Spec.MatchConstraints == nil {
		return nil, nil
	}
rules:
	for i := range p.Spec.MatchConstraints.ResourceRules {
		count := 0
		for _, resource := range namedResources(&p.Spec.MatchConstraints.ResourceRules[i].Rule) {
			found, err := c.kindsFor(ctx, resource)
			if err != nil {
				return nil, err
			}
			for _, kind := range found {
				if !slices.Contains(kinds, kind) {
					kinds = append(kinds, kind)
				}
				if count++; count == checkedTypesMax {
					break rules
				}
			}
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int {
		return slices.Compare([]string{a.Group, a.Version, a.Kind}, []string{b.Group, b.Version, b.Kind})
	})
	return kinds, nil
}

// namedResources returns the resources that a rule names, in the order of their names.
func namedResources(rule *admissionregistrationv1.Rule) (resources []schema.GroupVersionResource) {
	wildcard := func(name string) bool { return strings.Contains(name, "*") }
	if slices.ContainsFunc(rule.APIGroups, wildcard) || slices.ContainsFunc(rule.APIVersions, wildcard) {
		return nil
	}
	for _, group := range slices.Sorted(slices.Values(rule.APIGroups)) {
		for _, version := range slices.Sorted(slices.Values(rule.APIVersions)) {
			for _, resource := range slices.Sorted(slices.Values(rule.Resources)) {
				if !strings.ContainsAny(resource, "*/") {
					resources = append(resources, schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
				}
			}
		}
	}
	return resources
}

// kindsFor returns the kinds of a resource. Upstream's RESTMapper takes the group "" for
// any group, so does this.
func (c *typeChecker) kindsFor(ctx context.Context, resource schema.GroupVersionResource) (kinds []schema.GroupVersionKind, err error) {
	versions := []schema.GroupVersion{resource.GroupVersion()}
	if resource.Group == "" {
		all, err := c.schemas.Versions(ctx)
		if err != nil {
			return nil, err
		}
		versions = slices.DeleteFunc(all, func(v schema.GroupVersion) bool { return v.Version != resource.Version })
		slices.SortFunc(versions, func(a, b schema.GroupVersion) int { return strings.Compare(a.Group, b.Group) })
	}
	for _, version := range versions {
		mapper, err := c.mapper(ctx, version)
		if err != nil {
			return nil, err
		}
		if mapper == nil {
			continue
		}
		found, err := mapper.KindsFor(resource)
		if err == nil { // otherwise the version has no such resource
			kinds = append(kinds, found...)
		}
	}
	return kinds, nil
}

// mapper returns the mapping of resources to kinds in a group version, as k8s.io/client-go
// restmapper/discovery.go does; nil if it is not served.
func (c *typeChecker) mapper(ctx context.Context, version schema.GroupVersion) (meta.RESTMapper, error) {
	if known, ok := c.mappers[version]; ok {
		return known, nil
	}
	list, err := c.resources.Resources(ctx, version)
	if err != nil {
		return nil, err
	}
	c.mappers[version] = nil
	if list == nil {
		return nil, nil
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for i := range list.APIResources {
		r := &list.APIResources[i]
		if strings.Contains(r.Name, "/") {
			continue
		}
		plural, singular := version.WithResource(r.Name), version.WithResource(r.SingularName)
		if r.SingularName == "" {
			_, singular = meta.UnsafeGuessKindToResource(version.WithKind(r.Kind))
		}
		mapper.AddSpecific(version.WithKind(r.Kind), plural, singular, meta.RESTScopeRoot) // the scope does not matter
		mapper.Add(version.WithKind(r.Kind+"List"), meta.RESTScopeRoot)
	}
	c.mappers[version] = mapper
	return mapper, nil
}
