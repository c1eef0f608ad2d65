package policy

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/discovery"
)

// VersionError means that a review cannot be matched, because the rules want the object in
// another API version. Got is the version in the review. kube-apiserver converts the
// object; fastadmit cannot.
type VersionError struct{ Got codec.GroupVersionResource }

func (e *VersionError) Error() string {
	return e.Says("a version that the policy names; let the rules of the webhook name the versions that policies do")
}

// Says returns the message of the error. want describes the version that is wanted.
func (e *VersionError) Says(want string) string {
	return fmt.Sprintf("failed to convert object version: got %s, want %s", resourceName(e.Got), want)
}

// A Matcher decides whether a policy or a binding applies to a review. Several goroutines
// may use it at the same time.
type Matcher struct {
	selectors       *match.Matcher
	rules, excludes []rule // without rules, it matches every review
	exact           bool
}

// rule is a rule for objects of some names, or of all.
type rule struct {
	admission.Rule
	names []string
}

// NewMatcher compiles the valid MatchResources of a policy or a binding. Nil matches
// all reviews. The error describes invalid selectors; the Matcher is not nil then.
func NewMatcher(m *admissionregistrationv1.MatchResources) (*Matcher, error) {
	if m == nil {
		m = new(admissionregistrationv1.MatchResources)
	}
	selectors, err := match.New(&match.Criteria{NamespaceSelector: m.NamespaceSelector, ObjectSelector: m.ObjectSelector}, nil)
	return &Matcher{
		selectors: selectors,
		rules:     newRules(m.ResourceRules), excludes: newRules(m.ExcludeResourceRules),
		exact: m.MatchPolicy != nil && *m.MatchPolicy == admissionregistrationv1.Exact,
	}, err
}

func newRules(all []admissionregistrationv1.NamedRuleWithOperations) (rules []rule) {
	for i := range all {
		rules = append(rules, rule{match.NewRule(&all[i].RuleWithOperations), all[i].ResourceNames})
	}
	return rules
}

// Request is a review with the attributes that a Matcher compares. It is valid until the
// review is released.
type Request struct {
	*codec.Review
	sent     admission.Attributes // with the resource that the object was converted to
	original admission.Attributes // with the resource that the user asked for
}

// NewRequest reads the attributes of a review.
func NewRequest(review *codec.Review) Request {
	r := Request{Review: review, sent: admission.AttributesOf(review)}
	r.original = r.sent
	if asked := review.RequestResource(); asked != (codec.GroupVersionResource{}) {
		r.original.Resource = asked
	}
	return r
}

// Matches reports whether the rules and selectors select the review.
//
// kube-apiserver evaluates a policy on the API version of the object that the user sent.
// With matchPolicy Equivalent, it converts the object to a version in the rules of the
// policy. A webhook has only the version with which it was called. If the rules want
// another version, the error is a *VersionError. Other errors are those of
// match.Matcher.Matches about namespaces.
func (m *Matcher) Matches(ctx context.Context, r *Request, namespaces match.Namespaces) (bool, error) {
	for i := range m.excludes {
		if e := &m.excludes[i]; e.matches(r, &r.original) || !m.exact && e.matches(r, &r.sent) {
			return false, nil
		}
	}
	matched, otherVersion := m.matchesRules(r)
	if !matched && otherVersion == nil {
		return false, nil
	}
	if matched, err := m.selectors.Matches(ctx, r.Review, &r.sent, namespaces); err != nil || !matched {
		return false, err
	}
	return matched, otherVersion
}

// matchesAll reports whether the Matcher matches every review.
func (m *Matcher) matchesAll() bool {
	return len(m.rules) == 0 && len(m.excludes) == 0 && m.selectors.MatchesAll()
}

func (m *Matcher) matchesRules(r *Request) (bool, error) {
	if len(m.rules) == 0 {
		return true, nil
	}
	asks := false // whether a rule selects the version that the user sent
	for i := range m.rules {
		switch original, sent := m.rules[i].matches(r, &r.original), m.rules[i].matches(r, &r.sent); {
		case sent && (original || !m.exact):
			return true, nil
		case original:
			asks = true
		}
	}
	for i := range m.rules {
		asks = asks || !m.exact && m.rules[i].matchesVersionless(r)
	}
	if !asks {
		return false, nil
	}
	return false, &VersionError{r.sent.Resource}
}

func resourceName(r codec.GroupVersionResource) string {
	if r.Group == "" {
		return r.Version + " " + r.Resource
	}
	return r.Group + "/" + r.Version + " " + r.Resource
}

// A verdict is the result of a Matcher's rules for all requests with the same attributes.
type verdict int

const (
	unselected verdict = iota // no request matches
	selected                  // requests that the selectors select match
	undecided                 // the name of the object counts, or the object has another version than the rules want
)

// verdict returns the result of the rules for requests with the attributes of r.
func (m *Matcher) verdict(r *Request) verdict {
	named := false
	for i := range m.excludes {
		e := &m.excludes[i]
		switch excluded := e.Matches(&r.original) || !m.exact && e.Matches(&r.sent); {
		case excluded && len(e.names) == 0:
			return unselected
		case excluded:
			named = true
		}
	}
	unnamed := m
	if slices.ContainsFunc(m.rules, func(r rule) bool { return len(r.names) > 0 }) {
		named, unnamed = true, &Matcher{exact: m.exact}
		for i := range m.rules {
			unnamed.rules = append(unnamed.rules, rule{Rule: m.rules[i].Rule})
		}
	}
	switch matched, err := unnamed.matchesRules(r); {
	case err == nil && !matched:
		return unselected
	case err == nil && !named:
		return selected
	}
	return undecided
}

// names returns the names of objects to which the rules apply, nil for all names.
func (m *Matcher) names() (all []string) {
	for i := range m.rules {
		if len(m.rules[i].names) == 0 {
			return nil
		}
		all = append(all, m.rules[i].names...)
	}
	return all
}

// entry returns what the Index of a policy's bindings, or of policies, needs.
func (m *Matcher) entry() match.Entry { return match.Entry{Matcher: m.selectors, Names: m.names()} }

// Rules returns the rules of the Matcher. Matches is false for reviews that no rule
// selects. An empty list means all reviews.
func (m *Matcher) Rules() (all []admission.Rule) {
	for i := range m.rules {
		all = append(all, m.rules[i].Rule)
	}
	return all
}

// WithoutSelectors returns a copy of the Matcher that has the rules but no selectors.
func (m *Matcher) WithoutSelectors() *Matcher {
	own := *m
	own.selectors, _ = match.New(new(match.Criteria), nil) // which accepts no criteria
	return &own
}

// matches reports whether the rule selects requests with these attributes for the
// object of that name.
func (r *rule) matches(request *Request, a *admission.Attributes) bool {
	return r.Matches(a) && (len(r.names) == 0 || slices.Contains(r.names, request.Name()))
}

var anyVersion = []string{"*"}

// matchesVersionless reports whether the rule would match another version of the resource that an API server may serve:
// for kube-apiserver all versions of a resource that it serves are equivalent.
func (r *rule) matchesVersionless(request *Request) bool {
	versionless := *r
	versionless.Versions = anyVersion
	return versionless.matches(request, &request.sent) && slices.ContainsFunc(r.Versions, func(version string) bool {
		resource := request.sent.Resource
		return discovery.CanServe(schema.GroupVersionResource{Group: resource.Group, Version: version, Resource: resource.Resource})
	})
}
