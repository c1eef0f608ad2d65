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
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/alike"
)

// A classicPolicy is a ClusterPolicy or a Policy of kyverno.io.
type classicPolicy struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            struct {
		Rules                            []json.RawMessage `json:"rules"`
		ApplyRules                       string            `json:"applyRules"`
		ValidationFailureAction          string            `json:"validationFailureAction"`
		ValidationFailureActionOverrides []override        `json:"validationFailureActionOverrides"`
		EmitWarning                      *bool             `json:"emitWarning"`
		Admission                        *bool             `json:"admission"`
		Background                       *bool             `json:"background"`
		SchemaValidation                 *bool             `json:"schemaValidation"`
		FailurePolicy                    string            `json:"failurePolicy"`
		WebhookTimeoutSeconds            *int32            `json:"webhookTimeoutSeconds"`
		// These are for rules that are not translated.
		UseServerSideApply             *bool `json:"useServerSideApply"`
		MutateExistingOnPolicyUpdate   *bool `json:"mutateExistingOnPolicyUpdate"`
		GenerateExisting               *bool `json:"generateExisting"`
		GenerateExistingOnPolicyUpdate *bool `json:"generateExistingOnPolicyUpdate"`
		WebhookConfiguration           struct {
			FailurePolicy   string                                   `json:"failurePolicy"`
			TimeoutSeconds  *int32                                   `json:"timeoutSeconds"`
			MatchConditions []admissionregistrationv1.MatchCondition `json:"matchConditions"`
		} `json:"webhookConfiguration"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// An override has another action for some namespaces.
type override struct {
	Action            string                `json:"action"`
	Namespaces        []string              `json:"namespaces"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
}

// A rule is a rule of a classicPolicy with validate.cel.
type rule struct {
	Name             string                                   `json:"name"`
	Match            classicMatch                             `json:"match"`
	Exclude          *classicMatch                            `json:"exclude"`
	CELPreconditions []admissionregistrationv1.MatchCondition `json:"celPreconditions"`
	SkipBackground   *bool                                    `json:"skipBackgroundRequests"`
	ReportProperties map[string]string                        `json:"reportProperties"`
	Validate         struct {
		FailureAction          string     `json:"failureAction"`
		FailureActionOverrides []override `json:"failureActionOverrides"`
		Message                string     `json:"message"`
		AllowExistingViolation *bool      `json:"allowExistingViolations"`
		CEL                    *struct {
			Generate         *bool                                     `json:"generate"`
			Expressions      []admissionregistrationv1.Validation      `json:"expressions"`
			Variables        []admissionregistrationv1.Variable        `json:"variables"`
			AuditAnnotations []admissionregistrationv1.AuditAnnotation `json:"auditAnnotations"`
			ParamKind        *admissionregistrationv1.ParamKind        `json:"paramKind"`
			ParamRef         *admissionregistrationv1.ParamRef         `json:"paramRef"`
		} `json:"cel"`
	} `json:"validate"`
}

// waysOutOfRules tell users what to do instead about parts of rules that have no translation.
var waysOutOfRules = map[string]string{
	"mutate":        "write a MutatingAdmissionPolicy",
	"generate":      "it creates objects; keep Kyverno for it, or a controller",
	"verifyImages":  "it verifies signatures; keep Kyverno for it, or an ImagePolicyWebhook",
	"context":       "JMESPath has no translation; use variables of validate.cel",
	"preconditions": "JMESPath has no translation; use celPreconditions",
	"pattern":       "patterns have no translation; write the rule as validate.cel",
	"anyPattern":    "patterns have no translation; write the rule as validate.cel",
	"deny":          "JMESPath has no translation; write the rule as validate.cel",
	"foreach":       "JMESPath has no translation; write the rule as validate.cel",
	"manifests":     "it verifies signatures; keep Kyverno for it",
	"podSecurity":   "enable the plugin PodSecurity",
	"assert":        "it is of another engine; write the rule as validate.cel",
}

func (t *translator) clusterPolicy(h *head) {
	p := new(classicPolicy)
	if !t.decode(h, p) {
		return
	}
	if len(p.Spec.Rules) == 0 {
		t.refuse(h, "spec.rules", "got none, want at least one")
	}
	if p.Spec.ApplyRules == "One" && len(p.Spec.Rules) > 1 {
		t.refuse(h, "spec.applyRules", "got One: Kubernetes evaluates all policies; divide the rules by match conditions")
	}
	all := t.errorsOf(h) // of the document itself
	for i, text := range p.Spec.Rules {
		path := fmt.Sprintf("spec.rules[%d]", i)
		before, errors := len(t.Policies), t.errorsOf(h)
		r := t.rule(h, path, text)
		if r == nil {
			continue
		}
		if t.translateRule(h, p, r, path); t.Cluster {
			t.partial(h, p, t.Policies[before:], all+t.errorsOf(h)-errors > 0)
		}
	}
	if !t.Cluster && t.faulty(h) { // all of a document or nothing
		t.Policies = slices.DeleteFunc(t.Policies, func(p *Policy) bool { return p.Document == h.index })
	}
}

