// Package controllerruntime runs webhooks of sigs.k8s.io/controller-runtime as
// plugins of fastadmit: an admission.Handler, an admission.Defaulter and an
// admission.Validator, unchanged.
//
// fastadmit matches the plugin's rules before it decodes anything. The plugin has
// what all plugins have: deadlines, failure policies, enforcement, metrics and
// minimal patches. The webhook gives the same answers as in controller-runtime's
// own server.
package controllerruntime

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// Webhooks are the webhooks that make a plugin: one of them, or both.
//
// admission.WithDefaulter and admission.WithValidator make one of a Defaulter
// and a Validator. For an admission.Handler, write
// &admission.Webhook{Handler: h}.
type Webhooks struct {
	// Mutating is called in the mutating phase.
	Mutating *admission.Webhook
	// Validating is called in the validating phase.
	Validating *admission.Webhook
}

// Plugin returns the plugin that runs the webhooks. The argument has the
// plugin's Name, Summary and Rules, and SideEffects if it has some; Plugin fills
// in the rest.
//
// The webhooks log to controller-runtime's logger (sigs.k8s.io/controller-runtime
// pkg/log SetLogger). A webhook with a WithContextFunc cannot be enabled:
// there is no *http.Request to give to it.
func Plugin(plugin fastadmit.Plugin, webhooks Webhooks) fastadmit.Plugin {
	plugin.Mutates, plugin.Validates = webhooks.Mutating != nil, webhooks.Validating != nil
	plugin.New = func(setup fastadmit.Setup) (fastadmit.Handler, error) {
		if len(setup.Config) > 0 {
			return fastadmit.Handler{}, errors.New("got a configuration file, but webhooks of controller-runtime take none")
		}
		var h fastadmit.Handler
		if webhooks == (Webhooks{}) {
			return h, errors.New("got no webhook, want a mutating or a validating one")
		}
		if webhooks.Mutating != nil {
			h.Admit = func(ctx context.Context, review *codec.Review) fastadmit.Result {
				return call(ctx, webhooks.Mutating, review, fastadmit.Mutate)
			}
		}
		if webhooks.Validating != nil {
			h.Validate = func(ctx context.Context, review *codec.Review) fastadmit.Result {
				return call(ctx, webhooks.Validating, review, fastadmit.Validate)
			}
		}
		return h, errors.Join(check("mutating", webhooks.Mutating), check("validating", webhooks.Validating))
	}
	return plugin
}

// check returns an error if a webhook cannot be a plugin. Nil is allowed.
func check(name string, webhook *admission.Webhook) error {
	switch {
	case webhook == nil:
		return nil
	case webhook.Handler == nil:
		return fmt.Errorf("%s webhook: got no Handler, want one", name)
	case webhook.WithContextFunc != nil:
		return fmt.Errorf("%s webhook: got a WithContextFunc, which needs an *http.Request; fastadmit has none to give to it", name)
	}
	return nil
}
