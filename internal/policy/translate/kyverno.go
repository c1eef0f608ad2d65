package translate

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A celPolicy is a ValidatingPolicy or MutatingPolicy of policies.kyverno.io. Its versions
// have the same fields.
type celPolicy struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            celSpec           `json:"spec"`
	Status          json.RawMessage   `json:"status"`
}

type celSpec struct {
	MatchConstraints     *admissionregistrationv1.MatchResources        `json:"matchConstraints"`
	MatchConditions      []admissionregistrationv1.MatchCondition       `json:"matchConditions"`
	Variables            []admissionregistrationv1.Variable             `json:"variables"`
	Validations          []admissionregistrationv1.Validation           `json:"validations"`
	AuditAnnotations     []admissionregistrationv1.AuditAnnotation      `json:"auditAnnotations"`
	Mutations            []admissionregistrationv1.Mutation             `json:"mutations"`
	FailurePolicy        *admissionregistrationv1.FailurePolicyType     `json:"failurePolicy"`
	ReinvocationPolicy   admissionregistrationv1.ReinvocationPolicyType `json:"reinvocationPolicy"`
	ValidationActions    []admissionregistrationv1.ValidationAction     `json:"validationActions"`
	WebhookConfiguration struct {
		TimeoutSeconds *int32 `json:"timeoutSeconds"`
	} `json:"webhookConfiguration"`
	Evaluation             *evaluation     `json:"evaluation"`
	Autogen                *autogen        `json:"autogen"`
	TargetMatchConstraints json.RawMessage `json:"targetMatchConstraints"`
	TargetMatchConditions  json.RawMessage `json:"targetMatchConditions"`
}

type enabled struct {
	Enabled *bool `json:"enabled"`
}

type evaluation struct {
	Mode                   string   `json:"mode"`
	Admission              *enabled `json:"admission"`
	Background             *enabled `json:"background"`
	MutateExisting         *enabled `json:"mutateExisting"`
	SkipBackgroundRequests *bool    `json:"skipBackgroundRequests"`
	UseServerSideApply     *bool    `json:"useServerSideApply"`
}

func (e *enabled) or(otherwise bool) bool {
	if e == nil || e.Enabled == nil {
		return otherwise
	}
	return *e.Enabled
}

func (t *translator) validatingPolicy(h *head) {
	p := new(celPolicy)
	if !t.decode(h, p) {
		return
	}
	if len(p.Spec.Mutations) > 0 {
		t.refuse(h, "spec.mutations", "a %s has no mutations: write a MutatingPolicy", h.Kind)
	}
	bound := t.check(h, &p.Spec)
	params := t.parameters(h, &p.Spec)
	if p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy == admissionregistrationv1.Ignore {
		t.note(h, "spec.failurePolicy", "with Ignore, Kyverno denies when an expression of validations fails; Kubernetes allows")
	}
	actions := t.actions(h, "spec.validationActions", p.Spec.ValidationActions)
	if len(actions) == 0 {
		actions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	for _, v := range t.variants(h, p, textually) {
		functions, reads := t.adapt(h, &v.spec)
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
			TypeMeta: validatingType, ObjectMeta: metadata(h, v.name),
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: v.spec.MatchConstraints, MatchConditions: v.spec.MatchConditions, Variables: v.spec.Variables,
				Validations: v.spec.Validations, AuditAnnotations: v.spec.AuditAnnotations, FailurePolicy: v.spec.FailurePolicy,
				ParamKind: params.kind,
			},
		}
		if v.rule == "" && hasWorkloads(p.Spec.MatchConstraints) {
			leaveToAutogen(&policy.ObjectMeta)
		}
		translated := &Policy{Document: h.index, Rule: v.rule, Validating: policy, Moved: v.moved, Functions: functions, Reads: reads}
		if bound {
			b := binding(v.name, v.name, actions)
			b.Spec.ParamRef = params.ref
			translated.ValidatingBindings = []*admissionregistrationv1.ValidatingAdmissionPolicyBinding{b}
		}
		t.add(h, translated)
	}
}

