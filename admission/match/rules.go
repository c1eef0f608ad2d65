package match

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// NewRule converts a rule of a webhook configuration. The result shares its lists. The
// Scope of the result is empty if r has none.
func NewRule(r *admissionregistrationv1.RuleWithOperations) admission.Rule {
	ready := admission.Rule{Groups: r.APIGroups, Versions: r.APIVersions, Resources: r.Resources}
	for _, operation := range r.Operations {
		ready.Operations = append(ready.Operations, codec.Operation(operation))
	}
	if r.Scope != nil {
		ready.Scope = *r.Scope
	}
	return ready
}

// matchesRules does what predicates/rules does for the resource that the webhook matched.
// With matchPolicy Equivalent, its version may be another one than the user's; the object
// has been converted to it.
func (m *Matcher) matchesRules(a *admission.Attributes) bool {
	for i := range m.rules {
		if m.rules[i].Matches(a) {
			return true
		}
	}
	return m.rules == nil
}
