// Package alwaysdeny is the admission plugin AlwaysDeny.
//
// It denies every request. Enable it to freeze the objects that a webhook configuration
// selects, for example during a migration, or to test what clients do when they are denied.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/deny.
package alwaysdeny

import (
	"context"
	"errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "AlwaysDeny",
		Summary:   "denies every request",
		Rules:     []admission.Rule{admission.Any()},
		Mutates:   true,
		Validates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: deny, Validate: deny}, nil
		},
	}
}

func deny(_ context.Context, review *codec.Review) admission.Result {
	return admission.Denied(admission.Forbidden(review, errors.New("admission control is denying all modifications")))
}