// binding returns a binding that selects all requests that its policy selects.
func binding(name, policy string, actions []admissionregistrationv1.ValidationAction) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
	return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		TypeMeta: validatingBindingType, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ValidationActions: actions},
	}
}

func (t *translator) mutatingPolicy(h *head) {
	p := new(celPolicy)
	if !t.decode(h, p) {
		return
	}
	for field, set := range map[string]bool{
		"validations": len(p.Spec.Validations) > 0, "auditAnnotations": len(p.Spec.AuditAnnotations) > 0,
		"validationActions": len(p.Spec.ValidationActions) > 0,
	} {
		if set {
			t.refuse(h, "spec."+field, "a %s has no %s: write a ValidatingPolicy", h.Kind, field)
		}
	}
	bound := t.check(h, &p.Spec)
	params := t.parameters(h, &p.Spec)
	for i := range p.Spec.MatchConditions { // Kubernetes has no variables in them
		c := &p.Spec.MatchConditions[i]
		var fits bool
		if c.Expression, fits = inlined(c.Expression, p.Spec.Variables); !fits {
			t.refuse(h, fmt.Sprintf("spec.matchConditions[%d].expression", i), "with the variables written out, it is made of more than %d bytes: "+
				"Kubernetes has no variables in conditions", writtenOutBytesMax)
			c.Expression = "false"
		}
	}
	t.noteEmptyMaps(h, p.Spec.Mutations)
	for _, v := range t.variants(h, p, ofTemplates) {
		functions, reads := t.adapt(h, &v.spec)
		if v.spec.ReinvocationPolicy == "" {
			v.spec.ReinvocationPolicy = admissionregistrationv1.NeverReinvocationPolicy
		}
		policy := &admissionregistrationv1.MutatingAdmissionPolicy{
			TypeMeta: mutatingType, ObjectMeta: metadata(h, v.name),
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				MatchConstraints: v.spec.MatchConstraints, MatchConditions: v.spec.MatchConditions, Variables: v.spec.Variables,
				Mutations: v.spec.Mutations, FailurePolicy: v.spec.FailurePolicy, ReinvocationPolicy: v.spec.ReinvocationPolicy,
				ParamKind: params.kind,
			},
		}
		translated := &Policy{Document: h.index, Rule: v.rule, Mutating: policy, Moved: v.moved, Functions: functions, Reads: reads}
		if bound {
			translated.MutatingBindings = []*admissionregistrationv1.MutatingAdmissionPolicyBinding{{
				TypeMeta: mutatingBindingType, ObjectMeta: metav1.ObjectMeta{Name: v.name},
				Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: v.name, ParamRef: params.ref},
			}}
		}
		t.add(h, translated)
	}
}

// emptyMap is an operation of a JSON Patch that adds an empty map.
var emptyMap = regexp.MustCompile(`\bvalue:\s*(?:dyn\()?(?:Object[\w.]*)?\{\s*\}`)

// noteEmptyMaps notes mutations that add an empty map for a later one. Kubernetes decodes the object between mutations, and
// leaves out empty maps.
func (t *translator) noteEmptyMaps(h *head, mutations []admissionregistrationv1.Mutation) {
	for i := range mutations {
		isPatch := func(m admissionregistrationv1.Mutation) bool { return m.JSONPatch != nil }
		if isPatch(mutations[i]) && emptyMap.MatchString(mutations[i].JSONPatch.Expression) && slices.ContainsFunc(mutations[i+1:], isPatch) {
			t.note(h, fmt.Sprintf("spec.mutations[%d].jsonPatch.expression", i), "the empty map that it adds is gone in the next mutation, as Kubernetes "+
				"leaves out empty maps: a patch of what is below it fails, and the request is denied, or with failurePolicy Ignore not changed; "+
				"make both patches in one mutation")
		}
	}
}

