// Package match selects reviews by the rules, the namespaceSelector and the objectSelector
// in the configuration of a plugin. They have the same meaning as in a webhook
// configuration (k8s.io/apiserver pkg/admission/plugin/webhook/predicates).
package match

import (
	"context"
	"errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Criteria select reviews. The fields are those of a webhook, with the same
// meaning (k8s.io/api/admissionregistration/v1 ValidatingWebhook). The zero
// Criteria select all reviews.
type Criteria struct {
	// Rules select requests by operation and resource; one of them must match.
	// Without rules, the plugin gets all requests that it handles. An empty list
	// is an error, because a webhook with an empty list is never called.
	Rules []admissionregistrationv1.RuleWithOperations `json:"rules,omitempty"`
	// NamespaceSelector selects requests by the labels of their namespace, or of
	// the Namespace that they create or update. Requests for other cluster-scoped
	// objects always match. Without a selector, all requests match.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ObjectSelector selects requests by the labels of object and oldObject; one
	// of them must match. Without a selector, all requests match.
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
}

// Namespaces looks up the labels of the cluster's namespaces.
type Namespaces interface {
	// Labels returns the labels of a namespace, nil if it has none. The caller must
	// not change them. A namespace that is not cached is fetched before ctx ends. If
	// it does not exist, errors.IsNotFound of k8s.io/apimachinery/pkg/api/errors is
	// true for the error; if the name is invalid, cluster.IsInvalidName is. The name
	// is never empty. It must not be retained; use strings.Clone to keep it.
	Labels(ctx context.Context, name string) (labels.Set, error)
}

// Matcher is the compiled form of Criteria. Several goroutines may use it at the
// same time.
type Matcher struct {
	rules             []admission.Rule
	namespaceSelector labels.Selector
	objectSelector    labels.Selector
	narrow            bool // see ForExceptions
}

// New compiles the criteria. The Matcher shares their lists. New returns an error for
// everything that kube-apiserver rejects in a new webhook configuration. The error joins
// all errors, with paths that start with path, the path of the criteria in the file.
func New(c *Criteria, path *field.Path) (*Matcher, error) {
	if err := validate(c, path).ToAggregate(); err != nil {
		return nil, err
	}
	m := new(Matcher)
	for i := range c.Rules {
		m.rules = append(m.rules, NewRule(&c.Rules[i]))
	}
	var err, objectErr error
	m.namespaceSelector, err = newSelector(c.NamespaceSelector)
	m.objectSelector, objectErr = newSelector(c.ObjectSelector)
	return m, errors.Join(err, objectErr)
}

// newSelector compiles a selector. If s is nil, it matches everything, as with
// kube-apiserver's defaults (k8s.io/kubernetes
// pkg/apis/admissionregistration/v1/defaults.go).
func newSelector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}

// ForExceptions returns a copy of m that selects the reviews that an exception is for. Where selectors
// take in more than they name, so that more is checked, the copy does not: its objectSelector counts only for
// the object as it will be stored, or as it was before a DELETE, and its namespaceSelector selects no
// objects outside of namespaces.
func (m *Matcher) ForExceptions() *Matcher {
	own := *m
	own.narrow = true
	return &own
}

// NeedsNamespaces reports whether Matches may look up the labels of a namespace. If not,
// its argument namespaces may be nil.
func (m *Matcher) NeedsNamespaces() bool { return !m.namespaceSelector.Empty() }

// Matches reports whether the criteria select the review. a are the attributes of the
// review. The objectSelector sees the edits of review.Object, as a webhook sees the changes
// of earlier webhooks.
//
// Matches returns an error if the labels for the namespaceSelector cannot be read, unless
// the rules or the objectSelector do not match. The error has the metav1.Status with which
// kube-apiserver denies the request: code 404 if the namespace does not exist, otherwise
// code 500. It is a *admission.RefusalError if the review causes it, and not if the lookup
// of the namespace failed. If the text of the review is invalid, labels in it are missing;
// Review.Err returns the error.
func (m *Matcher) Matches(ctx context.Context, review *codec.Review, a *admission.Attributes, namespaces Namespaces) (bool, error) {
	// The API server looks up the namespace first, but a failure counts only if the
	// rest matches. So the order makes no difference, and the last lookup may be saved.
	if !m.matchesRules(a) || !m.matchesObject(review) {
		return false, nil
	}
	return m.matchesNamespace(ctx, review, a, namespaces)
}

// MatchesAll reports whether the criteria select every review.
func (m *Matcher) MatchesAll() bool {
	return m.rules == nil && m.objectSelector.Empty() && m.namespaceSelector.Empty()
}

// matchesObject does what predicates/object MatchObjectSelector does.
func (m *Matcher) matchesObject(review *codec.Review) bool {
	if m.objectSelector.Empty() {
		return true
	}
	if m.narrow {
		object := &review.Object
		if review.Operation() == codec.Delete {
			object = &review.OldObject
		}
		matched, _ := matchesLabels(m.objectSelector, object)
		return matched
	}
	for _, object := range [...]*codec.Object{&review.Object, &review.OldObject} {
		if matched, _ := matchesLabels(m.objectSelector, object); matched {
			return true
		}
	}
	return false
}

// matchesNamespace does what predicates/namespace MatchNamespaceSelector does.
func (m *Matcher) matchesNamespace(ctx context.Context, review *codec.Review, a *admission.Attributes,
	namespaces Namespaces) (bool, error) {
	if m.namespaceSelector.Empty() {
		return true, nil
	}
	if a.Resource.Resource != "namespaces" && review.Namespace() == "" {
		return !m.narrow, nil
	}
	matched, err := m.matchesNamespaceLabels(ctx, review, a, namespaces)
	switch {
	case err == nil:
		return matched, nil
	case apierrors.IsNotFound(err):
		return false, &admission.RefusalError{Err: err}
	case errors.Is(err, errNoMetadata), errors.Is(err, errNoName), cluster.IsInvalidName(err):
		return false, &admission.RefusalError{Err: apierrors.NewInternalError(err)}
	}
	return false, apierrors.NewInternalError(err)
}

// The texts are those of k8s.io/apimachinery pkg/api/meta and client-go, which users see
// in-tree.
var (
	errNoMetadata = errors.New("object does not implement the Object interfaces")
	errNoName     = errors.New("resource name may not be empty")
)

// matchesNamespaceLabels matches the labels that predicates/namespace GetNamespaceLabels
// returns. Like that function, it treats the resource namespaces of any group as
// Namespaces.
func (m *Matcher) matchesNamespaceLabels(ctx context.Context, review *codec.Review, a *admission.Attributes,
	namespaces Namespaces) (bool, error) {
	if a.Resource.Resource == "namespaces" && a.SubResource == "" &&
		(a.Operation == codec.Create || a.Operation == codec.Update) {
		// The request creates the Namespace or may change its labels, so the cache does not count.
		matched, ok := matchesLabels(m.namespaceSelector, &review.Object)
		if !ok {
			return false, errNoMetadata
		}
		return matched, nil
	}
	name := review.Namespace()
	if name == "" {
		return false, errNoName
	}
	ls, err := namespaces.Labels(ctx, name)
	return err == nil && m.namespaceSelector.Matches(ls), err
}
