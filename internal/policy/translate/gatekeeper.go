package translate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/alike"
	"github.com/fastadmit/fastadmit/internal/discovery"
)

const (
	celEngine        = "K8sNativeValidation"
	gatekeeperTarget = "admission.k8s.gatekeeper.sh"
)

// A template is a ConstraintTemplate.
type template struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		CRD struct {
			Spec struct {
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
				Validation struct {
					Schema schemaProps `json:"openAPIV3Schema"`
				} `json:"validation"`
			} `json:"spec"`
		} `json:"crd"`
		Targets []struct {
			Target string `json:"target"`
			Code   []struct {
				Engine string          `json:"engine"`
				Source json.RawMessage `json:"source"`
			} `json:"code"`
			Operations []admissionregistrationv1.OperationType `json:"operations"`
		} `json:"targets"`
	} `json:"spec"`

	head   *head
	source *source // nil if the template has no CEL
	path   string  // of the source
	used   bool
}

// source is the code of a template for the engine K8sNativeValidation.
type source struct {
	Validations     []admissionregistrationv1.Validation       `json:"validations"`
	FailurePolicy   *admissionregistrationv1.FailurePolicyType `json:"failurePolicy"`
	MatchConditions []admissionregistrationv1.MatchCondition   `json:"matchCondition"` // the engine's name for it
	Variables       []admissionregistrationv1.Variable         `json:"variables"`
	GenerateVAP     *bool                                      `json:"generateVAP"`
}

// schemaProps has the fields of a schema that determine defaults.
type schemaProps struct {
	Default              any                    `json:"default"`
	Properties           map[string]schemaProps `json:"properties"`
	Items                *schemaProps           `json:"items"`
	AdditionalProperties any                    `json:"additionalProperties"`
}

// unusedTemplates notes templates without a Constraint: they do nothing.
func (t *translator) unusedTemplates() {
	for _, kind := range slices.Sorted(maps.Keys(t.templates)) {
		if m := t.templates[kind]; !m.used {
			t.idle(m.head, "", "has no Constraint of the kind %s, so it is not evaluated: give one together with it", kind)
		}
	}
}

func (t *translator) template(h *head) {
	m := &template{head: h}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(h.text, m); err != nil {
		t.refuse(h, "", "cannot be read: %v", err)
		return
	}
	kind := m.Spec.CRD.Spec.Names.Kind
	if kind == "" || len(m.Spec.Targets) != 1 {
		t.refuse(h, "spec", "got the kind %q and %d targets, want a kind in spec.crd.spec.names and one target", kind, len(m.Spec.Targets))
		return
	}
	if target := m.Spec.Targets[0].Target; target != gatekeeperTarget {
		t.refuse(h, "spec.targets[0].target", "got %q, want %s", target, gatekeeperTarget)
		return
	}
	t.templates[kind] = m
	for i, code := range m.Spec.Targets[0].Code {
		if code.Engine != celEngine {
			continue
		}
		m.path = fmt.Sprintf("spec.targets[0].code[%d].source", i)
		m.source = new(source)
		strict, err := alike.UnmarshalStrict(code.Source, m.source)
		if err != nil {
			strict = append(strict, err)
		}
		for _, err := range strict {
			field := m.path
			if match := strictField.FindStringSubmatch(err.Error()); match != nil {
				field += "." + match[1]
			}
			t.refuse(h, field, "%v (Gatekeeper would leave it out; its name for conditions is matchCondition)", err)
		}
		t.checkSource(m)
		return
	}
	t.refuse(h, "spec.targets[0].code", "there is no code for the engine %s: Rego has no translation, add the rule in CEL", celEngine)
}