// actions returns the actions of a binding, each once. Kubernetes refuses Deny and Warn in one
// binding: who is denied has read the message.
func (t *translator) actions(h *head, field string, given []admissionregistrationv1.ValidationAction) (all []admissionregistrationv1.ValidationAction) {
	for _, action := range given {
		switch {
		case slices.Contains(all, action):
		case action == admissionregistrationv1.Warn && slices.Contains(given, admissionregistrationv1.Deny):
			t.note(h, field, "Warn is left out beside Deny, because Kubernetes does not warn of what it denies")
		default:
			all = append(all, action)
		}
	}
	return all
}

// add adds a translation, unless its document has an error and is not of a cluster.
func (t *translator) add(h *head, p *Policy) {
	if t.Cluster || !t.faulty(h) {
		t.Policies = append(t.Policies, p)
	}
}

// check adds errors for fields that have no translation, and reports whether the policy needs a binding:
// whether it is evaluated at admission.
func (t *translator) check(h *head, spec *celSpec) (bound bool) {
	if spec.MatchConstraints == nil || len(spec.MatchConstraints.ResourceRules) == 0 {
		t.refuse(h, "spec.matchConstraints", "got no resourceRules, want at least one")
	}
	const targets = "it changes other objects than that of the request: keep Kyverno for it, or use a controller"
	if len(spec.TargetMatchConstraints) > 0 {
		t.elsewhere(h, "spec.targetMatchConstraints", targets)
	}
	if len(spec.TargetMatchConditions) > 0 {
		t.elsewhere(h, "spec.targetMatchConditions", targets)
	}
	e := spec.Evaluation
	if e == nil {
		return true
	}
	if e.Mode != "" && e.Mode != "Kubernetes" {
		t.elsewhere(h, "spec.evaluation.mode", "got %q: admission has only objects of Kubernetes; keep Kyverno for other payloads", e.Mode)
	}
	if e.UseServerSideApply != nil && *e.UseServerSideApply {
		t.refuse(h, "spec.evaluation.useServerSideApply", "Kubernetes merges ApplyConfigurations in its own way, without atomic lists: use a JSONPatch")
	}
	if e.MutateExisting.or(false) {
		t.note(h, "spec.evaluation.mutateExisting.enabled", "only objects that are written are changed, not those that exist")
	}
	if !e.Admission.or(true) && !t.Uncovered {
		t.note(h, "spec.evaluation.admission.enabled", "it is false, so the policy gets no binding and is not evaluated at admission")
		return false
	}
	return true
}

var (
	conditionName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	notInCondition = regexp.MustCompile(`[^-A-Za-z0-9_.]+`)
	lineBreaks     = regexp.MustCompile(`\s*[\r\n]+\s*`)
)

const conditionNameBytesMax = 63 // the limit for the name part of a qualified name in Kubernetes

// adapt rewrites names, expressions and messages that Kyverno accepts and Kubernetes does not. It also
// adds the namespace of the policy and its exceptions. It returns whether the
// expressions call functions of Kyverno, and what they read.
func (t *translator) adapt(h *head, spec *celSpec) (functions bool, reads []Read) {
	if h.Metadata.Namespace != "" && strings.HasPrefix(h.Kind, "Namespaced") {
		inNamespace(spec.MatchConstraints, h.Metadata.Namespace)
	}
	t.except(h, spec)
	spec.MatchConditions = conditionNames(spec.MatchConditions)
	reads = t.reads(h, spec)
	hasImages := false
	eachExpression(spec, func(_ string, expression *string) {
		hasImages = hasImages || imageCall.MatchString(*expression)
	})
	eachExpression(spec, func(field string, expression *string) {
		*expression = plain(*expression)
		expanded, calls, err := t.expand(*expression, hasImages)
		if err != nil {
			t.refuse(h, field, "%v", err)
		}
		*expression, functions = expanded, functions || calls
	})
	t.lax(h, spec, func(field string) string { return field })
	for i := range spec.Validations {
		v := &spec.Validations[i]
		v.Message = oneLine(v.Message)
	}
	return functions, reads
}

