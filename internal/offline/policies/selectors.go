package policies

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// Requests are those of a review. They are not for several goroutines.
type Requests struct {
	// unlabeled has the requests, by what rules select by: each namespace is "*". The values are the namespaces that nobody gave: the
	// review sees them without labels, and in a cluster, they may have some.
	unlabeled map[admission.Attributes]map[string]bool
	anonymous map[admission.Attributes]bool // those whose user nobody gave
	// last is what namespaces returned last, and key the requests for which it did. Many policies select the same ones.
	last []string
	key  string
}

// Add adds a request. isUnlabeled is true if nobody gave its namespace, and isAnonymous if nobody gave its user.
func (r *Requests) Add(a admission.Attributes, isUnlabeled, isAnonymous bool) {
	namespace := a.Namespace
	if namespace != "" {
		a.Namespace = "*"
	}
	if r.unlabeled == nil {
		r.unlabeled, r.anonymous = make(map[admission.Attributes]map[string]bool), make(map[admission.Attributes]bool)
	}
	if r.unlabeled[a] == nil {
		r.unlabeled[a] = make(map[string]bool)
	}
	if isUnlabeled {
		r.unlabeled[a][namespace] = true
	}
	if isAnonymous {
		r.anonymous[a] = true
	}
	r.key = ""
}

// areSelected reports whether rules select a request, or, with ofAnonymous, one whose user nobody gave.
func (r *Requests) areSelected(rules *ruleSet, ofAnonymous bool) bool {
	for attributes := range r.unlabeled {
		if (!ofAnonymous || r.anonymous[attributes]) && rules.selects(&attributes) {
			return true
		}
	}
	return false
}

// namespaces returns the namespaces that nobody gave in which rules select requests, in order. The caller must not change them.
func (r *Requests) namespaces(rules *ruleSet) []string {
	var selected []admission.Attributes
	var names []string
	for attributes := range r.unlabeled {
		if rules.selects(&attributes) {
			selected, names = append(selected, attributes), append(names, fmt.Sprint(attributes))
		}
	}
	slices.Sort(names)
	if key := strings.Join(names, "\n"); r.key != key {
		all := make(map[string]bool)
		for _, attributes := range selected {
			maps.Copy(all, r.unlabeled[attributes])
		}
		r.key, r.last = key, slices.Sorted(maps.Keys(all))
	}
	if len(selected) == 0 {
		return nil
	}
	return r.last
}

const namedMax = 3 // how many namespaces a note names

// selection is what a policy and its binding have in common.
type selection struct {
	Spec struct {
		MatchConstraints *admissionregistrationv1.MatchResources `json:"matchConstraints"` // of a policy
		MatchResources   *admissionregistrationv1.MatchResources `json:"matchResources"`   // of a binding
		ParamRef         *admissionregistrationv1.ParamRef       `json:"paramRef"`
	} `json:"spec"`
}

// GivenNotes returns notes on policies that are not evaluated, or decide otherwise, because of what nobody gave: the labels of a
// namespace whose requests the rules select, a parameter without which the binding does nothing, the user, or an authorizer.
func (s *Set) GivenNotes(requests *Requests, hasAuthorizer bool) (notes []Note) {
	if !s.applied {
		return nil
	}
	rules, paramKinds := make(map[policyName]*ruleSet), s.paramKinds()
	selections := make([]selection, len(s.documents))
	for i := range s.documents {
		d := &s.documents[i]
		if decode(d.text, &selections[i]) != nil { // the plugin reports it
			continue
		}
		if m := selections[i].Spec.MatchConstraints; m != nil && !d.isBinding() {
			rules[d.policyName()] = &ruleSet{newRules(m.ResourceRules), newRules(m.ExcludeResourceRules)}
		}
	}
	said := make(map[Note]bool)
	note := func(d *document, format string, args ...any) {
		n := Note{d.item.Source, d.given() + " " + fmt.Sprintf(format, args...)}
		if !said[n] { // of the variants of a translation
			said[n], notes = true, append(notes, n)
		}
	}
	for i := range s.documents {
		d := &s.documents[i]
		if kind, ok := paramKinds[d.policyName()]; ok && d.isBinding() && s.lacksParam(kind, selections[i].Spec.ParamRef) {
			note(d, "does nothing: no %s among the input is the parameter that it names, and parameterNotFoundAction is Allow", kind.Kind)
		}
		m := cmp.Or(selections[i].Spec.MatchConstraints, selections[i].Spec.MatchResources)
		of := rules[d.policyName()]
		if of != nil && !d.isBinding() && requests.areSelected(of, false) {
			if readsNamespace.Match(d.text) {
				if left := requests.namespaces(of); len(left) > 0 {
					note(d, "reads namespaceObject, and the Namespace %s is not among the input, so it has no labels and no annotations; "+
						"review its manifest, too, or give it with --cluster-state-dir", listed(left))
				}
			}
			if readsUser.Match(d.text) && requests.areSelected(of, true) {
				note(d, "reads request.userInfo, and no user is given, so it has no username and no groups; give a user with --as")
			}
			if !hasAuthorizer && asksAuthorizer.Match(d.text) {
				note(d, "asks the authorizer, and without --kubeconfig there is none, so it allows nothing")
			}
			for _, read := range d.reads() {
				if !s.hasRead(read) {
					note(d, "reads %s, and none is among the input; review their manifests, too, or give them with --cluster-state-dir", read.Resource)
				}
			}
		}
		if m == nil || m.NamespaceSelector == nil || of == nil {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(m.NamespaceSelector)
		if err != nil {
			continue
		}
		if left := unselected(selector, requests.namespaces(of)); len(left) > 0 {
			note(d, "does not select the namespace %s: its namespaceSelector asks for labels, and the Namespace is not among the input; "+
				"review its manifest, too, or give it with --cluster-state-dir", listed(left))
		}
	}
	return notes
}

var (
	// readsNamespace matches a policy that reads more of a Namespace than its name.
	readsNamespace = regexp.MustCompile(`\bnamespaceObject\b(?:[^.]|\.[^m]|\.metadata[^.]|\.metadata\.[^n])`)
	// readsUser matches one that reads the user, and does not say what to do without: request.userInfo.?username.orValue("") does.
	readsUser      = regexp.MustCompile(`\brequest\.\??userInfo\b(?:[^.]|\.[^?])`)
	asksAuthorizer = regexp.MustCompile(`\bauthorizer\.`)
)

// ReadsUser reports whether a match condition reads the user, and does not say what to do without one.
func ReadsUser(conditions []admissionregistrationv1.MatchCondition) bool {
	return slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool { return readsUser.MatchString(c.Expression) })
}

