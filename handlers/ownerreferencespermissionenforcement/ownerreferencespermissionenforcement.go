// Package ownerreferencespermissionenforcement is the admission plugin
// OwnerReferencesPermissionEnforcement.
//
// The garbage collector deletes an object when its owners are gone, and an owner that is
// deleted in the foreground waits for the objects that block its deletion. A user who may
// change metadata.ownerReferences can therefore have objects deleted, or block their
// deletion. This plugin demands the permission to do that directly.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/gc.
package ownerreferencespermissionenforcement

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/accessreview"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	everything := admission.Any()
	everything.Operations = []codec.Operation{codec.Create, codec.Update}
	return admission.Plugin{
		Name: "OwnerReferencesPermissionEnforcement",
		Summary: "checks that users who set the owners of an object may delete it, and that users who block an owner's " +
			"deletion may set its finalizers",
		Rules:     []admission.Rule{everything},
		Validates: true,
		Needs:     []cluster.Need{cluster.SubjectAccessReviews.Called("create"), cluster.Discovered()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{access: cluster.AccessIn(setup.Cluster), mapper: newMapper(cluster.DiscoveryIn(setup.Cluster))}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	access *cluster.Access
	mapper *mapper
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	after, before := review.Object.Get("metadata", "ownerReferences"), review.OldObject.Get("metadata", "ownerReferences")
	if after.Len() == 0 && before.Len() == 0 || after.JSON() == before.JSON() || isPodStatus(review) {
		return admission.Allowed()
	}
	references, was := referencesOf(after), referencesOf(before)
	if len(references) == len(was) && (len(was) == 0 || reflect.DeepEqual(references, was)) {
		return admission.Allowed()
	}
	a, err := newPermissions(ctx, p.access, review)
	if err != nil {
		return admission.Errored(err)
	}
	// The creator of an object does not need the permission to delete it.
	if review.Operation() != codec.Create {
		resource := review.Resource()
		if refused := a.demand("cannot set an ownerRef on a resource you can't delete", authorizationv1.ResourceAttributes{
			Verb: "delete", Group: resource.Group, Version: resource.Version, Resource: resource.Resource,
			Subresource: review.SubResource(), Namespace: review.Namespace(), Name: review.Name(),
		}); refused != nil {
			return *refused
		}
	}
	blocking := newlyBlocking(references, was)
	if len(blocking) == 0 {
		return admission.Allowed()
	}
	// Users with all permissions are allowed even if discovery fails.
	status, err := a.ask(authorizationv1.ResourceAttributes{
		Verb: "update", Group: "*", Version: "*", Resource: "*", Subresource: "finalizers", Name: "*",
	})
	if err != nil {
		return admission.Errored(err)
	}
	if mayDo(status) {
		return admission.Allowed()
	}
	blocking = distinct(blocking)
	// Objects have one owner, some have two. Kubernetes has no limit, so this denies
	// requests with very many owners that Kubernetes would allow.
	if most, ok := p.access.MayAsk(len(blocking)); !ok {
		return admission.Denied(admission.Forbidden(review, fmt.Errorf("cannot set blockOwnerDeletion for %d owners in one request: "+
			"want at most %d, because each needs a check whether you can set its finalizers", len(blocking), most)))
	}
	for i := range blocking {
		if refused := p.demandFinalizers(a, &blocking[i]); refused != nil {
			return *refused
		}
	}
	return admission.Allowed()
}

// demandFinalizers denies the request unless the user may set the finalizers of the owner.
func (p *plugin) demandFinalizers(a *permissions, owner *metav1.OwnerReference) *admission.Result {
	mappings, err := p.mapper.mappings(a.ctx, owner)
	if fault, failed := errors.AsType[*undiscoveredError](err); failed {
		return new(admission.Errored(fault))
	}
	if err != nil {
		return new(admission.Denied(admission.Forbidden(a.review, fmt.Errorf(
			"cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %s",
			owner.APIVersion, owner.Kind, err.Error()))))
	}
	for _, mapping := range mappings {
		attributes := authorizationv1.ResourceAttributes{
			Verb: "update", Group: mapping.Resource.Group, Version: mapping.Resource.Version, Resource: mapping.Resource.Resource,
			Subresource: "finalizers", Name: owner.Name,
		}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			attributes.Namespace = a.review.Namespace() // an owner is in the namespace of what it owns
		}
		if refused := a.demand("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on",
			attributes); refused != nil {
			return refused
		}
	}
	return nil
}

