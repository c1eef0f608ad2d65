package policies

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func resources(operations ...admissionregistrationv1.OperationType) *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{
		MatchPolicy: new(admissionregistrationv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: operations,
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}, Scope: new(admissionregistrationv1.AllScopes)},
		}}},
	}
}

// generator makes policies about the fields of an object, which mutating ones are
// made of.
type generator struct {
	*rand.Rand
	paths []string
}

func (g *generator) collect(path string, v any) {
	g.paths = append(g.paths, path)
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if name != "managedFields" {
				g.collect(path+"["+strconv.Quote(name)+"]", v[name])
			}
		}
	case []any:
		for i := range min(len(v), 2) {
			g.collect(fmt.Sprintf("%s[%d]", path, i), v[i])
		}
	}
}

func (g *generator) path() string {
	if g.IntN(10) == 0 {
		return g.paths[g.IntN(len(g.paths))] + ".nope"
	}
	return g.paths[g.IntN(len(g.paths))]
}

func (g *generator) bool() string {
	p, q := g.path(), g.path()
	return [...]string{
		p + " == " + q, p + " != " + q, "size(" + p + ") > 2", "has(" + p + ".name)", p + ".all(x, x != null)", p + ".exists(x, x == " + q + ")",
		p + " in " + q, "string(" + p + ") == string(" + q + ")", "type(" + p + ") == map", p + ".startsWith(string(" + q + "))",
		p + ".?name.orValue('') == ''", "variables.a == " + q, "variables.b", "request.operation == 'CREATE' && " + p + " == " + q,
		"request.userInfo.groups.exists(g, g == 'system:masters')", "has(request.namespace) && request.namespace == 'shop'",
		"namespaceObject == null || namespaceObject.metadata.labels['env'] == 'prod'", "oldObject == null", "object == null || object.kind != 'Pod'",
		"authorizer.requestResource.check('get').allowed()", "authorizer.group('').resource('pods').namespace('shop').check('delete').reason() == 'reads'",
		"authorizer.path('/healthz').check('get').allowed()", "request.options == null || !has(request.options.dryRun)", "request.kind.kind == 'Pod'",
		"request.requestResource.resource == request.resource.resource", "has(request.subResource)", "request.dryRun", "request.name != ''",
		"has(request.userInfo.extra) && size(request.userInfo.extra) > 0",
	}[g.IntN(29)]
}

func (g *generator) text() string {
	p := g.path()
	return [...]string{
		"string(" + p + ")", "'%s'.format([" + p + "])", "'a\\nb'", "' '", "string(variables.a)", "request.operation + ' ' + string(size(" + p + "))",
		"string(namespaceObject.metadata.name)", "'got ' + string(variables.b)",
	}[g.IntN(8)]
}

// withoutVariables replaces what match conditions may not use.
var withoutVariables = strings.NewReplacer("variables.a", "object", "variables.b", "object.b")

func (g *generator) policy(name string) admissionregistrationv1.ValidatingAdmissionPolicy {
	p := admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	spec := &p.Spec
	spec.MatchConstraints = resources(admissionregistrationv1.OperationAll)
	spec.FailurePolicy = new([...]admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Fail, admissionregistrationv1.Ignore}[g.IntN(2)])
	spec.Variables = []admissionregistrationv1.Variable{{Name: "a", Expression: g.path()}, {Name: "b", Expression: "variables.a == " + g.path()}}
	for i := range g.IntN(3) {
		spec.MatchConditions = append(spec.MatchConditions, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: g.bool() + " || true"})
		if g.IntN(3) == 0 {
			spec.MatchConditions[i].Expression = g.bool()
		}
		spec.MatchConditions[i].Expression = withoutVariables.Replace(spec.MatchConditions[i].Expression)
	}
	for range 1 + g.IntN(3) {
		v := admissionregistrationv1.Validation{Expression: g.bool()}
		if g.IntN(2) == 0 {
			v.Message = " a message "
		}
		if g.IntN(2) == 0 {
			v.MessageExpression = g.text()
		}
		if g.IntN(3) == 0 {
			v.Reason = new([...]metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid,
				metav1.StatusReasonRequestEntityTooLarge}[g.IntN(3)])
		}
		spec.Validations = append(spec.Validations, v)
	}
	for i := range g.IntN(3) {
		spec.AuditAnnotations = append(spec.AuditAnnotations, admissionregistrationv1.AuditAnnotation{Key: fmt.Sprint("k", i), ValueExpression: g.text()})
	}
	return p
}

func (g *generator) binding(name, policy string) admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	b := admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.PolicyName = policy
	b.Spec.ValidationActions = [...][]admissionregistrationv1.ValidationAction{
		{admissionregistrationv1.Deny}, {admissionregistrationv1.Warn}, {admissionregistrationv1.Audit},
		{admissionregistrationv1.Deny, admissionregistrationv1.Audit}, {admissionregistrationv1.Warn, admissionregistrationv1.Audit},
	}[g.IntN(5)]
	if g.IntN(3) == 0 {
		b.Spec.MatchResources = resources(admissionregistrationv1.Create)
		b.Spec.MatchResources.NamespaceSelector.MatchLabels = map[string]string{"env": [...]string{"prod", "dev"}[g.IntN(2)]}
	}
	return b
}
