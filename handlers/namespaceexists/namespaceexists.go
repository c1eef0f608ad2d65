// Package namespaceexists is the admission plugin NamespaceExists.
//
// It refuses what is to be written into or deleted from a namespace that does
// not exist. Without it, and without NamespaceLifecycle, objects get into
// namespaces that nobody sees and nothing deletes.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/namespace/exists v1.36.3.
package namespaceexists

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() handlers.Plugin {
	return handlers.Plugin{
		Name:    "NamespaceExists",
		Summary: "refuses requests in namespaces that do not exist",
		Rules: []handlers.Rule{{
			Operations: []codec.Operation{codec.Create, codec.Update, codec.Delete},
			Groups:     []string{"*"}, Versions: []string{"*"}, Resources: []string{"*/*"},
			Scope: admissionregistrationv1.NamespacedScope, // namespaces themselves are not
		}},
		Validates: true,
		Needs:     []cluster.Need{cluster.Namespaces.Watched()},
		New: func(setup handlers.Setup) (handlers.Handler, error) {
			p := plugin{cluster.Namespaces.In(setup.Cluster)}
			return handlers.Handler{Validate: p.validate}, nil
		},
	}
}

type plugin struct {
	namespaces *cluster.Objects[*corev1.Namespace]
}

func (p plugin) validate(ctx context.Context, review *codec.Review) handlers.Result {
	_, err := p.namespaces.Get(ctx, "", review.Namespace())
	switch {
	case err == nil:
		return handlers.Allowed()
	case apierrors.IsNotFound(err):
		return handlers.Denied(err)
	case cluster.IsInvalidName(err):
		return handlers.Denied(apierrors.NewInternalError(err))
	}
	return handlers.Errored(err)
}
