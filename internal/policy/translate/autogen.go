package translate

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
)

type autogen struct {
	PodControllers *struct {
		Controllers []string `json:"controllers"`
	} `json:"podControllers"`
	ValidatingAdmissionPolicy *enabled `json:"validatingAdmissionPolicy"`
	MutatingAdmissionPolicy   *enabled `json:"mutatingAdmissionPolicy"`
}

// WorkloadPodsAnnotation is the annotation of a policy that has less effect on the Pods of workloads than workloadPods
// of its plugin says: off, warn or deny.
const WorkloadPodsAnnotation = cluster.PolicyGroup + "/workload-pods"

// leaveToAutogen makes workloadPods leave out a policy for Pods of which Kyverno makes variants for workloads: the variants
// decide about these. If its document disables them, nothing does, as in Kyverno. A document may have another annotation.
func leaveToAutogen(policy *metav1.ObjectMeta) {
	if _, ok := policy.Annotations[WorkloadPodsAnnotation]; !ok {
		metav1.SetMetaDataAnnotation(policy, WorkloadPodsAnnotation, string(admission.WorkloadPodsOff))
	}
}

// A variant is a policy, or the policy for workloads that Kyverno makes from a policy for Pods.
type variant struct {
	name, rule string
	spec       celSpec
	moved      []Move
}

// The paths of the template of Pods.
const (
	templatePath        = "spec.template"
	cronJobTemplatePath = "spec.jobTemplate.spec.template"
)

// controllerRules are the resources for which Kyverno makes variants, sorted by variant.
var controllerRules = []struct{ variant, template, group, resource string }{
	{"autogen-defaults", templatePath, "apps", "daemonsets"},
	{"autogen-defaults", templatePath, "apps", "deployments"},
	{"autogen-defaults", templatePath, "apps", "replicasets"},
	{"autogen-defaults", templatePath, "apps", "statefulsets"},
	{"autogen-defaults", templatePath, "batch", "jobs"},
	{"autogen-cronjobs", cronJobTemplatePath, "batch", "cronjobs"},
}

// variants returns a policy and the variants that Kyverno makes from it for workloads. rewrite changes
// the expressions so that they read the Pod template at a path.
func (t *translator) variants(h *head, p *celPolicy, rewrite func(spec *celSpec, template string) error) []variant {
	if p.Spec.MatchConstraints == nil || !t.Cluster && t.faulty(h) {
		return nil
	}
	base := nameOf(h.Metadata.Name)
	if strings.HasPrefix(h.Kind, "Namespaced") {
		base = nameOf(h.Metadata.Namespace, h.Metadata.Name)
	}
	all := []variant{{name: base, spec: clone(&p.Spec)}}
	if !hasWorkloads(p.Spec.MatchConstraints) {
		return all
	}
	for _, rule := range controllerRules {
		if a := p.Spec.Autogen; a != nil && a.PodControllers != nil && a.PodControllers.Controllers != nil &&
			!slices.Contains(a.PodControllers.Controllers, rule.resource) {
			continue
		}
		v := &all[len(all)-1]
		if v.rule != rule.variant {
			all = append(all, variant{name: nameOf(base, rule.variant), rule: rule.variant, spec: clone(&p.Spec)})
			v = &all[len(all)-1]
			match := v.spec.MatchConstraints
			v.spec.MatchConstraints = &admissionregistrationv1.MatchResources{NamespaceSelector: match.NamespaceSelector}
			if err := rewrite(&v.spec, rule.template); err != nil {
				t.refuse(h, "spec", "the variant for workloads: %v; set spec.autogen.podControllers.controllers to []", err)
				return all[:len(all)-1]
			}
		}
		addResource(v.spec.MatchConstraints, rule.group, rule.resource, p.Spec.MatchConstraints.ResourceRules[0].Operations)
	}
	return all
}

func addResource(match *admissionregistrationv1.MatchResources, group, resource string, operations []admissionregistrationv1.OperationType) {
	rules := match.ResourceRules
	if n := len(rules); n > 0 && rules[n-1].APIGroups[0] == group {
		rules[n-1].Resources = append(rules[n-1].Resources, resource)
		return
	}
	match.ResourceRules = append(match.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
	}})
}

// hasWorkloads reports whether Kyverno makes variants for workloads from a policy that selects m.
func hasWorkloads(m *admissionregistrationv1.MatchResources) bool {
	if s := m.ObjectSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		return false
	}
	if len(m.ExcludeResourceRules) > 0 || len(m.ResourceRules) != 1 {
		return false
	}
	r := &m.ResourceRules[0]
	return len(r.ResourceNames) == 0 && slices.Equal(r.APIGroups, []string{""}) &&
		slices.Equal(r.APIVersions, []string{"v1"}) && slices.Equal(r.Resources, []string{"pods"})
}

func clone(spec *celSpec) (copied celSpec) {
	text, _ := json.Marshal(spec) // it was decoded from JSON
	_ = kjson.UnmarshalCaseSensitivePreserveInts(text, &copied)
	return copied
}

// workloadText rewrites a text as Kyverno does: it replaces text without parsing expressions, so it
// also changes messages.
func workloadText(text, template string, keepNamespace bool) string {
	var pairs []string
	for _, object := range []string{"object.", "oldObject."} {
		if keepNamespace {
			pairs = append(pairs, object+"metadata.namespace", object+"metadata.namespace")
		}
		pairs = append(pairs, object+"spec", object+template+".spec", object+"metadata", object+template+".metadata")
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// textually rewrites the whole spec of a validating policy, except the match constraints.
func textually(spec *celSpec, template string) error {
	match := spec.MatchConstraints
	spec.MatchConstraints = nil
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	var rewritten celSpec
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(workloadText(string(text), template, true)), &rewritten); err != nil {
		return err
	}
	rewritten.MatchConstraints = match
	*spec = rewritten
	return nil
}

var (
	ofSpec     = regexp.MustCompile(`\b(object|oldObject|Object)\.spec`)
	ofMetadata = regexp.MustCompile(`\b(object|oldObject|Object)\.metadata\.(labels|annotations)`)
	objectType = regexp.MustCompile(`^\s*Object\s*\{`)
)

// ofTemplates rewrites the match conditions and ApplyConfigurations of a mutating policy. As in Kyverno,
// variables and JSONPatches do not change.
func ofTemplates(spec *celSpec, template string) error {
	for i := range spec.MatchConditions {
		c := &spec.MatchConditions[i]
		c.Expression = templateExpression(c.Expression, template)
	}
	for i := range spec.Mutations {
		if a := spec.Mutations[i].ApplyConfiguration; a != nil {
			a.Expression = templateExpression(a.Expression, template)
		}
	}
	return nil
}

func templateExpression(expression, template string) string {
	expression = ofSpec.ReplaceAllString(expression, "${1}."+template+".spec")
	expression = ofMetadata.ReplaceAllString(expression, "${1}."+template+".metadata.${2}")
	begin := objectType.FindStringIndex(expression)
	if begin == nil {
		return expression
	}
	end := skipParentheses(expression, begin[1]-1)
	if end < 0 {
		return expression // compiling it reports the error
	}
	wrapped, typeName, closing := "Object{", "Object", ""
	for _, field := range strings.Split(template, ".") {
		typeName += "." + field
		wrapped += field + ": " + typeName + "{"
		closing += "}"
	}
	return wrapped + expression[begin[1]:end-1] + closing + "}" + expression[end:]
}
