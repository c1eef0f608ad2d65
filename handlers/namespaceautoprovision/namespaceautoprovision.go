// Package namespaceautoprovision is the admission plugin NamespaceAutoProvision.
//
// It creates the namespace of a new object if it does not exist. Who deploys
// need not make namespaces then, and every typing error makes one: it is for
// clusters in which whoever may create something in any namespace is trusted
// with that.
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

// Plugin returns the plugin, for the table of package plugins.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "NamespaceAutoProvision",
		Summary: "creates the namespace of a new object if it does not exist",
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Create},
			Groups:     []string{"*"}, Versions: []string{"*"}, Resources: []string{"*/*"},
			Scope: admissionregistrationv1.NamespacedScope, // namespaces themselves are not
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
	if err == nil || apierrors.IsAlreadyExists(err) { // the cache is behind
		return admission.Allowed()
	}
	if refusal, ok := errors.AsType[*apierrors.StatusError](err); ok && isFinal(refusal) {
		return admission.Denied(admission.Forbidden(review, refusal))
	}
	return admission.Errored(err)
}

// create creates a namespace, once for all who want to at the same time. Each
// waits as long as its own context allows; the request goes on without the one
// that began it, for as long as requests of the API server may take.
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

// isFinal reports whether the API server does not want the namespace: its name is
// none, or who decides about namespaces says no. Anything else may be better the
// next time.
func isFinal(refusal *apierrors.StatusError) bool {
	code := refusal.ErrStatus.Code
	return code >= 400 && code < 500 && !apierrors.IsUnauthorized(refusal) && !apierrors.IsTooManyRequests(refusal)
}
