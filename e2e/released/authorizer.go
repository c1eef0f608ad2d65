package released

import (
	"context"
	"errors"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// authorizer returns one that asks the API server of the settings.
func (c *command) authorizer() (authorizer.Authorizer, error) {
	if c.settings.Authorizer == "" {
		return authorizer.AuthorizerFunc(authorizerfactory.NewAlwaysAllowAuthorizer().Authorize), nil
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: c.settings.Authorizer, QPS: -1})
	if err != nil {
		return nil, err
	}
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		review := reviewOf(a)
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return authorizer.DecisionNoOpinion, "", err
		}
		if review.Status.EvaluationError != "" {
			err = errors.New(review.Status.EvaluationError)
		}
		switch {
		case review.Status.Allowed:
			return authorizer.DecisionAllow, review.Status.Reason, err
		case review.Status.Denied:
			return authorizer.DecisionDeny, review.Status.Reason, err
		}
		return authorizer.DecisionNoOpinion, review.Status.Reason, err
	}), nil
}

// reviewOf returns the question for a user's permission.
func reviewOf(a authorizer.Attributes) *authorizationv1.SubjectAccessReview {
	u := a.GetUser()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: make(map[string]authorizationv1.ExtraValue),
	}}
	for key, values := range u.GetExtra() {
		review.Spec.Extra[key] = values
	}
	if !a.IsResourceRequest() {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.GetPath(), Verb: a.GetVerb()}
		return review
	}
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(), Resource: a.GetResource(),
		Subresource: a.GetSubresource(), Name: a.GetName(),
		FieldSelector: fieldsOf(a), LabelSelector: labelsOf(a),
	}
	return review
}

// fieldsOf returns the field selector; nil for none, or for one that cannot be parsed.
func fieldsOf(a authorizer.Attributes) *authorizationv1.FieldSelectorAttributes {
	parsed, err := a.GetFieldSelector()
	if err != nil || len(parsed) == 0 {
		return nil
	}
	terms := make([]string, len(parsed))
	for i, r := range parsed {
		terms[i] = r.Field + string(r.Operator) + fields.EscapeValue(r.Value)
	}
	return &authorizationv1.FieldSelectorAttributes{RawSelector: strings.Join(terms, ",")}
}

// labelsOf does the same for the label selector.
func labelsOf(a authorizer.Attributes) *authorizationv1.LabelSelectorAttributes {
	parsed, err := a.GetLabelSelector()
	if err != nil || len(parsed) == 0 {
		return nil
	}
	return &authorizationv1.LabelSelectorAttributes{RawSelector: labels.NewSelector().Add(parsed...).String()}
}
