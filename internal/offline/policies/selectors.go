package policies

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
)

// Unlabeled has the requests of a review for objects in namespaces that nobody gave. The review sees such a namespace without
// labels; in a cluster, it may have some.
type Unlabeled map[admission.Attributes]bool

const namedMax = 3 // how many namespaces a note names

// selection is what a policy and its binding have in common.
type selection struct {
	Spec struct {
		MatchConstraints *admissionregistrationv1.MatchResources `json:"matchConstraints"` // of a policy
		MatchResources   *admissionregistrationv1.MatchResources `json:"matchResources"`   // of a binding
		ParamRef         *admissionregistrationv1.ParamRef       `json:"paramRef"`
	} `json:"spec"`
}

// GivenNotes returns notes on policies that are not evaluated because of what nobody gave: labels of a namespace that a
// namespaceSelector asks for, although the rules select a request, or a parameter without which the binding does nothing.
func (s *Set) GivenNotes(requests Unlabeled) (notes []Note) {
	if !s.applied {
		return nil
	}
	type policy struct{ kind, name string }
	rules, paramKinds := make(map[policy]*ruleSet), make(map[policy]admission.ParamKind)
	selections := make([]selection, len(s.documents))
	for i := range s.documents {
		d := &s.documents[i]
		if decode(d.text, &selections[i]) != nil { // the plugin reports it
			continue
		}
		if kind, ok := d.paramKind(); ok {
			paramKinds[policy{d.kind.policy, d.policy}] = kind
		}
		if m := selections[i].Spec.MatchConstraints; m != nil && !d.isBinding() {
			rules[policy{d.kind.policy, d.policy}] = &ruleSet{newRules(m.ResourceRules), newRules(m.ExcludeResourceRules)}
		}
	}
	for i := range s.documents {
		d := &s.documents[i]
		if kind, ok := paramKinds[policy{d.kind.policy, d.policy}]; ok && d.isBinding() && s.lacksParam(kind, selections[i].Spec.ParamRef) {
			notes = append(notes, Note{d.item.Source, fmt.Sprintf("%s does nothing: no %s among the input is the parameter that it names, and "+
				"parameterNotFoundAction is Allow", d.name(), kind.Kind)})
		}
		m := cmp.Or(selections[i].Spec.MatchConstraints, selections[i].Spec.MatchResources)
		of := rules[policy{d.kind.policy, d.policy}]
		if m == nil || m.NamespaceSelector == nil || of == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(m.NamespaceSelector)
		if err != nil {
			continue
		}
		if left := unselected(selector, of, requests); len(left) > 0 {
			more := ""
			if n := len(left) - namedMax; n > 0 {
				left, more = left[:namedMax], fmt.Sprintf(" and %d more", n)
			}
			notes = append(notes, Note{d.item.Source, fmt.Sprintf("%s does not select the namespace %s%s: its namespaceSelector asks for labels, and "+
				"the Namespace is not among the input; review its manifest, too, or give it with --cluster-state-dir",
				d.name(), strings.Join(left, ", "), more)})
		}
	}
	return notes
}

// unselected returns the namespaces in which rules select requests and a selector does not, as they have no labels.
func unselected(selector labels.Selector, rules *ruleSet, requests Unlabeled) (namespaces []string) {
	found := make(map[string]bool)
	for attributes := range requests {
		known := labels.Set{corev1.LabelMetadataName: attributes.Namespace}
		if found[attributes.Namespace] || selector.Matches(known) {
			continue
		}
		found[attributes.Namespace] = rules.selects(&attributes)
	}
	maps.DeleteFunc(found, func(_ string, isFound bool) bool { return !isFound })
	return slices.Sorted(maps.Keys(found))
}

// A ruleSet has the rules of a policy.
type ruleSet struct{ rules, excludes []admission.Rule }

func newRules(all []admissionregistrationv1.NamedRuleWithOperations) (rules []admission.Rule) {
	for i := range all {
		if len(all[i].ResourceNames) == 0 {
			rules = append(rules, match.NewRule(&all[i].RuleWithOperations))
		}
	}
	return rules
}

// selects reports whether the rules for all names of objects select a request.
func (s *ruleSet) selects(a *admission.Attributes) bool {
	matches := func(r admission.Rule) bool { return r.Matches(a) }
	return slices.ContainsFunc(s.rules, matches) && !slices.ContainsFunc(s.excludes, matches)
}

// lacksParam reports whether a binding does nothing because its parameter is missing. One in the namespace of the object may be
// in any namespace.
func (s *Set) lacksParam(kind admission.ParamKind, ref *admissionregistrationv1.ParamRef) bool {
	if ref == nil || ref.ParameterNotFoundAction == nil || *ref.ParameterNotFoundAction != admissionregistrationv1.AllowAction {
		return false
	}
	selector := labels.Everything()
	if ref.Selector != nil {
		selector, _ = metav1.LabelSelectorAsSelector(ref.Selector)
	}
	at := slices.IndexFunc(s.params, func(p admission.ParamKind) bool { return p.APIVersion == kind.APIVersion && p.Kind == kind.Kind })
	return at >= 0 && selector != nil && !slices.ContainsFunc(s.params[at].Objects, func(o admission.ParamObject) bool {
		return (ref.Name == "" || o.Name == ref.Name) && (ref.Namespace == "" || o.Namespace == ref.Namespace) &&
			selector.Matches(labels.Set(o.Labels))
	})
}
