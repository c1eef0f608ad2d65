// Package validatingadmissionwebhook is the admission plugin
// ValidatingAdmissionWebhook.
//
// It calls other validating webhooks, all at the same time. Enable it to configure a single
// webhook in kube-apiserver, and to bound and measure all others in one place.
//
// Behaviour: k8s.io/apiserver pkg/admission/plugin/webhook/validating; see package
// handlers/internal/webhook.
package validatingadmissionwebhook

import (
	"context"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/webhook"
	"github.com/fastadmit/fastadmit/internal/turns"
)

const name = "ValidatingAdmissionWebhook"

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        name,
		Summary:     "calls other validating webhooks",
		Rules:       []admission.Rule{admission.Any()},
		Validates:   true,
		Calls:       true,
		SideEffects: admissionregistrationv1.SideEffectClassNoneOnDryRun, // of the webhooks
		Needs:       []cluster.Need{cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create")},
		NeedsOf:     webhook.ValidatingKind.NeedsOf,
		OnByDefault: true,
		New:         newHandler,
	}
}

type plugin struct{ *webhook.Source }

func newHandler(setup admission.Setup) (admission.Handler, error) {
	source, err := webhook.NewSource(name, webhook.ValidatingKind, setup)
	if err != nil {
		return admission.Handler{}, err
	}
	handler := source.Handler()
	p := plugin{source}
	handler.Validate, handler.Explain = p.validate, p.explain
	return handler, nil
}

func (p plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	return p.explain(ctx, review, nil)
}

// explain does what validate does, and explains it unless x is nil.
func (p plugin) explain(ctx context.Context, review *codec.Review, x *admission.Explanation) admission.Result {
	d, result := p.Begin(ctx, review)
	if d == nil {
		return result
	}
	defer d.End()
	defer d.Explain(x)()
	calls, ended := collect(d)
	if ended != nil {
		return *ended
	}
	if len(calls) == 0 {
		return admission.Unchecked(admission.NotSelected)
	}
	turns.Leave(ctx) // webhooks may take long to answer
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(c.Do)
	}
	all.Wait()
	var first *admission.Result
	for i, c := range calls {
		defer c.Return()
		d.Take(c.Webhook, c.Answer)
		c.Decided(c.Explained, false, c.Err)
		if c.Err == nil {
			continue
		}
		if result := d.Conclude(c.Webhook, c.Err, fmt.Sprintf("validating.round_0_index_%d", i)); first == nil {
			first = result
		}
	}
	if first != nil {
		return *first
	}
	return admission.Allowed()
}

// collect prepares the calls of all matching webhooks, before the first one is called. A result
// ends the review.
func collect(d *webhook.Dispatch) (calls []*webhook.Call, ended *admission.Result) {
	for candidate := range d.Candidates() {
		w := candidate.Of
		matches, ended, err := d.Matches(candidate)
		explained := d.Explained(w, 1, matches, "", ended)
		if ended != nil {
			return nil, ended
		}
		if err != nil {
			c := webhook.NoCall(w, err)
			c.Explained = explained
			calls = append(calls, c)
			continue
		}
		if !matches {
			continue
		}
		c, ok := d.Prepare(w, false)
		if !ok {
			return nil, new(admission.Allowed()) // the chain replaces it by a denial or a failure
		}
		c.Explained = explained
		calls = append(calls, c)
	}
	return calls, nil
}
