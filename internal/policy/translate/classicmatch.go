package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A classicMatch is the field match or exclude of a rule of kyverno.io.
type classicMatch struct {
	Any          []classicBlock `json:"any,omitempty"`
	All          []classicBlock `json:"all,omitempty"`
	classicBlock `json:",inline"`
}

type classicBlock struct {
	Roles        []string         `json:"roles,omitempty"`
	ClusterRoles []string         `json:"clusterRoles,omitempty"`
	Subjects     []rbacv1.Subject `json:"subjects,omitempty"`
	Resources    struct {
		Kinds             []string                                `json:"kinds,omitempty"`
		Name              string                                  `json:"name,omitempty"`
		Names             []string                                `json:"names,omitempty"`
		Namespaces        []string                                `json:"namespaces,omitempty"`
		Annotations       map[string]string                       `json:"annotations,omitempty"`
		Selector          *metav1.LabelSelector                   `json:"selector,omitempty"`
		NamespaceSelector *metav1.LabelSelector                   `json:"namespaceSelector,omitempty"`
		Operations        []admissionregistrationv1.OperationType `json:"operations,omitempty"`
	} `json:"resources,omitempty"`
}

// blocks returns the blocks in any and all. A match without these is itself a block: the older form.
func (m *classicMatch) blocks() (all []*classicBlock) {
	for i := range m.Any {
		all = append(all, &m.Any[i])
	}
	for i := range m.All {
		all = append(all, &m.All[i])
	}
	if len(all) == 0 {
		all = append(all, &m.classicBlock)
	}
	return all
}

// allOperations are the operations of a rule that names none.
var allOperations = []admissionregistrationv1.OperationType{
	admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect,
}

// classicMatch returns resources that include all that a rule selects, and conditions that exclude the
// rest of these resources.
func (t *translator) classicMatch(h *head, match, exclude *classicMatch, path string,
) (*admissionregistrationv1.MatchResources, []admissionregistrationv1.MatchCondition) {
	resources := new(admissionregistrationv1.MatchResources)
	var conditions []admissionregistrationv1.MatchCondition
	blocks := match.blocks()
	for _, b := range blocks {
		operations := b.Resources.Operations
		if len(operations) == 0 {
			operations = allOperations
		}
		if len(b.Resources.Kinds) == 0 {
			resources.ResourceRules = append(resources.ResourceRules, kindRule(operations, "*", "*", "*"))
		}
		for _, kind := range b.Resources.Kinds {
			for _, rule := range kindRules(operations, kind) {
				addRule(resources, rule)
			}
		}
	}
	operator := " || "
	if len(match.All) > 0 {
		operator = " && "
	}
	var all []string
	isPlain := len(match.All) < 2
	for _, b := range blocks {
		kinds := len(blocks) > 1
		expression := t.block(h, b, path+".match", kinds)
		isPlain = isPlain && t.block(h, b, path+".match", false) == "true"
		all = append(all, expression)
	}
	if !isPlain {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: "match", Expression: joined(all, operator)})
	}
	if exclude != nil {
		all, operator = nil, " || "
		if len(exclude.All) > 0 {
			operator = " && "
		}
		for _, b := range exclude.blocks() {
			all = append(all, t.block(h, b, path+".exclude", true))
		}
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: "exclude", Expression: "!(" + joined(all, operator) + ")"})
	}
	return resources, conditions
}

func kindRule(operations []admissionregistrationv1.OperationType, group, version string, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: operations, Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}}
}

// addRule adds a rule. If another rule differs only in its resources, it adds the resources to that rule.
func addRule(match *admissionregistrationv1.MatchResources, rule admissionregistrationv1.NamedRuleWithOperations) {
	for i := range match.ResourceRules {
		r := &match.ResourceRules[i]
		if slices.Equal(r.APIGroups, rule.APIGroups) && slices.Equal(r.APIVersions, rule.APIVersions) && slices.Equal(r.Operations, rule.Operations) {
			for _, resource := range rule.Resources {
				if !slices.Contains(r.Resources, resource) {
					r.Resources = append(r.Resources, resource)
				}
			}
			return
		}
	}
	match.ResourceRules = append(match.ResourceRules, rule)
}

// parseKind divides [group/[version/]]Kind[/subresource], as Kyverno does.
func parseKind(text string) (group, version, kind, subresource string) {
	parts := strings.Split(text, "/")
	isKind := func(s string) bool { return s == "*" || s != "" && s[0] >= 'A' && s[0] <= 'Z' }
	at := slices.IndexFunc(parts, func(s string) bool { return s != "*" && isKind(s) })
	if at < 0 {
		at = len(parts) - 1
	}
	group, version, kind = "*", "*", parts[at]
	subresource = strings.Join(parts[at+1:], "/")
	if base, sub, ok := strings.Cut(kind, "."); ok && subresource == "" {
		kind, subresource = base, sub
	}
	switch at {
	case 1:
		version = parts[0]
		if strings.HasPrefix(version, "v") {
			if resource, _ := plural("", kind); version == "v1" && resource != "" {
				group = "*"
			}
		} else if version != "*" {
			group, version = version, "*"
		}
	case 2:
		group, version = parts[0], parts[1]
	}
	return group, version, kind, subresource
}

