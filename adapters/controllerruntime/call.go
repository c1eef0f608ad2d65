package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
)

// call calls a webhook and returns its response as the plugin's result.
func call(ctx context.Context, webhook *admission.Webhook, review *codec.Review, phase fastadmit.Phase) fastadmit.Result {
	request, fits, err := requestOf(review)
	if err != nil {
		return fastadmit.Errored(fmt.Errorf("cannot make the request of controller-runtime: %w", err))
	}
	if !fits {
		return fastadmit.Allowed() // the chain denies it as too large
	}
	// A goroutine of the webhook may use the context after the webhook has returned, when
	// fastadmit's own context belongs to another call. The derived context is canceled by then, as
	// that of an *http.Request is.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	response := webhook.Handle(ctx, request)
	if err := verify(&response.AdmissionResponse, review, phase); err != nil {
		return fastadmit.Errored(err)
	}
	for _, warning := range response.Warnings {
		review.Response.Warn(warning)
	}
	for _, key := range slices.Sorted(maps.Keys(response.AuditAnnotations)) {
		_ = review.Response.Annotate(key, response.AuditAnnotations[key]) // kube-apiserver drops a bad one, too
	}
	if !response.Allowed {
		return fastadmit.Denied(denial(response.Result))
	}
	if err := patch(&review.Object, response.Patch); err != nil {
		return fastadmit.Errored(fmt.Errorf("cannot apply the webhook's patch: %w", err))
	}
	return fastadmit.Allowed()
}

// verify returns an error if kube-apiserver would reject a response, which is then a failure of the
// webhook (k8s.io/apiserver pkg/admission/plugin/webhook/request VerifyAdmissionResponse).
func verify(response *admissionv1.AdmissionResponse, review *codec.Review, phase fastadmit.Phase) error {
	patched, typed := len(response.Patch) > 0, response.PatchType != nil
	switch {
	case phase == fastadmit.Validate && (patched || typed) && review.APIVersion() == codec.APIVersionV1:
		return errors.New("a validating webhook may not return a patch")
	case phase == fastadmit.Validate:
		response.Patch = nil
	case review.APIVersion() != codec.APIVersionV1:
	case patched != typed:
		return errors.New("a webhook must return both patch and patchType, or none of them")
	case typed && response.Allowed && *response.PatchType != admissionv1.PatchTypeJSONPatch:
		return fmt.Errorf("got patchType %q, want %q", *response.PatchType, admissionv1.PatchTypeJSONPatch)
	}
	return nil
}

// denial returns an error with the status that kube-apiserver makes of a denial's, without the
// words that it puts before the message (k8s.io/apiserver pkg/admission/plugin/webhook/errors
// ToStatusErr).
func denial(result *metav1.Status) error {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusBadRequest
	}
	if status.Message == "" {
		status.Message = string(status.Reason)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// patch applies a JSON Patch to the object with kube-apiserver's library, and edits the object
// where that changed it.
func patch(object *codec.Object, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	operations, err := jsonpatch.DecodePatch(text)
	if err != nil || len(operations) == 0 {
		return err
	}
	if !object.Root().Exists() {
		return errors.New("the request has no object to patch")
	}
	before := object.Root().AppendJSON(nil)
	after, err := operations.Apply(before)
	if err != nil {
		return err
	}
	return diff.Change(object, before, after)
}
