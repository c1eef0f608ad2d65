// Package alwaysadmit is the admission plugin AlwaysAdmit.
//
// It allows every request. Nobody needs it for what it does; one wants it so
// that a list of plugins taken over from a kube-apiserver works unchanged, and
// to see that the API server reaches this webhook before a plugin decides
// anything.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/admit v1.36.3.
package alwaysadmit

import (
	"context"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
)

// Plugin returns the plugin, for the table of package plugins.
func Plugin() handlers.Plugin {
	return handlers.Plugin{
		Name:      "AlwaysAdmit",
		Summary:   "allows every request",
		Rules:     []handlers.Rule{handlers.Any()},
		Mutates:   true,
		Validates: true,
		New: func(handlers.Setup) (handlers.Handler, error) {
			return handlers.Handler{Admit: allow, Validate: allow}, nil
		},
	}
}

func allow(context.Context, *codec.Review) handlers.Result { return handlers.Allowed() }
