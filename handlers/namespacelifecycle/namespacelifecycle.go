// Package namespacelifecycle is the admission plugin NamespaceLifecycle.
//
// It denies requests in a namespace that does not exist, creations in one that is being
// deleted, and the deletion of system namespaces. kube-apiserver enables it by default: if
// objects could be created in a namespace that is being deleted, its deletion might never
// end.
//
// Behaviour: k8s.io/apiserver pkg/admission/plugin/namespace/lifecycle.
package namespacelifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// missingWait is how long upstream waits for a namespace that is not in its cache before it
// asks the API server: the namespace may be new.
const missingWait = 50 * time.Millisecond

// immortal are the namespaces that cannot be deleted.
var immortal = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

var errImmortal = errors.New("this namespace may not be deleted")

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "NamespaceLifecycle",
		Summary: "refuses new objects in namespaces that are missing or being deleted, and the deletion of essential namespaces",
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Create, codec.Update},
			Groups:     []string{"*"}, Versions: []string{"*"}, Resources: []string{"*/*"},
			Scope: admissionregistrationv1.NamespacedScope, // excludes the namespaces themselves
		}, {
			Operations: []codec.Operation{codec.Delete},
			Groups:     []string{""}, Versions: []string{"v1"}, Resources: []string{"namespaces"},
		}},
		Mutates: true, // it changes nothing, but upstream denies in this phase
		// The plugin remembers deleted namespaces; a dry run deletes none.
		SideEffects: admissionregistrationv1.SideEffectClassNoneOnDryRun,
		Needs:       []cluster.Need{cluster.Namespaces.Watched()},
		OnByDefault: true,
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{namespaces: cluster.Namespaces.In(setup.Cluster), deleted: newRecent(), version: setup.Version}
			return admission.Handler{Admit: p.admit}, nil
		},
	}
}

type plugin struct {
	namespaces *cluster.Objects[*corev1.Namespace]
	deleted    *recent // namespaces that may still be in the cache
	version    admission.Version
}

func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	if review.Operation() == codec.Delete { // the rules select only deletions of namespaces
		return p.admitDeletion(review)
	}
	if isAccessReview(review) || review.Operation() == codec.Update && p.version.AtLeast(1, 37) {
		return admission.Allowed()
	}
	namespace, err := p.find(ctx, review)
	switch {
	case err == nil:
	case apierrors.IsNotFound(err):
		return admission.Denied(err)
	case cluster.IsInvalidName(err):
		return admission.Denied(apierrors.NewInternalError(err))
	default:
		return admission.Errored(err)
	}
	if review.Operation() == codec.Create && namespace.Status.Phase == corev1.NamespaceTerminating {
		return admission.Denied(terminating(review))
	}
	return admission.Allowed()
}

func (p *plugin) admitDeletion(review *codec.Review) admission.Result {
	name := review.Name()
	if slices.Contains(immortal, name) {
		return admission.Denied(apierrors.NewForbidden(cluster.Namespaces.Resource(), name, errImmortal))
	}
	if !review.DryRun() {
		p.deleted.add(name)
	}
	return admission.Allowed()
}

// isAccessReview reports whether the request is an access review in a namespace. Its result
// must not reveal whether the namespace exists.
func isAccessReview(review *codec.Review) bool {
	resource := review.Resource()
	return resource.Resource == "localsubjectaccessreviews" && resource.Group == "authorization.k8s.io"
}

// find returns the namespace of the review from the cache. If it is missing there, or may be
// outdated, it asks the API server.
func (p *plugin) find(ctx context.Context, review *codec.Review) (*corev1.Namespace, error) {
	name := review.Namespace()
	namespace, ok := p.namespaces.Cached("", name)
	if !ok && review.Operation() == codec.Create {
		wait(ctx)
		namespace, ok = p.namespaces.Cached("", name)
	}
	if ok && (namespace.Status.Phase != corev1.NamespaceActive || !p.deleted.has(name)) {
		return namespace, nil
	}
	return p.namespaces.GetLive(ctx, "", name)
}

// wait waits for missingWait, but at most half of the remaining time, so that the API server
// can still be asked.
func wait(ctx context.Context) {
	wait := missingWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	time.Sleep(wait)
}

// terminating returns the error for a creation in a namespace that is being deleted.
// Controllers look for its cause.
func terminating(review *codec.Review) error {
	err := admission.Forbidden(review,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", review.Namespace()))
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{
			Type:    corev1.NamespaceTerminatingCause,
			Message: fmt.Sprintf("namespace %s is being terminated", review.Namespace()),
			Field:   "metadata.namespace",
		})
	}
	return err
}
