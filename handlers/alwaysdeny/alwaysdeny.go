// Package alwaysdeny is the admission plugin AlwaysDeny.
//
// It denies every request. One wants it to freeze what a webhook
// configuration selects, during a migration for example, and to test what
// clients do when they are denied.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/deny v1.36.3.
package alwaysdeny

import (
	"context"
	"errors"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() handlers.Plugin {
	return handlers.Plugin{
		Name:      "AlwaysDeny",
		Summary:   "denies every request",
		Rules:     []handlers.Rule{handlers.Any()},
		Mutates:   true,
		Validates: true,
		New: func(handlers.Setup) (handlers.Handler, error) {
			return handlers.Handler{Admit: deny, Validate: deny}, nil
		},
	}
}

func deny(_ context.Context, review *codec.Review) handlers.Result {
	return handlers.Denied(handlers.Forbidden(review, errors.New("admission control is denying all modifications")))
}
