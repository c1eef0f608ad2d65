package podsecuritypolicy

import (
	"context"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
)

// An explainer describes what each policy says of a pod. Its methods do nothing if it is nil.
type explainer struct{ into *admission.Explanation }

// explain does what admit or validate does, and explains it.
func (p *plugin) explain(ctx context.Context, review *codec.Review, x *admission.Explanation) admission.Result {
	if x.Phase == admission.Mutate.String() {
		return p.admit(&explainer{x})(ctx, review)
	}
	return p.validate(&explainer{x})(ctx, review)
}

// says adds what a policy says of the pod.
func (e *explainer) says(policy *PodSecurityPolicy, outcome admission.Outcome, messages ...string) {
	if e != nil {
		e.into.AddPolicy(admission.PolicyExplanation{
			Policy: policy.Name, Asked: true, Why: "PodSecurityPolicies are compared with each pod",
			Outcome: outcome.String(), Message: strings.Join(messages, "; "),
		})
	}
}

// changesToo adds a policy that allows the pod with changes, as the first one does. It makes no text without an explanation.
func (e *explainer) changesToo(policy, first *PodSecurityPolicy) {
	if e != nil {
		e.says(policy, admission.OutcomeAllowed, "with changes, as "+first.Name+" does, which is the first one")
	}
}

// skips adds the policies that are not compared with the pod, because one allows it unchanged.
func (e *explainer) skips(rest []*PodSecurityPolicy, because *PodSecurityPolicy) {
	if e == nil {
		return
	}
	for _, policy := range rest {
		e.into.AddPolicy(admission.PolicyExplanation{Policy: policy.Name, Why: "PodSecurityPolicy " + because.Name + " allows the pod unchanged"})
	}
}
