// Package mutatingadmissionpolicy is the admission plugin MutatingAdmissionPolicy.
//
// It evaluates MutatingAdmissionPolicies: changes of objects in CEL, with bindings that
// select the requests. Use it to set defaults of your own without writing a webhook.
//
// Behaviour: k8s.io/apiserver pkg/admission/plugin/policy/mutating and mutating/patch, and
// pkg/admission/plugin/policy/manifest for policies in files. These packages are not used,
// because they double the size of the binary and decode whole objects.
package mutatingadmissionpolicy

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:    "MutatingAdmissionPolicy",
		Summary: "evaluates MutatingAdmissionPolicies, changes of objects in CEL",
		Rules: []admission.Rule{{ // deletions have no object to change
			Operations: []codec.Operation{codec.Create, codec.Update, codec.Connect},
			Groups:     []string{"*"}, Versions: []string{"*"}, Resources: []string{"*/*"},
		}},
		Mutates:     true,
		Needs:       []cluster.Need{cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create"), cluster.DiscoveredSchemas()},
		NeedsOf:     policy.MutatingKind.NeedsOf,
		OnByDefault: true,
		New:         newHandler,
	}
}

type source = policy.Source[*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding, *mutator]

type plugin struct {
	*source
	schemas *schemas.Schemas
}

func newHandler(setup admission.Setup) (admission.Handler, error) {
	source, err := policy.NewSource(policy.MutatingKind, setup, func(p *admissionregistrationv1.MutatingAdmissionPolicy, kyverno bool) (*mutator, error) {
		return newMutator(p, kyverno, &setup)
	})
	if err != nil {
		return admission.Handler{}, err
	}
	handler := source.Handler()
	p := plugin{source, schemas.In(setup.Cluster)}
	handler.Admit, handler.Explain = p.admit, p.explain
	return handler, nil
}

func (p plugin) admit(ctx context.Context, review *codec.Review) admission.Result {
	return p.explain(ctx, review, nil)
}

// explain does what admit does, and explains it unless x is nil.
func (p plugin) explain(ctx context.Context, review *codec.Review, x *admission.Explanation) admission.Result {
	d := dispatches.Get().(*dispatch)
	defer d.release()
	policies, result := p.Begin(ctx, &d.Dispatch, review)
	if policies == nil {
		return result
	}
	if x != nil {
		defer d.Explain(x)()
	}
	d.schemas = p.schemas
	return d.admit(policies)
}
