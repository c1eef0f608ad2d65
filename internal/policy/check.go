package policy

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/documents"
)

// check denies to write a custom resource that is no valid policy or binding, or has
// expressions that do not compile. No policy is evaluated on them.
func (s *Source[P, B, E]) check(review *codec.Review) admission.Result {
	if s.resources == nil || review.SubResource() != "" || !isWrite(review) {
		return admission.Allowed()
	}
	var err error
	switch review.Resource().Resource {
	case s.kind.policies.Resource().Resource:
		err = s.checkPolicy(review)
	case s.kind.bindings.Resource().Resource:
		err = s.checkBinding(review)
	}
	if err == nil {
		return admission.Allowed()
	}
	return admission.Denied(&apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: err.Error(),
	}})
}

// isWrite reports whether a review creates an object or changes its spec: what was
// written when nobody checked it can still be labelled and deleted.
func isWrite(review *codec.Review) bool {
	switch review.Operation() {
	case codec.Create:
		return true
	case codec.Update:
		return review.Object.Get("spec").JSON() != review.OldObject.Get("spec").JSON()
	}
	return false
}

func (s *Source[P, B, E]) checkPolicy(review *codec.Review) error {
	document := s.kind.newPolicy()
	if err := decodeReviewed(review, document); err != nil {
		return err
	}
	errs := named(s.kind.Name, document.GetName(), s.kind.checkPolicy(document))
	if errs == nil {
		if _, err := s.compile(document); err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", s.kind.Name, document.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

func (s *Source[P, B, E]) checkBinding(review *codec.Review) error {
	document := s.kind.newBinding()
	if err := decodeReviewed(review, document); err != nil {
		return err
	}
	return errors.Join(named(s.kind.Name+bindingSuffix, document.GetName(), s.kind.checkBinding(document))...)
}

// decodeReviewed decodes a copy of the object, without its status. If there is no memory for
// it, the chain takes the Err of the review for the result.
func decodeReviewed(review *codec.Review, into any) error {
	object := struct {
		metadata, spec string
	}{review.Object.Get("metadata").JSON(), review.Object.Get("spec").JSON()}
	if object.spec == "" {
		object.spec = "{}"
	}
	return errors.Join(documents.Decode([]byte(`{"metadata":`+object.metadata+`,"spec":`+object.spec+`}`), into)...)
}
