package admission

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "sigs.k8s.io/json"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/quantity"
)

// AdmitTyped returns a Handler's Admit for a plugin that works on a Go type, such
// as corev1.Pod:
//
//	admission.Handler{Admit: admission.AdmitTyped(
//		func(ctx context.Context, review *codec.Review, pod, old *corev1.Pod) admission.Result {
//			pod.Spec.HostNetwork = false
//			return admission.Allowed()
//		})}
//
// object is the review's object with the changes of earlier plugins, nil if there is none,
// as for DELETE. old is the review's oldObject, nil if there is none, as for CREATE. Both
// are copies that admit may change and keep. If admit allows the request, its changes of
// object become edits of review.Object. Fields that T does not have are not changed.
// admit may also edit review.Object directly. Changes of old have no effect.
//
// An object that does not fit T is denied with code 400. An object that takes more than
// codec.MemoryMax to decode, or that contains a quantity with over 10,000 digits (written
// out or by its exponent), is denied with code 413. admit is not called then.
//
// Decoding a Pod and encoding it twice takes hundreds of times longer than reading and
// editing review.Object. Use AdmitTyped if a Go type saves more work than that.
func AdmitTyped[T any](admit func(ctx context.Context, review *codec.Review, object, old *T) Result) func(context.Context, *codec.Review) Result {
	return func(ctx context.Context, review *codec.Review) (result Result) {
		object, old, refusal := decodeTyped[T](review)
		if refusal != nil {
			return *refusal
		}
		run := func() (allowed bool) {
			result = admit(ctx, review, object, old)
			return result.Denial == nil && result.Err == nil
		}
		if object == nil {
			run()
			return result
		}
		if err := diff.Edit(&review.Object, object, run); err != nil {
			return Errored(err)
		}
		return result
	}
}

// ValidateTyped returns a Handler's Validate for a plugin that works on a Go type; see
// AdmitTyped. Changes that validate makes have no effect.
func ValidateTyped[T any](validate func(ctx context.Context, review *codec.Review, object, old *T) Result) func(context.Context, *codec.Review) Result {
	return func(ctx context.Context, review *codec.Review) Result {
		object, old, refusal := decodeTyped[T](review)
		if refusal != nil {
			return *refusal
		}
		return validate(ctx, review, object, old)
	}
}

// decodeTyped returns copies of the object and the old object, each nil if there is none.
// If one cannot be decoded, it returns the result of the plugin instead.
func decodeTyped[T any](review *codec.Review) (object, old *T, refusal *Result) {
	if !review.Object.Root().FitsDecoded() || !review.OldObject.Root().FitsDecoded() {
		return nil, nil, new(Allowed()) // the chain denies because of the review's error
	}
	if quantity.CheckDecoded[T](review.Object.Root()) != nil || quantity.CheckDecoded[T](review.OldObject.Root()) != nil {
		return nil, nil, new(Allowed()) // see above
	}
	object, err := decode[T](&review.Object)
	if err == nil {
		old, err = decode[T](&review.OldObject)
	}
	if err != nil {
		return nil, nil, new(Denied(apierrors.NewBadRequest(err.Error())))
	}
	return object, old, nil
}

// decode decodes a document as Kubernetes does: field names are case-sensitive.
func decode[T any](document *codec.Object) (*T, error) {
	if !document.Root().IsSet() {
		return nil, nil
	}
	value := new(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document.Root().AppendJSON(nil), value); err != nil {
		return nil, fmt.Errorf("cannot decode the object as %T: %w", value, err)
	}
	return value, nil
}
