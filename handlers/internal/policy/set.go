package policy

import (
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
)

// A Set is the policies of one kind with their bindings, each sorted by name. E is
// what their expressions were compiled to. A Set is not changed: whoever has other
// documents makes another one, and swaps the two between reviews.
type Set[E any] []*Policy[E]

// A Policy is compiled, and has its bindings.
type Policy[E any] struct {
	Name string
	// Ignores says that what cannot be evaluated is ignored, as failurePolicy does.
	Ignores   bool
	Evaluator E

	matcher   *Matcher
	paramKind *admissionregistrationv1.ParamKind
	bindings  []*Binding
	err       error // why the policy cannot be evaluated on what it matches
	metrics   *policyMetrics

	compileErr error // what does not compile, which fails when it is evaluated
}

// A Binding says for which requests and with which parameters a policy is evaluated.
type Binding struct {
	Name string
	// Actions are the validationActions, which only ValidatingAdmissionPolicies have.
	Actions []admissionregistrationv1.ValidationAction

	policy   string
	matcher  *Matcher
	paramRef *admissionregistrationv1.ParamRef
	err      error  // why nobody can tell what it matches
	revision string // of a custom resource
}

// NewSet compiles documents. The error joins what is wrong with them, and the Set
// has all policies nevertheless: expressions that do not compile fail when they are
// evaluated, as in kube-apiserver.
func NewSet[P, B metav1.Object, E any](documents *Documents[P, B], compile func(P) (E, error)) (Set[E], error) {
	var errs []error
	var bindings []*Binding
	for _, document := range documents.Bindings {
		b, err := newBinding(document)
		if err != nil {
			errs = append(errs, documents.From(document, fmt.Errorf("%s %q: %w", kindOf(document), b.Name, err)))
		}
		bindings = append(bindings, b)
	}
	var set Set[E]
	for _, document := range documents.Policies {
		p, err := newPolicy[E](document)
		var compileErr error
		p.Evaluator, compileErr = compile(document)
		if err := errors.Join(err, compileErr); err != nil {
			errs = append(errs, documents.From(document, fmt.Errorf("%s %q: %w", kindOf(document), p.Name, err)))
		}
		for _, b := range bindings {
			if b.policy == p.Name {
				p.bindings = append(p.bindings, b)
			}
		}
		set = append(set, p)
	}
	return set, errors.Join(errs...)
}

// kindOf returns the kind of a document.
func kindOf(document metav1.Object) string {
	switch document.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		return validatingKind
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		return validatingKind + bindingSuffix
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		return mutatingKind
	}
	return mutatingKind + bindingSuffix
}

func newPolicy[E any](document metav1.Object) (*Policy[E], error) {
	p := &Policy[E]{Name: document.GetName()}
	var constraints *admissionregistrationv1.MatchResources
	var failurePolicy *admissionregistrationv1.FailurePolicyType
	switch document := document.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		constraints, failurePolicy, p.paramKind = document.Spec.MatchConstraints, document.Spec.FailurePolicy, document.Spec.ParamKind
	case *admissionregistrationv1.MutatingAdmissionPolicy:
		constraints, failurePolicy, p.paramKind = document.Spec.MatchConstraints, document.Spec.FailurePolicy, document.Spec.ParamKind
	}
	p.Ignores = failurePolicy != nil && *failurePolicy == admissionregistrationv1.Ignore
	var err error
	p.matcher, err = NewMatcher(constraints)
	return p, err
}

func newBinding(document metav1.Object) (*Binding, error) {
	b := &Binding{Name: document.GetName()}
	var resources *admissionregistrationv1.MatchResources
	switch document := document.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		spec := &document.Spec
		b.policy, b.Actions, b.paramRef, resources = spec.PolicyName, spec.ValidationActions, spec.ParamRef, spec.MatchResources
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		spec := &document.Spec
		b.policy, b.paramRef, resources = spec.PolicyName, spec.ParamRef, spec.MatchResources
	}
	var err error
	b.matcher, err = NewMatcher(resources)
	return b, err
}

// Handles is what a plugin does with the policies that are for a review.
type Handles[E any] interface {
	// Evaluate evaluates a policy for a binding that matches, with each of some
	// parameters, of which there may be none; a nil one is the variable params that is
	// null. A result ends the review.
	Evaluate(p *Policy[E], b *Binding, params []*Param) *handlers.Result
	// Misconfigured is told that nobody can tell whether a policy is for the review,
	// or with which parameters. b is nil if that is not due to a binding. Policies
	// that ignore errors are not reported.
	Misconfigured(p *Policy[E], b *Binding, err error)
}

// Dispatch hands a policy to h, for each of its bindings that match the review. A
// result ends the review.
func (p *Policy[E]) Dispatch(d *Dispatch, h Handles[E]) *handlers.Result {
	misconfigured := func(b *Binding, what string, err error) {
		p.countMisconfigured(b)
		if !p.Ignores {
			h.Misconfigured(p, b, fmt.Errorf("failed to configure %s: %w", what, err))
		}
	}
	if len(p.bindings) == 0 {
		return nil
	}
	matches, err := p.matcher.Matches(d.Ctx, &d.Request, d)
	if err != nil {
		misconfigured(nil, "policy", err)
		return nil
	}
	if !matches {
		return nil
	}
	if p.err != nil {
		misconfigured(nil, "policy", p.err)
		return nil
	}
	for _, b := range p.bindings {
		params, matches, err := b.collect(d, p.paramKind)
		if err != nil {
			misconfigured(b, "binding", err)
			continue
		}
		if !matches {
			continue
		}
		if result := h.Evaluate(p, b, params); result != nil {
			return result
		}
	}
	return nil
}

// collect reports whether the binding is for the review, and with which parameters.
func (b *Binding) collect(d *Dispatch, kind *admissionregistrationv1.ParamKind) (params []*Param, matches bool, err error) {
	if b.err != nil {
		return nil, false, b.err
	}
	if matches, err = b.matcher.Matches(d.Ctx, &d.Request, d); err != nil || !matches {
		return nil, false, err
	}
	params, err = collectParams(d.Ctx, d.Params, kind, b.paramRef, d.Namespace())
	return params, true, err
}

// IsExcluded reports whether no policy is evaluated on a resource: kube-apiserver
// asks itself such questions while it admits others (k8s.io/kubernetes
// pkg/kubeapiserver/admission/exclusion). It calls no webhook for policies, their
// bindings and webhook configurations; here, neither are policies evaluated on the
// custom resources for policies.
func IsExcluded(r codec.GroupVersionResource) bool {
	switch r.Group {
	case "authentication.k8s.io":
		return r.Resource == "selfsubjectreviews" || r.Resource == "tokenreviews"
	case "authorization.k8s.io":
		switch r.Resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return true
		}
	case "admissionregistration.k8s.io", cluster.PolicyGroup:
		return true
	}
	return false
}
