package policy

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"
	"sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/internal/turns"
)

// Authorizer implements cel.Cluster.
func (d *Dispatch) Authorizer() (authorizerVal, requestResource ref.Val) {
	if d.authorizer == nil {
		a := &accessReviewer{Dispatch: d}
		d.authorizer, d.requestResource = library.NewAuthorizerVal(a, a), library.NewResourceAuthorizerVal(a, a, resource{d})
	}
	return d.authorizer, d.requestResource
}

// An accessReviewer answers who may do what with SubjectAccessReviews. It is also the user
// of the review, read when something is asked about that.
type accessReviewer struct {
	*Dispatch
	user *authenticationv1.UserInfo
	err  error // why user cannot be read
}

func (a *accessReviewer) info() *authenticationv1.UserInfo {
	if a.user != nil {
		return a.user
	}
	a.user = new(authenticationv1.UserInfo)
	if v := a.UserInfo(); !v.FitsDecoded() {
		a.err = a.Err()
	} else if v.IsSet() {
		a.err = json.UnmarshalCaseSensitivePreserveInts([]byte(v.JSON()), a.user)
	}
	return a.user
}

// GetName implements user.Info.
func (a *accessReviewer) GetName() string { return a.info().Username }

// GetUID implements user.Info.
func (a *accessReviewer) GetUID() string { return a.info().UID }

// GetGroups implements user.Info.
func (a *accessReviewer) GetGroups() []string { return a.info().Groups }

// GetExtra implements user.Info.
func (a *accessReviewer) GetExtra() map[string][]string {
	extra := make(map[string][]string)
	for key, values := range a.info().Extra {
		extra[key] = values
	}
	return extra
}

// Authorize implements authorizer.Authorizer.
func (a *accessReviewer) Authorize(_ context.Context, question authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.info(); a.err != nil {
		return authorizer.DecisionNoOpinion, "", fmt.Errorf("cannot decode userInfo: %w", a.err)
	}
	turns.Leave(a.Ctx) // the API server may take long to answer
	status, err := a.Access.Review(a.Ctx, specOf(question))
	if err != nil {
		return authorizer.DecisionNoOpinion, "", err
	}
	if status.Allowed {
		return authorizer.DecisionAllow, status.Reason, nil
	}
	return authorizer.DecisionNoOpinion, status.Reason, nil // expressions do not tell it from a denial
}

// specOf returns the SubjectAccessReview that asks a question.
func specOf(question authorizer.Attributes) *authorizationv1.SubjectAccessReviewSpec {
	who := question.GetUser()
	spec := &authorizationv1.SubjectAccessReviewSpec{User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for key, values := range who.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = make(map[string]authorizationv1.ExtraValue)
		}
		spec.Extra[key] = values
	}
	if !question.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: question.GetPath(), Verb: question.GetVerb()}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: question.GetNamespace(), Verb: question.GetVerb(),
		Group: question.GetAPIGroup(), Version: question.GetAPIVersion(),
		Resource: question.GetResource(), Subresource: question.GetSubresource(), Name: question.GetName(),
	}
	addSelectors(spec.ResourceAttributes, question)
	return spec
}

// addSelectors narrows the question to the objects that selectors select. As in-tree, invalid
// selectors narrow nothing.
func addSelectors(a *authorizationv1.ResourceAttributes, question authorizer.Attributes) {
	ofFields, _ := question.GetFieldSelector()
	ofLabels, _ := question.GetLabelSelector()
	var texts []string
	for _, r := range ofFields {
		texts = append(texts, r.Field+string(r.Operator)+fields.EscapeValue(r.Value))
	}
	if len(texts) > 0 {
		a.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: strings.Join(texts, ",")}
	}
	if len(ofLabels) > 0 {
		a.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: labels.NewSelector().Add(ofLabels...).String()}
	}
}

// resource is the resource of the review.
type resource struct{ *Dispatch }

// GetName implements library.Resource.
func (r resource) GetName() string { return r.Name() }

// GetNamespace implements library.Resource.
func (r resource) GetNamespace() string { return r.Namespace() }

// GetSubresource implements library.Resource.
func (r resource) GetSubresource() string { return r.SubResource() }

// GetResource implements library.Resource.
func (r resource) GetResource() schema.GroupVersionResource {
	asked := r.RequestResource()
	return schema.GroupVersionResource{Group: asked.Group, Version: asked.Version, Resource: asked.Resource}
}

var _ user.Info = (*accessReviewer)(nil)
