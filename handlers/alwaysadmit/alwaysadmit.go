// Package alwaysadmit is the admission plugin AlwaysAdmit.
//
// It allows every request. Enable it to use a list of plugins of a kube-apiserver unchanged,
// or to check that the API server reaches this webhook before other plugins decide anything.
//
// Behaviour: k8s.io/kubernetes plugin/pkg/admission/admit.
package alwaysadmit

import (
	"context"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:      "AlwaysAdmit",
		Summary:   "allows every request",
		Rules:     []admission.Rule{admission.Any()},
		Mutates:   true,
		Validates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: allow, Validate: allow}, nil
		},
	}
}

func allow(context.Context, *codec.Review) admission.Result { return admission.Allowed() }