func (t *translator) checkSource(m *template) {
	if len(m.source.Validations) == 0 {
		t.refuse(m.head, m.path+".validations", "got none, want at least one")
	}
	for i, v := range m.source.Variables {
		if v.Name == "anyObject" || v.Name == "params" {
			t.refuse(m.head, fmt.Sprintf("%s.variables[%d].name", m.path, i), "got %q, which Gatekeeper defines: choose another name", v.Name)
		}
	}
	for i, c := range m.source.MatchConditions {
		if strings.HasPrefix(c.Name, "gatekeeper_internal_") {
			t.refuse(m.head, fmt.Sprintf("%s.matchCondition[%d].name", m.path, i), "got %q, which Gatekeeper reserves: choose another name", c.Name)
		}
	}
}

// A constraint is an object of a kind that a template defines.
type constraint struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		Match             constraintMatch `json:"match"`
		Parameters        json.RawMessage `json:"parameters"`
		EnforcementAction string          `json:"enforcementAction"`
		Scoped            []struct {
			Action            string `json:"action"`
			EnforcementPoints []struct {
				Name string `json:"name"`
			} `json:"enforcementPoints"`
		} `json:"scopedEnforcementActions"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

type constraintMatch struct {
	Kinds []struct {
		APIGroups []string `json:"apiGroups"`
		Kinds     []string `json:"kinds"`
	} `json:"kinds"`
	Namespaces         []string              `json:"namespaces"`
	ExcludedNamespaces []string              `json:"excludedNamespaces"`
	Name               string                `json:"name"`
	LabelSelector      *metav1.LabelSelector `json:"labelSelector"`
	NamespaceSelector  *metav1.LabelSelector `json:"namespaceSelector"`
	Scope              string                `json:"scope"`
	Source             string                `json:"source"`
}

const (
	// anyObject is the variable of this name, as Gatekeeper writes it. Without DELETE, it is the object.
	anyObject = `has(request.operation) && request.operation == "DELETE" && object == null ? oldObject : object`
	// anyObjectInCondition is anyObject for match conditions, which have no variables.
	anyObjectInCondition = "(object == null ? oldObject : object)"
)

func (t *translator) constraint(h *head) {
	c := new(constraint)
	if !t.decode(h, c) {
		return
	}
	m := t.templates[h.Kind]
	if m == nil {
		t.refuse(h, "kind", "no ConstraintTemplate among the documents defines the kind %s: give it together with its Constraints", h.Kind)
		return
	}
	m.used = true
	if m.source == nil || t.faulty(m.head) {
		t.refuse(h, "kind", "the ConstraintTemplate %q, which defines the kind %s, has no translation", m.Metadata.Name, h.Kind)
		if m.source == nil || !t.Cluster {
			return
		}
	}
	params, err := m.params(c)
	if err != nil {
		t.refuse(h, "spec.parameters", "%v", err)
	}
	name := nameOf(h.Kind, h.Metadata.Name)
	match, conditions := t.constraintMatch(h, m, &c.Spec.Match)
	actions := t.constraintActions(h, c)
	if c.Spec.Match.Source == "Generated" {
		t.note(h, "spec.match.source", "it is for objects that ExpansionTemplates make, so it is not evaluated at admission")
		actions = nil
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta: validatingType, ObjectMeta: metadata(h, name),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: match, FailurePolicy: m.source.FailurePolicy,
			MatchConditions: conditionNames(append(conditions, slices.Clone(m.source.MatchConditions)...)),
			Variables: append([]admissionregistrationv1.Variable{{Name: "anyObject", Expression: m.anyObject()}, {Name: "params", Expression: params}},
				m.source.Variables...),
			Validations: slices.Clone(m.source.Validations),
		},
	}
	for i := range policy.Spec.Validations {
		v := &policy.Spec.Validations[i]
		v.Message = oneLine(v.Message)
	}
	p := &Policy{Document: h.index, Rule: m.Metadata.Name, Validating: policy, Moved: []Move{
		{"spec.variables", "spec.parameters"}, {"spec.validations", "kind"}, {"spec.matchConstraints", "spec.match"}, {"spec.matchConditions", "spec.match"},
	}}
	t.laxValidating(h, p)
	if len(actions) > 0 {
		p.ValidatingBindings = []*admissionregistrationv1.ValidatingAdmissionPolicyBinding{binding(name, name, actions)}
	}
	t.add(h, p)
}

// constraintActions returns the actions at the enforcement point.
func (t *translator) constraintActions(h *head, c *constraint) (all []admissionregistrationv1.ValidationAction) {
	known := map[string]admissionregistrationv1.ValidationAction{
		"": admissionregistrationv1.Deny, "deny": admissionregistrationv1.Deny,
		"warn": admissionregistrationv1.Warn, "dryrun": admissionregistrationv1.Audit,
	}
	if c.Spec.EnforcementAction != "scoped" {
		action, ok := known[c.Spec.EnforcementAction]
		if !ok {
			t.refuse(h, "spec.enforcementAction", "got %q, want deny, warn, dryrun or scoped", c.Spec.EnforcementAction)
		}
		return []admissionregistrationv1.ValidationAction{action}
	}
	points := []string{"*", "validation.gatekeeper.sh", "vap.k8s.io"}
	if t.Point != "" {
		points = []string{"*", t.Point}
	}
	for i, scoped := range c.Spec.Scoped {
		action, ok := known[scoped.Action]
		if !ok || scoped.Action == "" {
			t.refuse(h, fmt.Sprintf("spec.scopedEnforcementActions[%d].action", i), "got %q, want deny, warn or dryrun", scoped.Action)
		}
		for _, point := range scoped.EnforcementPoints {
			if slices.Contains(points, point.Name) && !slices.Contains(all, action) {
				all = append(all, action)
			}
		}
	}
	all = t.actions(h, "spec.scopedEnforcementActions", all)
	if len(all) == 0 {
		t.note(h, "spec.scopedEnforcementActions", "none is for %s, so it is not evaluated there", strings.Join(points, ", "))
	}
	return all
}

// operations returns the operations that the constraints of a template are evaluated for.
func (m *template) operations() []admissionregistrationv1.OperationType {
	if wanted := m.Spec.Targets[0].Operations; len(wanted) > 0 && !slices.Contains(wanted, admissionregistrationv1.OperationAll) {
		return wanted
	}
	return []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}
}

// anyObject returns the expression of the variable of this name.
func (m *template) anyObject() string {
	if slices.Contains(m.operations(), admissionregistrationv1.Delete) {
		return anyObject
	}
	return "object"
}

// constraintMatch returns the part of a match that MatchResources can express, and match conditions
// for the rest.
func (t *translator) constraintMatch(h *head, m *template, match *constraintMatch) (*admissionregistrationv1.MatchResources, []admissionregistrationv1.MatchCondition) {
	var scope *admissionregistrationv1.ScopeType
	switch match.Scope {
	case "", "*":
	case "Cluster", "Namespaced":
		scope = new(admissionregistrationv1.ScopeType(match.Scope))
	default:
		t.note(h, "spec.match.scope", "got %q, which Gatekeeper takes for *", match.Scope)
	}
	var conditions []admissionregistrationv1.MatchCondition
	condition := func(name, expression string) {
		if expression != "true" {
			conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: name, Expression: expression})
		}
	}
	selected := kindSelection{operations: m.operations(), scope: scope}
	for _, entry := range match.Kinds {
		selected.add(entry.APIGroups, entry.Kinds)
		if len(entry.APIGroups) != 1 {
			continue // another group may have the kind
		}
		for _, kind := range entry.Kinds {
			_, err := builtIn().Find(schema.GroupVersionKind{Group: entry.APIGroups[0], Version: "v1", Kind: kind})
			if unknown, ok := errors.AsType[*discovery.UnknownError](err); ok && unknown.IsMisspelt() {
				t.idle(h, "spec.match.kinds", "%v", err)
			}
		}
	}
	resources := selected.resources()
	condition("match-kinds", selected.condition())
	resources.ObjectSelector, resources.NamespaceSelector = match.LabelSelector, match.NamespaceSelector.DeepCopy()
	namespaces := func(names []string, operator metav1.LabelSelectorOperator) bool {
		if len(names) == 0 || slices.ContainsFunc(names, isGlob) {
			return len(names) == 0
		}
		if resources.NamespaceSelector == nil {
			resources.NamespaceSelector = new(metav1.LabelSelector)
		}
		resources.NamespaceSelector.MatchExpressions = append(resources.NamespaceSelector.MatchExpressions,
			metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: operator, Values: names})
		return true
	}
	const hasNone = "!has(request.namespace) || request.namespace == ''"
	if !namespaces(match.Namespaces, metav1.LabelSelectorOpIn) {
		condition("match-namespaces", hasNone+" || "+oneOf("request.namespace", match.Namespaces))
	}
	if !namespaces(match.ExcludedNamespaces, metav1.LabelSelectorOpNotIn) {
		condition("match-excluded-namespaces", hasNone+" || !("+oneOf("request.namespace", match.ExcludedNamespaces)+")")
	}
	if match.Name != "" {
		expression := "has(" + anyObjectInCondition + ".metadata.name) && " + oneOf(anyObjectInCondition+".metadata.name", []string{match.Name})
		if strings.HasSuffix(match.Name, "*") {
			expression += " || has(" + anyObjectInCondition + ".metadata.generateName) && " +
				oneOf(anyObjectInCondition+".metadata.generateName", []string{match.Name})
		}
		condition("match-name", expression)
	}
	return resources, conditions
}

// params returns the parameters of a constraint as an expression, with the defaults of the
// template's schema.
func (m *template) params(c *constraint) (string, error) {
	if len(c.Spec.Parameters) == 0 {
		return "dyn(null)", nil
	}
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(c.Spec.Parameters, &value); err != nil {
		return "", err
	}
	m.Spec.CRD.Spec.Validation.Schema.setDefaults(value)
	return dynamic(value), nil
}

// setDefaults sets the defaults of a schema in a value, as CustomResourceDefinitions do.
func (s *schemaProps) setDefaults(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, p := range s.Properties {
			if member, ok := value[name]; (!ok || member == nil) && p.Default != nil {
				value[name] = p.Default
			}
			p.setDefaults(value[name])
		}
		if additional, ok := s.AdditionalProperties.(map[string]any); ok {
			var below schemaProps
			text, _ := json.Marshal(additional) // it was decoded from JSON
			if kjson.UnmarshalCaseSensitivePreserveInts(text, &below) == nil {
				for name, member := range value {
					if _, known := s.Properties[name]; !known {
						below.setDefaults(member)
					}
				}
			}
		}
	case []any:
		if s.Items != nil {
			for _, element := range value {
				s.Items.setDefaults(element)
			}
		}
	}
}

// dynamic returns a JSON value as an expression in which all values have the type dyn.
func dynamic(value any) string {
	switch value := value.(type) {
	case map[string]any:
		names := make([]string, 0, len(value))
		for name := range value {
			names = append(names, name)
		}
		sort.Strings(names)
		members := make([]string, len(names))
		for i, name := range names {
			members[i] = literal(name) + ": " + dynamic(value[name])
		}
		return "dyn({" + strings.Join(members, ", ") + "})"
	case []any:
		elements := make([]string, len(value))
		for i := range value {
			elements[i] = dynamic(value[i])
		}
		return "dyn([" + strings.Join(elements, ", ") + "])"
	case string:
		return "dyn(" + literal(value) + ")"
	case float64:
		text := strconv.FormatFloat(value, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return "dyn(" + text + ")"
	}
	text, _ := json.Marshal(value) // null, a bool or an integer
	return "dyn(" + string(text) + ")"
}