func kindRules(operations []admissionregistrationv1.OperationType, text string) (rules []admissionregistrationv1.NamedRuleWithOperations) {
	group, version, kind, subresource := parseKind(text)
	if isGlob(group) {
		group = "*"
	}
	if isGlob(version) {
		version = "*"
	}
	resource := "*"
	if !isGlob(kind) {
		resource, _ = plural(group, kind)
		if group == "*" {
			group = groupOf(kind)
		}
	}
	if subresource != "" {
		return []admissionregistrationv1.NamedRuleWithOperations{kindRule(operations, group, version, resource+"/"+subresource)}
	}
	resources := []string{resource}
	if kind == "Pod" {
		resources = append(resources, "pods/ephemeralcontainers")
	}
	return []admissionregistrationv1.NamedRuleWithOperations{kindRule(operations, group, version, resources...)}
}

// groupOf returns the group of Kubernetes that has a kind. It returns "*" if no group has it, or several.
func groupOf(kind string) string {
	groups := builtIn().Groups(kind)
	if len(groups) == 1 {
		return groups[0]
	}
	return "*"
}

// block returns the condition under which a block selects an object, "true" if it selects all. If kinds
// is false, the condition ignores the kinds and operations of the block.
func (t *translator) block(h *head, b *classicBlock, path string, kinds bool) string {
	if len(b.Roles)+len(b.ClusterRoles) > 0 {
		t.refuse(h, path, "roles and clusterRoles have no translation, as expressions do not see bindings of RBAC: "+
			"use subjects, or ask the authorizer in a match condition")
	}
	var all []string
	and := func(expression string) {
		if expression != "true" {
			all = append(all, expression)
		}
	}
	r := &b.Resources
	if kinds && len(r.Kinds) > 0 {
		var either []string
		for _, kind := range r.Kinds {
			either = append(either, kindExpression(kind))
		}
		and(joined(either, " || "))
	}
	if kinds && len(r.Operations) > 0 {
		operations := make([]string, len(r.Operations))
		for i, o := range r.Operations {
			operations[i] = string(o)
		}
		and("request.operation in " + literals(operations))
	}
	const object = anyObjectInCondition
	names := r.Names
	if r.Name != "" {
		names = append(slices.Clone(names), r.Name)
	}
	if len(names) > 0 {
		and("has(" + object + ".metadata.name) && (" + oneOf(object+".metadata.name", names) + ")")
	}
	if len(r.Namespaces) > 0 {
		and("has(request.namespace) && (" + oneOf("request.namespace", r.Namespaces) + ")")
	}
	for _, key := range slices.Sorted(maps.Keys(r.Annotations)) {
		and(labelExpression(object+".metadata", "annotations", key, r.Annotations[key]))
	}
	and(selectorExpression(object+".metadata", r.Selector))
	if r.NamespaceSelector != nil {
		and("namespaceObject != null && (" + selectorExpression("namespaceObject.metadata", r.NamespaceSelector) + ")")
	}
	if len(b.Subjects) > 0 {
		var either []string
		for _, s := range b.Subjects {
			either = append(either, subjectExpression(s))
		}
		and(joined(either, " || "))
	}
	if len(all) == 0 {
		return "true"
	}
	return joined(all, " && ")
}

func kindExpression(text string) string {
	group, version, kind, subresource := parseKind(text)
	var all []string
	for _, part := range []struct{ field, pattern string }{{"group", group}, {"version", version}, {"kind", kind}} {
		if part.pattern != "*" {
			all = append(all, oneOf("request.kind."+part.field, []string{part.pattern}))
		}
	}
	if subresource != "" {
		all = append(all, "has(request.subResource) && "+oneOf("request.subResource", []string{subresource}))
	}
	if len(all) == 0 {
		return "true"
	}
	return joined(all, " && ")
}

// labelExpression compares a label or annotation with a pattern. The key can be a pattern, too.
func labelExpression(metadata, field, key, pattern string) string {
	labels := metadata + "." + field
	if isGlob(key) {
		return "has(" + labels + ") && " + labels + ".exists(k, (" + oneOf("k", []string{key}) + ") && (" + oneOf(labels+"[k]", []string{pattern}) + "))"
	}
	return "has(" + labels + ") && " + literal(key) + " in " + labels + " && (" + oneOf(labels+"["+literal(key)+"]", []string{pattern}) + ")"
}

func selectorExpression(metadata string, s *metav1.LabelSelector) string {
	if s == nil {
		return "true"
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, labelExpression(metadata, "labels", key, s.MatchLabels[key]))
	}
	for _, r := range s.MatchExpressions {
		has := fmt.Sprintf("has(%[1]s.labels) && %[2]s in %[1]s.labels", metadata, literal(r.Key))
		in := has + " && " + metadata + ".labels[" + literal(r.Key) + "] in " + literals(r.Values)
		all = append(all, map[metav1.LabelSelectorOperator]string{
			metav1.LabelSelectorOpIn: in, metav1.LabelSelectorOpNotIn: "!(" + in + ")",
			metav1.LabelSelectorOpExists: has, metav1.LabelSelectorOpDoesNotExist: "!(" + has + ")",
		}[r.Operator])
	}
	if len(all) == 0 {
		return "true"
	}
	return joined(all, " && ")
}

func subjectExpression(s rbacv1.Subject) string {
	switch s.Kind {
	case rbacv1.GroupKind:
		return "has(request.userInfo.groups) && request.userInfo.groups.exists(g, " + oneOf("g", []string{s.Name}) + ")"
	case rbacv1.ServiceAccountKind:
		return "has(request.userInfo.username) && (" + oneOf("request.userInfo.username", []string{"system:serviceaccount:" + s.Namespace + ":" + s.Name}) + ")"
	}
	return "has(request.userInfo.username) && (" + oneOf("request.userInfo.username", []string{s.Name}) + ")"
}