func oneLine(message string) string {
	return strings.TrimSpace(lineBreaks.ReplaceAllString(message, " "))
}

// inNamespace restricts a selection to objects in a namespace.
func inNamespace(match *admissionregistrationv1.MatchResources, namespace string) {
	if match.NamespaceSelector == nil {
		match.NamespaceSelector = new(metav1.LabelSelector)
	}
	match.NamespaceSelector.MatchExpressions = append(match.NamespaceSelector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{namespace},
	})
}

// conditionNames gives conditions valid and unique names.
func conditionNames(conditions []admissionregistrationv1.MatchCondition) []admissionregistrationv1.MatchCondition {
	known := make(map[string]bool)
	for i := range conditions {
		c := &conditions[i]
		if !conditionName.MatchString(c.Name) || len(c.Name) > conditionNameBytesMax {
			c.Name = strings.Trim(notInCondition.ReplaceAllString(c.Name, "-"), "-_.")
			c.Name = strings.Trim(c.Name[:min(len(c.Name), conditionNameBytesMax-len("-999"))], "-_.")
		}
		for n, base := 2, c.Name; known[c.Name] || c.Name == ""; n++ {
			c.Name = strings.TrimPrefix(fmt.Sprintf("%s-%d", base, n), "-")
		}
		known[c.Name] = true
	}
	return conditions
}

// eachExpression calls visit for each expression, with its path.
func eachExpression(spec *celSpec, visit func(field string, expression *string)) {
	for i := range spec.MatchConditions {
		visit(fmt.Sprintf("spec.matchConditions[%d].expression", i), &spec.MatchConditions[i].Expression)
	}
	for i := range spec.Variables {
		visit(fmt.Sprintf("spec.variables[%d].expression", i), &spec.Variables[i].Expression)
	}
	for i := range spec.Validations {
		visit(fmt.Sprintf("spec.validations[%d].expression", i), &spec.Validations[i].Expression)
		visit(fmt.Sprintf("spec.validations[%d].messageExpression", i), &spec.Validations[i].MessageExpression)
	}
	for i := range spec.AuditAnnotations {
		visit(fmt.Sprintf("spec.auditAnnotations[%d].valueExpression", i), &spec.AuditAnnotations[i].ValueExpression)
	}
	for i := range spec.Mutations {
		m := &spec.Mutations[i]
		if m.ApplyConfiguration != nil {
			visit(fmt.Sprintf("spec.mutations[%d].applyConfiguration.expression", i), &m.ApplyConfiguration.Expression)
		}
		if m.JSONPatch != nil {
			visit(fmt.Sprintf("spec.mutations[%d].jsonPatch.expression", i), &m.JSONPatch.Expression)
		}
	}
}

var variableUse = regexp.MustCompile(`\bvariables\.([A-Za-z_][A-Za-z0-9_]*)`)

// inlined returns an expression with the expressions of variables in place of their names. fits is
// false if these have more than writtenOutBytesMax together, each counted as often as it is used.
func inlined(expression string, variables []admissionregistrationv1.Variable) (text string, fits bool) {
	left := writtenOutBytesMax
	text = inlineUpTo(&left, expression, variables)
	return text, left >= 0
}

func inlineUpTo(left *int, expression string, variables []admissionregistrationv1.Variable) string {
	return stretches(expression, func(code string) string {
		*left -= len(code)
		return variableUse.ReplaceAllStringFunc(code, func(use string) string {
			name := strings.TrimPrefix(use, "variables.")
			at := slices.IndexFunc(variables, func(v admissionregistrationv1.Variable) bool { return v.Name == name })
			if at < 0 || *left < 0 {
				return use // compiling it says that there is none, or inlined that there are too many
			}
			return "(" + inlineUpTo(left, variables[at].Expression, variables[:at]) + ")" // only of earlier variables, so it ends
		})
	})
}
