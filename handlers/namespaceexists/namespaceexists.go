// Package namespaceexists is the admission plugin NamespaceExists.
//
// It denies writes and deletions in a namespace that does not exist. Without it, and without
// NamespaceLifecycle, objects could be created in namespaces that do not exist, where
// nothing shows or deletes them.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/namespace/exists.
package namespaceexists

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "NamespaceExists",
		Summary: "refuses requests in namespaces that do not exist",
		Rules: []admission.Rule{{
			Operations: []codec.Operation{codec.Create, codec.Update, codec.Delete},
			Groups:     []string{"*"}, Versions: []string{"*"}, Resources: []string{"*/*"},
			Scope: admissionregistrationv1.NamespacedScope, // excludes the namespaces themselves
		}},
		Validates: true,
		Needs:     []cluster.Need{cluster.Namespaces.Watched()},
		New: func(setup admission.Setup) (admission.Handler, error) {
			p := plugin{cluster.Namespaces.In(setup.Cluster)}
			return admission.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	namespaces *cluster.Objects[*corev1.Namespace]
}

func (p plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	_, err := p.namespaces.Get(ctx, "", review.Namespace())
	switch {
	case err == nil:
		return admission.Allowed()
	case apierrors.IsNotFound(err):
		return admission.Denied(err)
	case cluster.IsInvalidName(err):
		return admission.Denied(apierrors.NewInternalError(err))
	}
	return admission.Errored(err)
}
