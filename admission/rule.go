package admission

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// Rule selects reviews as a rule of a webhook configuration does
// (k8s.io/api/admissionregistration/v1 RuleWithOperations). In all lists, "*" matches
// everything. In Resources, "*" matches all resources but no subresources, "*/*" matches
// both, "pods/*" matches pods and their subresources, and "*/scale" matches the
// subresource scale of all resources.
type Rule struct {
	Operations []codec.Operation
	Groups     []string
	Versions   []string
	Resources  []string
	// Scope is Cluster, Namespaced, or "*", the default. Namespaces themselves are
	// cluster-scoped.
	Scope admissionregistrationv1.ScopeType
}

// AnyOperation matches every operation.
const AnyOperation codec.Operation = "*"

// Attributes are the fields of a review that rules match.
type Attributes struct {
	Operation   codec.Operation
	Resource    codec.GroupVersionResource
	SubResource string
	Namespace   string // empty for cluster-scoped resources; for a namespace, its own name
}

// AttributesOf returns the attributes of a review.
func AttributesOf(review *codec.Review) Attributes {
	return Attributes{
		Operation:   review.Operation(),
		Resource:    review.Resource(),
		SubResource: review.SubResource(),
		Namespace:   review.Namespace(),
	}
}

// Matches reports whether the rule selects reviews with these attributes
// (k8s.io/apiserver pkg/admission/plugin/webhook/predicates/rules).
func (r *Rule) Matches(a *Attributes) bool {
	return has(r.Operations, a.Operation) && has(r.Groups, a.Resource.Group) && has(r.Versions, a.Resource.Version) &&
		r.matchesResource(a) && r.matchesScope(a)
}

func (r *Rule) matchesScope(a *Attributes) bool {
	if r.Scope == "" || r.Scope == admissionregistrationv1.AllScopes {
		return true
	}
	clusterScoped := a.Namespace == "" || a.Resource == codec.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	return clusterScoped == (r.Scope == admissionregistrationv1.ClusterScope)
}

// has reports whether s is in the list, or "*" is.
func has[T ~string](list []T, s T) bool {
	for _, item := range list {
		if item == s || item == "*" {
			return true
		}
	}
	return false
}

func (r *Rule) matchesResource(a *Attributes) bool {
	for _, pattern := range r.Resources {
		if pattern == a.Resource.Resource && a.SubResource == "" {
			return true // the usual case
		}
		resource, sub, _ := strings.Cut(pattern, "/")
		if (resource == "*" || resource == a.Resource.Resource) && (sub == "*" || sub == a.SubResource) {
			return true
		}
	}
	return false
}

// WithOperations returns the rule in the type of webhook configurations. It shares
// its lists with r.
func (r *Rule) WithOperations() admissionregistrationv1.RuleWithOperations {
	with := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
		APIGroups: r.Groups, APIVersions: r.Versions, Resources: r.Resources, Scope: new(admissionregistrationv1.AllScopes),
	}}
	if r.Scope != "" {
		with.Scope = &r.Scope
	}
	for _, operation := range r.Operations {
		with.Operations = append(with.Operations, admissionregistrationv1.OperationType(operation))
	}
	return with
}

// Any returns the rule that selects every review.
func Any() Rule {
	return Rule{
		Operations: []codec.Operation{AnyOperation},
		Groups:     []string{"*"},
		Versions:   []string{"*"},
		Resources:  []string{"*/*"},
	}
}

// NewRule returns the rule for operations on a resource, such as "pods" or
// "pods/exec". The group of Pods and other core resources is "".
func NewRule(group, version, resource string, operations ...codec.Operation) Rule {
	return Rule{
		Operations: operations,
		Groups:     []string{group},
		Versions:   []string{version},
		Resources:  []string{resource},
	}
}

// CreateUpdate returns the rule for the creation and update of a resource of
// the core group, without subresources.
func CreateUpdate(resource string) Rule {
	return NewRule("", "v1", resource, codec.Create, codec.Update)
}
