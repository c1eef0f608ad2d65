package policy

import (
	"cmp"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// A Set contains the compiled policies of one kind with their bindings, both sorted by
// name. E contains the compiled expressions of a policy. A Set is immutable; if documents
// change, a new Set replaces it between reviews.
type Set[E any] []*Policy[E]

// A Policy is a compiled policy with its bindings.
type Policy[E any] struct {
	// Each evaluation reads these fields. They are together, because thousands of policies do not fit into a processor's cache.
	Evaluator    E
	metrics      *policyMetrics
	bound        boundBy
	reads        *reads                 // of a translated policy, nil if it cannot read other objects
	err          error                  // why the policy fails on every request that it matches
	workloadPods admission.WorkloadPods // the annotation, empty for none

	Name string
	// Ignores is true if failurePolicy is Ignore: the policy has no effect if it cannot
	// be evaluated.
	Ignores bool

	matcher    *Matcher
	paramKind  *admissionregistrationv1.ParamKind
	params     Params // objects of the cluster for a custom resource, the given objects for a policy in a file
	compileErr error  // compilation errors; such an expression fails when it is evaluated
}

// A Binding determines for which requests and with which parameters a policy is evaluated.
type Binding struct {
	Name string
	// Actions are the validationActions. Only bindings of ValidatingAdmissionPolicies
	// have them.
	Actions []admissionregistrationv1.ValidationAction

	policy     string
	matcher    *Matcher
	matchesAll bool // matcher does
	paramRef   *paramRef
	err        error  // why it is unknown what it matches
	revision   string // of a custom resource
}

// A Compile compiles the expressions of a policy. If kyverno is true, the policy is a translation, and its expressions
// have Kyverno's functions; see cel.Declarations.
type Compile[P metav1.Object, E any] func(document P, kyverno bool) (E, error)

// NewSet compiles documents; compile compiles the expressions of one policy. The error
// joins all errors. Even then, the Set contains all policies. As in kube-apiserver, an
// expression that does not compile fails when it is evaluated.
func NewSet[P, B metav1.Object, E any](documents *Documents[P, B], compile Compile[P, E]) (Set[E], error) {
	var errs []error
	bindings := make(map[string][]*Binding) // by the names of policies
	for _, document := range documents.Bindings {
		b, err := newBinding(document)
		if err != nil {
			errs = append(errs, documents.From(document, fmt.Errorf("%s %q: %w", kindOf(document), b.Name, err)))
		}
		bindings[b.policy] = append(bindings[b.policy], b)
	}
	var set Set[E]
	for _, document := range documents.Policies {
		p, err := newPolicy[E](document)
		var compileErr error
		file := cmp.Or(documents.from[document], &admission.File{}) // tests have documents without files
		p.Evaluator, compileErr = compile(document, file.Functions)
		if err := errors.Join(err, compileErr); err != nil {
			errs = append(errs, documents.From(document, fmt.Errorf("%s %q: %w", kindOf(document), p.Name, err)))
		}
		if file.Reads {
			p.reads = new(reads) // NewSource knows of what
		}
		p.bound = newBoundBy(bindings[p.Name])
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
	p := &Policy[E]{Name: document.GetName(), workloadPods: workloadPodsOf(document)}
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
	var ref *admissionregistrationv1.ParamRef
	switch document := document.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		spec := &document.Spec
		b.policy, b.Actions, ref, resources = spec.PolicyName, spec.ValidationActions, spec.ParamRef, spec.MatchResources
	case *admissionregistrationv1.MutatingAdmissionPolicyBinding:
		spec := &document.Spec
		b.policy, ref, resources = spec.PolicyName, spec.ParamRef, spec.MatchResources
	}
	b.paramRef = newParamRef(ref)
	var err error
	b.matcher, err = NewMatcher(resources)
	b.matchesAll = err == nil && b.matcher.matchesAll()
	return b, err
}

// Handles are the functions of a plugin that Evaluate calls.
type Handles[E any] interface {
	// Evaluate evaluates a policy for a matching binding, once for each of params. The
	// list may be empty. If an element is nil, the variable params is null. If Evaluate
	// returns a result, that is the result of the plugin.
	Evaluate(p *Policy[E], b *Binding, params []*Param) *admission.Result
	// Misconfigured is called if err prevents matching the policy or finding its
	// parameters. b is nil if the error is in the policy and not in a binding. For policies
	// that ignore errors, Ignored is called instead, which changes nothing.
	Misconfigured(p *Policy[E], b *Binding, err error)
	Ignored(p *Policy[E], b *Binding, err error)
}

// Evaluate calls h for each binding of a policy that matches the review. It stops at the
// first result of h.Evaluate and returns it; otherwise it returns nil.
func Evaluate[E any](c *Candidate[*Policy[E]], d *Dispatch, h Handles[E]) *admission.Result {
	p := c.Of
	if p.skips(d.Ctx) {
		return nil
	}
	misconfigured := func(b *Binding, what string, err error) {
		p.countMisconfigured(b)
		if err = fmt.Errorf("failed to configure %s: %w", what, err); p.Ignores {
			h.Ignored(p, b, err)
		} else {
			h.Misconfigured(p, b, err)
		}
	}
	matches, err := c.Matches(d)
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
	d.reads = p.reads
	if b := p.bound.only; b != nil {
		return h.Evaluate(p, b, withoutParams)
	}
	for _, place := range p.bound.index.Find(d.Ctx, d.Review, &d.sent, d) {
		b := p.bound.all[place]
		params, matches, err := b.collect(d, p.params, p.paramKind)
		if cluster.IsTooLarge(err) { // which a user who writes parameters chooses, so Ignore is no answer
			p.countMisconfigured(b)
			return new(admission.Errored(err))
		}
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

// Matcher implements Selecting. A policy without bindings selects nothing.
func (p *Policy[E]) Matcher() *Matcher {
	if len(p.bindings()) == 0 {
		return nil
	}
	return p.matcher
}

// bindings returns the bindings of the policy, sorted by name.
func (p *Policy[E]) bindings() []*Binding { return p.bound.all }

// collect reports whether the binding matches the review, and returns its parameters.
func (b *Binding) collect(d *Dispatch, all Params, kind *admissionregistrationv1.ParamKind) (params []*Param, matches bool, err error) {
	if b.err != nil {
		return nil, false, b.err
	}
	if !b.matchesAll {
		if matches, err = b.matcher.Matches(d.Ctx, &d.Request, d); err != nil || !matches {
			return nil, false, err
		}
	}
	params, err = collectParams(d.Ctx, all, kind, b.paramRef, d.Namespace())
	return params, true, err
}

// IsExcluded reports whether policies are never evaluated on a resource: those of IsVirtual, and
// policies, bindings and webhook configurations, for which kube-apiserver calls no webhooks.
// fastadmit also excludes its own custom resources for policies.
func IsExcluded(r codec.GroupVersionResource) bool {
	return r.Group == "admissionregistration.k8s.io" || r.Group == cluster.PolicyGroup || IsVirtual(r)
}

// IsVirtual reports whether a resource is one of the reviews that are not stored, such as
// SubjectAccessReviews. kube-apiserver creates them itself to admit other requests (k8s.io/kubernetes
// pkg/kubeapiserver/admission/exclusion).
func IsVirtual(r codec.GroupVersionResource) bool {
	switch r.Group {
	case "authentication.k8s.io":
		return r.Resource == "selfsubjectreviews" || r.Resource == "tokenreviews"
	case "authorization.k8s.io":
		switch r.Resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return true
		}
	}
	return false
}
