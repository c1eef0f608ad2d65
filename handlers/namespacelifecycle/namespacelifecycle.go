// Package namespacelifecycle is the admission plugin NamespaceLifecycle.
//
// It refuses what is to be written into a namespace that does not exist, or
// created in one that is being deleted, and the deletion of the namespaces that
// a cluster cannot be without. kube-apiserver runs it by default: a namespace
// that objects keep being created in is never gone.
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

// missingWait is how long upstream waits for a namespace that its cache lacks,
// before it asks the API server: it may have been created just now.
const missingWait = 50 * time.Millisecond

// immortal are the namespaces that nobody deletes.
var immortal = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic}

var errImmortal = errors.New("this namespace may not be deleted")

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "NamespaceLifecycle",
		Summary: "refuses new objects in namespaces that are missing or being deleted, and the deletion of essential namespaces",
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Create, codec.Update},
			Groups:     []string{"*"}, Versions: []string{"*"}, Resources: []string{"*/*"},
			Scope: admissionregistrationv1.NamespacedScope, // namespaces themselves are not
		}, {
			Operations: []codec.Operation{codec.Delete},
			Groups:     []string{""}, Versions: []string{"v1"}, Resources: []string{"namespaces"},
		}},
		Mutates: true, // nothing, but it takes part in the phase in which upstream denies
		// It remembers which namespaces were deleted; a dry run deletes none.
		SideEffects: admissionregistrationv1.SideEffectClassNoneOnDryRun,
		Needs:       []cluster.Need{cluster.Namespaces.Watched()},
		OnByDefault: true,
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{namespaces: cluster.Namespaces.In(setup.Cluster), deleted: newRecent()}
			return admission.Handler{Admit: p.admit}, nil
		},
	}
}

type plugin struct {
	namespaces *cluster.Objects[*corev1.Namespace]
	deleted    *recent // namespaces of which the cache may not know that yet
}

func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	if review.Operation() == codec.Delete { // of a namespace, by the rules
		return p.admitDeletion(review)
	}
	if isAccessReview(review) {
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

// isAccessReview reports whether somebody asks what may be done in a namespace:
// an answer that depends on whether it exists would tell.
func isAccessReview(review *codec.Review) bool {
	resource := review.Resource()
	return resource.Resource == "localsubjectaccessreviews" && resource.Group == "authorization.k8s.io"
}

// find returns the namespace of the review: as the cache has it, or as the API
// server does, if the cache lacks it or may be behind.
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

// wait waits for missingWait, but leaves half of the time to an answer for the
// API server.
func wait(ctx context.Context) {
	wait := missingWait
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)/2)
	}
	time.Sleep(wait)
}

// terminating returns the error for what is to be created in a namespace that is
// being deleted. Controllers look for its cause.
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
