// Package validatingadmissionpolicy is the admission plugin
// ValidatingAdmissionPolicy.
//
// It evaluates ValidatingAdmissionPolicies: rules for objects in CEL, with bindings that
// select the requests and say whether a violation denies, warns or is audited. Use it to
// enforce rules of your own without writing a webhook.
//
// Behaviour: k8s.io/apiserver pkg/admission/plugin/policy/validating, generic and matching,
// and pkg/admission/plugin/policy/manifest for policies in files. These packages are not
// used, because they double the size of the binary and decode whole objects.
package validatingadmissionpolicy

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy"
)

// Plugin returns the plugin, for the table of package handlers.
func Plugin() admission.Plugin {
	return admission.Plugin{
		Name:        "ValidatingAdmissionPolicy",
		Summary:     "evaluates ValidatingAdmissionPolicies, rules for objects in CEL",
		Rules:       []admission.Rule{admission.Any()},
		Validates:   true,
		Needs:       []cluster.Need{cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create")},
		NeedsOf:     policy.ValidatingKind.NeedsOf,
		OnByDefault: true,
		New:         newHandler,
	}
}

type source = policy.Source[*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding, *validator]

type plugin struct {
	*source
	failuresMax int // see dispatch
}

func newHandler(setup admission.Setup) (admission.Handler, error) {
	source, err := policy.NewSource(policy.ValidatingKind, setup, func(p *admissionregistrationv1.ValidatingAdmissionPolicy, kyverno bool) (*validator, error) {
		return newValidator(p, kyverno, &setup)
	})
	if err != nil {
		return admission.Handler{}, err
	}
	handler := source.Handler()
	p := plugin{source, failuresMax}
	if !setup.Version.AtLeast(1, 37) {
		p.failuresMax = 1
	}
	handler.Validate, handler.Explain = p.validate, p.explain
	return handler, nil
}

func (p plugin) validate(ctx context.Context, review *codec.Review) admission.Result {
	return p.explain(ctx, review, nil)
}

// explain does what validate does, and explains it unless x is nil.
func (p plugin) explain(ctx context.Context, review *codec.Review, x *admission.Explanation) admission.Result {
	d := dispatches.Get().(*dispatch)
	defer d.release()
	d.failuresMax = p.failuresMax
	policies, result := p.Begin(ctx, &d.Dispatch, review)
	if policies == nil {
		return result
	}
	if x != nil {
		defer d.Explain(x)()
	}
	found := policies.Find(&d.Dispatch)
	if len(found) == 0 {
		return admission.Unchecked(admission.NotSelected)
	}
	for i := range found {
		if result := d.dispatch(&found[i]); result != nil {
			return *result
		}
	}
	return d.result()
}
