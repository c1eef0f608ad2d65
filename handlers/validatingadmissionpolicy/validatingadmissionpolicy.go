// Package validatingadmissionpolicy is the admission plugin
// ValidatingAdmissionPolicy.
//
// It evaluates ValidatingAdmissionPolicies: rules about objects that are written in
// CEL, with bindings that say for which requests a policy counts and whether a
// violation denies, warns or is audited. Whoever has rules of his own and does not
// want to write a webhook for them wants this.
//
// Behaviour: k8s.io/apiserver v0.36.3 pkg/admission/plugin/policy/validating, generic
// and matching, for policies in files (pkg/admission/plugin/policy/manifest). These
// packages are not used: they double the binary and decode whole objects.
package validatingadmissionpolicy

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/handlers/internal/policy"
)

// Plugin is the plugin's line in the table.
func Plugin() handlers.Plugin {
	return handlers.Plugin{
		Name:        "ValidatingAdmissionPolicy",
		Summary:     "evaluates ValidatingAdmissionPolicies, rules about objects written in CEL",
		Rules:       []handlers.Rule{handlers.Any()},
		Validates:   true,
		Needs:       []cluster.Need{cluster.Namespaces.Watched(), cluster.SubjectAccessReviews.Called("create")},
		OnByDefault: true,
		New:         newHandler,
	}
}

const (
	configAPIVersion = "apiserver.config.k8s.io/v1"
	configKind       = "ValidatingAdmissionPolicyConfiguration"
)

// configuration is the plugin's configuration file (k8s.io/apiserver
// pkg/admission/plugin/policy/config/apis/policyconfig/v1). The folder is read by
// whoever reads the file.
type configuration struct {
	APIVersion         string `json:"apiVersion"`
	Kind               string `json:"kind"`
	StaticManifestsDir string `json:"staticManifestsDir"`
}

type plugin struct {
	policies   []boundPolicy
	namespaces *cluster.Objects[*corev1.Namespace]
	access     *cluster.Access
}

// boundPolicy is a policy with its bindings.
type boundPolicy struct {
	name     string
	matcher  *policy.Matcher
	ignores  bool // what cannot be evaluated
	bindings []binding
	*validator
}

type binding struct {
	name    string
	matcher *policy.Matcher
	actions []admissionregistrationv1.ValidationAction
}

func newHandler(setup handlers.Setup) (handlers.Handler, error) {
	if err := checkConfiguration(setup.Config); err != nil {
		return handlers.Handler{}, err
	}
	documents, err := policy.ReadValidating(setup.Manifests)
	if err != nil {
		return handlers.Handler{}, err
	}
	p := &plugin{namespaces: cluster.Namespaces.In(setup.Cluster), access: cluster.AccessIn(setup.Cluster)}
	var errs []error
	for _, document := range documents.Policies {
		bound, err := newBoundPolicy(document, documents.Bindings)
		if err != nil {
			errs = append(errs, documents.From(document, err))
		}
		p.policies = append(p.policies, bound)
	}
	return handlers.Handler{Validate: p.validate}, utilerrors.NewAggregate(errs)
}

func checkConfiguration(content []byte) error {
	if content == nil {
		return nil // and no policy, as there
	}
	c := new(configuration)
	return handlers.DecodeConfig(content, c, func() field.ErrorList {
		return handlers.ValidateConfigType(c.APIVersion, configAPIVersion, c.Kind, configKind)
	})
}

func newBoundPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy, all []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) (boundPolicy, error) {
	matcher, err := policy.NewMatcher(p.Spec.MatchConstraints)
	errs := []error{err}
	bound := boundPolicy{name: p.Name, matcher: matcher, ignores: *p.Spec.FailurePolicy == admissionregistrationv1.Ignore}
	for _, b := range all {
		if b.Spec.PolicyName != p.Name {
			continue
		}
		matcher, err := policy.NewMatcher(b.Spec.MatchResources)
		errs = append(errs, err)
		bound.bindings = append(bound.bindings, binding{b.Name, matcher, b.Spec.ValidationActions})
	}
	bound.validator, err = newValidator(p)
	if err := errors.Join(append(errs, err)...); err != nil {
		return bound, fmt.Errorf("ValidatingAdmissionPolicy %q: %w", p.Name, err)
	}
	return bound, nil
}

func (p *plugin) validate(ctx context.Context, review *codec.Review) handlers.Result {
	if len(p.policies) == 0 || isExcluded(review.Resource()) {
		return handlers.Allowed()
	}
	d := dispatches.Get().(*dispatch)
	defer d.release()
	d.plugin, d.ctx, d.Request = p, ctx, policy.NewRequest(review)
	for i := range p.policies {
		if err := d.evaluate(&p.policies[i]); err != nil {
			return *err
		}
	}
	return d.result()
}

// isExcluded reports whether no policy is evaluated on the resource: kube-apiserver
// asks itself such questions while it admits others (k8s.io/kubernetes
// pkg/kubeapiserver/admission/exclusion). It calls no webhook for policies, their
// bindings and webhook configurations.
func isExcluded(r codec.GroupVersionResource) bool {
	switch r.Group {
	case "authentication.k8s.io":
		return r.Resource == "selfsubjectreviews" || r.Resource == "tokenreviews"
	case "authorization.k8s.io":
		switch r.Resource {
		case "localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews":
			return true
		}
	case "admissionregistration.k8s.io":
		return true
	}
	return false
}
