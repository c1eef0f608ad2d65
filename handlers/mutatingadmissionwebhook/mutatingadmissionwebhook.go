// Package mutatingadmissionwebhook is the admission plugin MutatingAdmissionWebhook.
//
// It calls other mutating webhooks, one after the other. Enable it to configure a single webhook
// in kube-apiserver, and to bound and measure all others in one place.
//
// Behaviour: k8s.io/apiserver pkg/admission/plugin/webhook/mutating; see package
// handlers/internal/webhook.
package mutatingadmissionwebhook

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/webhook"
)

const name = "MutatingAdmissionWebhook"

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        name,
		Summary:     "calls other mutating webhooks",
		Rules:       []admission.Rule{admission.Any()},
		Mutates:     true,
		Calls:       true,
		SideEffects: admissionregistrationv1.SideEffectClassNoneOnDryRun, // of the webhooks
		Needs:       []cluster.Need{cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create")},
		NeedsOf:     webhook.MutatingKind.NeedsOf,
		OnByDefault: true,
		New:         newHandler,
	}
}

type plugin struct{ *webhook.Source }

func newHandler(setup admission.Setup) (admission.Handler, error) {
	source, err := webhook.NewSource(name, webhook.MutatingKind, setup)
	if err != nil {
		return admission.Handler{}, err
	}
	handler := source.Handler()
	p := plugin{source}
	handler.Admit, handler.Explain = p.admit, p.explain
	return handler, nil
}

func (p plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	return p.explain(ctx, review, nil)
}

// explain does what admit does, and explains it unless x is nil.
func (p plugin) explain(ctx context.Context, review *codec.Review, x *admission.Explanation) admission.Result {
	begun, result := p.Begin(ctx, review)
	if begun == nil {
		return result
	}
	defer begun.End()
	defer begun.Explain(x)()
	d := dispatch{Dispatch: begun, called: make(map[int32]bool), again: make(map[int32]bool)}
	if ended := d.admit(admission.IsReinvocation(ctx)); ended != nil {
		return *ended
	}
	return admission.Allowed()
}
