// Package namespaceautoprovision is the admission plugin NamespaceAutoProvision.
//
// It creates the namespace of a new object if it does not exist. Users need not create
// namespaces, but every typing error creates one. Enable it only if all users who may create
// objects in arbitrary namespaces are trusted.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/namespace/autoprovision.
package namespaceautoprovision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/singleflight"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "NamespaceAutoProvision",
		Summary: "creates the namespace of a new object if it does not exist",
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Create},
			Groups:     []string{"*"}, Versions: []string{"*"}, Resources: []string{"*/*"},
			Scope: admissionregistrationv1.NamespacedScope, // excludes the namespaces themselves
		}},
		Mutates:     true,
		SideEffects: admissionregistrationv1.SideEffectClassNoneOnDryRun,
		Needs:       []cluster.Need{cluster.Namespaces.Watched(), cluster.Namespaces.Called("create")},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := &plugin{namespaces: cluster.Namespaces.In(setup.Cluster)}
			return admission.Handler{Admit: p.admit}, nil
		},
	}
}

type plugin struct {
	namespaces *cluster.Objects[*corev1.Namespace]
	flights    singleflight.Group // creations under way, by name
}

func (p *plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	if review.DryRun() {
		return admission.Allowed()
	}
	if _, ok := p.namespaces.Cached("", review.Namespace()); ok {
		return admission.Allowed()
	}
	err := p.create(ctx, strings.Clone(review.Namespace()))
	if err == nil || apierrors.IsAlreadyExists(err) { // the cache is outdated
		return admission.Allowed()
	}
	if refusal, ok := errors.AsType[*apierrors.StatusError](err); ok && isFinal(refusal) {
		return admission.Denied(admission.Forbidden(review, refusal))
	}
	return admission.Errored(err)
}

// create creates a namespace. Concurrent callers share one request. Each caller waits as
// long as its own context allows; the request continues after that, for at most the timeout
// of requests to the API server.
func (p *plugin) create(ctx context.Context, name string) error {
	creating := cluster.Detach(ctx)
	flight := p.flights.DoChan(name, func() (any, error) {
		return p.namespaces.Create(creating, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	})
	select {
	case <-ctx.Done():
		return fmt.Errorf("namespace %q was not created in time: %w", name, ctx.Err())
	case answer := <-flight:
		return answer.Err
	}
}

// isFinal reports whether a later try would be rejected, too: the name is invalid, or
// authorization or admission denied the namespace. After other errors, the caller may try
// again.
func isFinal(refusal *apierrors.StatusError) bool {
	code := refusal.ErrStatus.Code
	return code >= 400 && code < 500 && !apierrors.IsUnauthorized(refusal) && !apierrors.IsTooManyRequests(refusal)
}