// isPodStatus reports whether the review updates the status of a Pod, which cannot change
// owners. Upstream ignores it, too.
func isPodStatus(review *codec.Review) bool {
	resource := review.Resource()
	return resource.Group == "" && resource.Resource == "pods" && review.SubResource() == "status"
}

// Permissions answer what the user of a review may do.
type permissions struct {
	ctx    context.Context
	access *cluster.Access
	review *codec.Review
	user   *authorizationv1.SubjectAccessReviewSpec
}

func newPermissions(ctx context.Context, access *cluster.Access, review *codec.Review) (*permissions, error) {
	spec, err := accessreview.Spec(review, nil)
	if err != nil {
		return nil, err
	}
	return &permissions{ctx, access, review, spec}, nil
}

func (a *permissions) ask(attributes authorizationv1.ResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error) {
	spec := *a.user
	spec.ResourceAttributes = &attributes
	return a.access.Review(a.ctx, &spec)
}

func mayDo(status authorizationv1.SubjectAccessReviewStatus) bool {
	return status.Allowed && !status.Denied
}

// demand denies the request unless the user has the permission; it returns nil if so.
func (a *permissions) demand(otherwise string, attributes authorizationv1.ResourceAttributes) *admission.Result {
	status, err := a.ask(attributes)
	if err != nil {
		return new(admission.Errored(err))
	}
	if mayDo(status) {
		return nil
	}
	fault := "<nil>" // as upstream formats it
	if status.EvaluationError != "" {
		fault = status.EvaluationError
	}
	return new(admission.Denied(admission.Forbidden(a.review, fmt.Errorf("%s: %s, %s", otherwise, status.Reason, fault))))
}

// referencesOf reads owner references.
func referencesOf(list codec.Value) []metav1.OwnerReference {
	flag := func(value codec.Value) *bool {
		if value.Kind() != codec.KindBool {
			return nil
		}
		return new(value.Bool())
	}
	references := make([]metav1.OwnerReference, 0, list.Len())
	for _, value := range list.Elements() {
		references = append(references, metav1.OwnerReference{
			APIVersion:         value.Get("apiVersion").String(),
			Kind:               value.Get("kind").String(),
			Name:               value.Get("name").String(),
			UID:                types.UID(value.Get("uid").String()),
			Controller:         flag(value.Get("controller")),
			BlockOwnerDeletion: flag(value.Get("blockOwnerDeletion")),
		})
	}
	return references
}

// newlyBlocking returns the references that block their owner's deletion and did not before.
func newlyBlocking(references, was []metav1.OwnerReference) []metav1.OwnerReference {
	blocks := func(r *metav1.OwnerReference) bool { return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion }
	blocked := make(map[types.UID]bool)
	for i := range was {
		blocked[was[i].UID] = blocks(&was[i]) // if there are several, the last one counts
	}
	var newly []metav1.OwnerReference
	for i := range references {
		if blocks(&references[i]) && !blocked[references[i].UID] {
			newly = append(newly, references[i])
		}
	}
	return newly
}

// distinct returns the first reference to each owner: the permission does not depend on the
// UID, so others would get the same answer.
func distinct(references []metav1.OwnerReference) []metav1.OwnerReference {
	type owner struct{ apiVersion, kind, name string }
	seen := make(map[owner]bool, len(references))
	return slices.DeleteFunc(references, func(r metav1.OwnerReference) bool {
		o := owner{r.APIVersion, r.Kind, r.Name}
		known := seen[o]
		seen[o] = true
		return known
	})
}
