package policy

import (
	"errors"
	"fmt"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/customresource"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

// check denies a custom resource that is not a valid policy, binding or exception, or has
// expressions that do not compile. No policy is evaluated for requests that write these
// resources.
func (s *Source[P, B, E]) check(review *codec.Review) admission.Result {
	if s.resources != nil {
		switch review.Resource().Resource {
		case s.kind.policies.Resource().Resource:
			return customresource.Check(review, "spec", "{}", s.checkPolicy)
		case s.kind.bindings.Resource().Resource:
			return customresource.Check(review, "spec", "{}", s.checkBinding)
		case cluster.PolicyExceptions.Resource().Resource:
			if s.resources.exceptions != nil {
				return customresource.Check(review, "spec", "{}", s.resources.exceptions.check)
			}
		}
	}
	return admission.Allowed()
}

func (s *Source[P, B, E]) checkPolicy(content []byte) error {
	document := s.kind.newPolicy()
	if errs := documents.Decode(content, document); errs != nil {
		return errors.Join(errs...)
	}
	errs := documents.Named(s.kind.Name, document.GetName(), s.kind.checkPolicy(document))
	if errs == nil {
		if _, err := s.compile(document, false); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", s.kind.Name, document.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

func (s *Source[P, B, E]) checkBinding(content []byte) error {
	document := s.kind.newBinding()
	if errs := documents.Decode(content, document); errs != nil {
		return errors.Join(errs...)
	}
	return errors.Join(documents.Named(s.kind.Name+bindingSuffix, document.GetName(), s.kind.checkBinding(document))...)
}