// partial makes the policies of a rule independent of other rules of its document. isFaulty
// reports whether the last error of the document concerns them.
func (t *translator) partial(h *head, p *classicPolicy, policies []*Policy, isFaulty bool) {
	fault := ""
	for _, problem := range t.of[h.index] {
		if !problem.IsNote {
			fault = problem.Error() // the last one
		}
	}
	for _, made := range policies {
		made.partial = true
		made.Ignores = p.Spec.FailurePolicy == "Ignore" || p.Spec.WebhookConfiguration.FailurePolicy == "Ignore"
		if isFaulty {
			made.Fault = fault
		}
	}
}

// rule decodes a rule. It returns nil after it refused it.
func (t *translator) rule(h *head, path string, text []byte) *rule {
	var members, validate map[string]json.RawMessage
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &members); err != nil {
		t.refuse(h, path, "cannot be read: %v", err)
		return nil
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(members["validate"], &validate) // the rule is decoded below
	refused := false
	for _, at := range []struct {
		path    string
		members map[string]json.RawMessage
	}{{path, members}, {path + ".validate", validate}} {
		for name := range at.members {
			if way := waysOutOfRules[name]; way != "" {
				refused = true
				t.refuse(h, at.path+"."+name, "it has no translation: %s", way)
			}
		}
	}
	if refused {
		return nil
	}
	r := new(rule)
	strict, err := alike.UnmarshalStrict(text, r)
	if err != nil {
		t.refuse(h, path, "cannot be read: %v", err)
		return nil
	}
	for _, err := range strict {
		field := path
		if match := strictField.FindStringSubmatch(err.Error()); match != nil {
			field += "." + match[1]
		}
		t.refuse(h, field, "%v", err)
	}
	if r.Validate.CEL == nil {
		t.refuse(h, path+".validate", "there is no cel, and nothing else has a translation: write the rule as validate.cel")
	}
	if len(strict) > 0 || r.Validate.CEL == nil {
		return nil
	}
	return r
}

func (t *translator) translateRule(h *head, p *classicPolicy, r *rule, path string) {
	if r.Validate.AllowExistingViolation != nil && *r.Validate.AllowExistingViolation {
		t.note(h, path+".validate.allowExistingViolations", "an update of an object that violated the rule before is denied, too")
	}
	names := []string{h.Metadata.Name}
	if h.Kind == "Policy" {
		names = []string{h.Metadata.Namespace, h.Metadata.Name}
	}
	cel := r.Validate.CEL
	for _, v := range t.ruleVariants(h, r) {
		match, conditions := t.classicMatch(h, &v.Match, v.Exclude, path)
		if h.Kind == "Policy" {
			inNamespace(match, h.Metadata.Namespace)
		}
		name := nameOf(append(slices.Clone(names), v.Name)...)
		conditions = append(conditions, p.Spec.WebhookConfiguration.MatchConditions...)
		conditions = append(conditions, v.CELPreconditions...)
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
			TypeMeta: validatingType, ObjectMeta: metadata(h, name),
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				ParamKind: cel.ParamKind, MatchConstraints: match, MatchConditions: conditionNames(conditions),
				Variables: v.Validate.CEL.Variables, Validations: v.Validate.CEL.Expressions, AuditAnnotations: v.Validate.CEL.AuditAnnotations,
				FailurePolicy: new(admissionregistrationv1.Fail), // an error is a failure, whatever the document has
			},
		}
		if v == r && r.hasWorkloads() {
			leaveToAutogen(&policy.ObjectMeta)
		}
		for i := range policy.Spec.Validations {
			one := &policy.Spec.Validations[i]
			if one.Message == "" {
				one.Message = v.Validate.Message
			}
			one.Message = oneLine(one.Message)
		}
		translated := &Policy{Document: h.index, Rule: v.Name, Validating: policy, Moved: []Move{
			{"spec.validations", path + ".validate.cel.expressions"}, {"spec.variables", path + ".validate.cel.variables"},
			{"spec.auditAnnotations", path + ".validate.cel.auditAnnotations"}, {"spec.paramKind", path + ".validate.cel.paramKind"},
			{"spec.matchConditions", path + ".celPreconditions"}, {"spec.matchConstraints", path + ".match"},
		}}
		t.laxValidating(h, translated)
		if p.Spec.Admission == nil || *p.Spec.Admission || t.Uncovered {
			translated.ValidatingBindings = t.ruleBindings(h, p, r, name, path)
		} else {
			t.note(h, "spec.admission", "it is false, so the policy gets no binding and is not evaluated at admission")
		}
		t.add(h, translated)
	}
}