// RegistrationNotes returns notes on conditions of the registration in a file that decide otherwise because of who is not given.
func RegistrationNotes(file string, conditions []admissionregistrationv1.MatchCondition, hasUser, hasAuthorizer bool) (notes []Note) {
	note := func(text string) {
		notes = append(notes, Note{manifest.Source{File: file}, "registration.matchConditions " + text})
	}
	if !hasUser && ReadsUser(conditions) {
		note("read request.userInfo, and no user is given, so those that fail exclude nothing; give a user with --as")
	}
	if !hasAuthorizer && slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool {
		return asksAuthorizer.MatchString(c.Expression)
	}) {
		note("ask the authorizer, and without --kubeconfig there is none, so it allows nothing")
	}
	return notes
}

// hasRead reports whether somebody gave an object of a resource that a translation reads.
func (s *Set) hasRead(read translate.Read) bool {
	return slices.ContainsFunc(s.params, func(p admission.ParamKind) bool {
		return p.APIVersion == read.APIVersion && p.Resource == read.Resource && len(p.Objects) > 0
	})
}

// given returns the kind and name of a document as somebody wrote it, for messages.
func (d *document) given() string {
	if of := d.origin.object; of != nil {
		return fmt.Sprintf("%s %q", of.Kind, of.Metadata.Name)
	}
	return d.name()
}

// listed returns the first of many names.
func listed(names []string) string {
	if n := len(names) - namedMax; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedMax], ", "), n)
	}
	return strings.Join(names, ", ")
}

// Unselected returns a note if a namespaceSelector in the settings of a plugin, whose rules are given, does not select a namespace
// because nobody gave it. The selector is nil for none.
func Unselected(file, plugin string, selector *metav1.LabelSelector, rules []admission.Rule, requests *Requests) (notes []Note) {
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	if selector == nil || err != nil {
		return nil
	}
	if left := unselected(compiled, requests.namespaces(&ruleSet{rules: rules})); len(left) > 0 {
		notes = []Note{{manifest.Source{File: file}, fmt.Sprintf("%s: a namespaceSelector does not select the namespace %s: it asks for labels, and "+
			"the Namespace is not among the input; review its manifest, too, or give it with --cluster-state-dir", plugin, listed(left))}}
	}
	return notes
}

// Unannotated returns a note if a plugin reads annotations of Namespaces that nobody gave.
func Unannotated(plugin string, rules []admission.Rule, requests *Requests) (notes []Note) {
	if left := requests.namespaces(&ruleSet{rules: rules}); len(left) > 0 {
		notes = []Note{{Text: fmt.Sprintf("%s reads annotations of the Namespace %s, which is not among the input; review its manifest, too, or "+
			"give it with --cluster-state-dir", plugin, listed(left))}}
	}
	return notes
}

// unselected returns the namespaces that a selector does not select because they have no labels.
func unselected(selector labels.Selector, namespaces []string) (left []string) {
	requirements, _ := selector.Requirements()
	named := slices.DeleteFunc(requirements, func(r labels.Requirement) bool { return r.Key() != corev1.LabelMetadataName })
	if len(named) == 0 { // it says the same of all
		if selector.Matches(labels.Set{}) {
			return nil
		}
		return namespaces
	}
	for _, name := range namespaces {
		known := labels.Set{corev1.LabelMetadataName: name}
		if isOut := func(r labels.Requirement) bool { return !r.Matches(known) }; slices.ContainsFunc(named, isOut) {
			continue // whatever labels it has
		}
		if !selector.Matches(known) {
			left = append(left, name)
		}
	}
	return left
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