// ruleBindings returns a binding with the action of a rule, and one for each override.
func (t *translator) ruleBindings(h *head, p *classicPolicy, r *rule, name, path string) (all []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	action, at, overrides := p.Spec.ValidationFailureAction, "spec.validationFailureAction", p.Spec.ValidationFailureActionOverrides
	if r.Validate.FailureAction != "" {
		action, at = r.Validate.FailureAction, path+".validate.failureAction"
	}
	if len(r.Validate.FailureActionOverrides) > 0 {
		overrides = r.Validate.FailureActionOverrides
	}
	actions := func(action, at string) []admissionregistrationv1.ValidationAction {
		switch strings.ToLower(action) {
		case "enforce":
			return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		case "", "audit":
			if p.Spec.EmitWarning != nil && *p.Spec.EmitWarning {
				return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit, admissionregistrationv1.Warn}
			}
			return []admissionregistrationv1.ValidationAction{admissionregistrationv1.Audit}
		}
		t.refuse(h, at, "got %q, want Audit or Enforce", action)
		return nil
	}
	others := new(metav1.LabelSelector)
	for i, o := range overrides {
		at := fmt.Sprintf("the override %d of %s", i, at)
		selector := o.NamespaceSelector
		if len(o.Namespaces) > 0 {
			if selector != nil || slices.ContainsFunc(o.Namespaces, isGlob) {
				t.refuse(h, path, "%s: a binding cannot select namespaces by patterns, or by names and labels: name the namespaces", at)
				continue
			}
			in := metav1.LabelSelectorRequirement{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: o.Namespaces}
			selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{in}}
			in.Operator = metav1.LabelSelectorOpNotIn
			others.MatchExpressions = append(others.MatchExpressions, in)
		} else if selector != nil {
			t.refuse(h, path, "%s: a binding cannot select the namespaces that labels do not select: name the namespaces", at)
			continue
		}
		b := binding(nameOf(name, fmt.Sprint(i)), name, actions(o.Action, at))
		b.Spec.ParamRef, b.Spec.MatchResources = r.Validate.CEL.ParamRef, &admissionregistrationv1.MatchResources{NamespaceSelector: selector}
		all = append(all, b)
	}
	b := binding(name, name, actions(action, at))
	b.Spec.ParamRef = r.Validate.CEL.ParamRef
	if len(others.MatchExpressions) > 0 {
		b.Spec.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: others}
	}
	return append([]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{b}, all...)
}

// workloadKinds are the kinds of workloads for which Kyverno makes variants of rules.
var workloadKinds = []string{"DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet", "CronJob"}

const autogenAnnotation = "pod-policies.kyverno.io/autogen-controllers"

// ruleVariants returns a rule and the variants that Kyverno makes from it for workloads.
func (t *translator) ruleVariants(h *head, r *rule) []*rule {
	all := []*rule{r}
	if !r.hasWorkloads() {
		return all
	}
	controllers := workloadKinds
	if value, ok := h.Metadata.Annotations[autogenAnnotation]; ok && value != "all" {
		controllers = strings.Split(strings.ReplaceAll(value, " ", ""), ",")
	}
	var kinds, cronJobs []string
	for _, kind := range workloadKinds {
		switch {
		case !slices.Contains(controllers, kind):
		case kind == "CronJob":
			cronJobs = []string{kind}
		default:
			kinds = append(kinds, kind)
		}
	}
	for _, v := range []struct {
		prefix, template string
		kinds            []string
	}{{"autogen-", templatePath, kinds}, {"autogen-cronjob-", cronJobTemplatePath, cronJobs}} {
		if len(v.kinds) == 0 {
			continue
		}
		made := new(rule)
		text, _ := json.Marshal(r) // it was decoded from JSON
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(workloadText(string(text), v.template, false)), made) != nil {
			continue
		}
		made.Name = v.prefix + r.Name
		made.Match, made.Exclude = r.Match.withKinds(v.kinds), nil
		if r.Exclude != nil {
			made.Exclude = new(r.Exclude.withKinds(v.kinds))
		}
		all = append(all, made)
	}
	return all
}

// hasWorkloads reports whether Kyverno makes variants for workloads from a rule.
func (r *rule) hasWorkloads() bool {
	isFor := func(m *classicMatch) bool {
		return m == nil || !slices.ContainsFunc(m.blocks(), func(b *classicBlock) bool {
			s := &b.Resources
			return len(s.Name)+len(s.Names)+len(s.Annotations) > 0 || s.Selector != nil || slices.ContainsFunc(s.Kinds, isNoPod)
		})
	}
	hasPods := slices.ContainsFunc(r.Match.blocks(), func(b *classicBlock) bool { return len(b.Resources.Kinds) > 0 })
	return hasPods && isFor(&r.Match) && isFor(r.Exclude)
}

var podKind = regexp.MustCompile(`^((\*|v1)/)?Pod$`)

func isNoPod(kind string) bool { return !podKind.MatchString(kind) }

func (m *classicMatch) withKinds(kinds []string) classicMatch {
	var copied classicMatch
	text, _ := json.Marshal(m) // it was decoded from JSON
	_ = kjson.UnmarshalCaseSensitivePreserveInts(text, &copied)
	for _, b := range copied.blocks() {
		if len(b.Resources.Kinds) > 0 {
			b.Resources.Kinds = kinds
		}
	}
	return copied
}
