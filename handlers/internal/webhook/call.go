package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/answers"
)

// CallError means that a call failed. The failurePolicy of the webhook decides
// (k8s.io/apiserver pkg/util/webhook ErrCallingWebhook).
type CallError struct {
	Webhook string // name
	Reason  error
	Code    int32 // HTTP code for metrics, 0 if there is none
}

func (e *CallError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.Webhook, e.Reason)
}

func (e *CallError) Unwrap() error { return e.Reason }

// Unusable returns a CallError for an answer that cannot be used.
func (w *Webhook) Unusable(reason error) error {
	return &CallError{Webhook: w.Name, Reason: reason}
}

// DenialError means that the webhook denied the request (k8s.io/apiserver pkg/util/webhook
// ErrWebhookRejection).
type DenialError struct{ *apierrors.StatusError }

// An Answer is the answer of a webhook. It contains no views of the review. It is valid until
// Return of its Call.
type Answer struct {
	Patch       []byte // nil for none
	PatchType   admissionv1.PatchType
	Annotations map[string]string
	Warnings    []string
}

// A call has the data for calling a webhook. It contains no views of the review.
type call struct {
	*Webhook
	message  *message
	uid      string
	deadline time.Time // of the review, minus the time to answer it; zero for none
	mutating bool
	loan     *answers.Loan // of the memory for the Answer
	caller   caller

	connected atomic.Bool // the last attempt had a connection
}

// do calls the webhook. The error is a CallError or a DenialError, or ends the review;
// with a DenialError there is an Answer too.
func (c *call) do(ctx context.Context) (got *Answer, err error) {
	start := time.Now()
	defer func() { c.metrics.observe(start, err) }()
	if !c.circuit.allows(c.caller, start) {
		return nil, c.failed(errCircuitOpen, http.StatusServiceUnavailable)
	}
	ctx, cancel := detached(ctx, c.deadlineFrom(start))
	defer cancel()
	got, err = c.send(ctx)
	c.circuit.ended(c.caller, c.resultOf(err), time.Now())
	if errors.Is(err, codec.ErrNoMemory) {
		return nil, codec.ErrNoMemory // not a CallError: the webhook has not failed
	}
	return got, err
}

// resultOf returns the result of a call with the error err, for the circuit breaker.
func (c *call) resultOf(err error) callResult {
	_, isFailure := errors.AsType[*CallError](err)
	switch {
	case errors.Is(err, codec.ErrNoMemory) || errors.Is(err, errBusy):
		return unknown
	case !isFailure:
		return succeeded
	case c.connected.Load():
		return failed
	}
	return unreachable
}

// traced returns a context whose requests set connected.
func (c *call) traced(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { c.connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { c.connected.Store(true) },
	})
}

// detached returns a context that ends when ctx ends or at a deadline. Of the values of ctx it has the trace of a sampled
// review only: package net/http may use the context after the review was released.
func detached(ctx context.Context, deadline time.Time) (context.Context, context.CancelFunc) {
	values := context.Background()
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		values = trace.ContextWithSpanContext(values, span)
	}
	own, cancel := context.WithDeadline(values, deadline)
	stop := context.AfterFunc(ctx, cancel)
	return own, func() {
		stop()
		cancel()
	}
}

// deadlineFrom returns when a call that begins now times out.
func (c *call) deadlineFrom(now time.Time) time.Time {
	deadline := now.Add(c.timeout)
	if !c.deadline.IsZero() && c.deadline.Before(deadline) {
		return c.deadline
	}
	return deadline
}

func (c *call) failed(reason error, code int32) error { return &CallError{c.Name, reason, code} }

var errBusy = fmt.Errorf("%d calls to this webhook, or %d for this user in this namespace, are in flight, and none ended in time",
	callsMax, tenantCallsMax)

func (c *call) send(ctx context.Context) (*Answer, error) {
	release, ok := c.calls.Take(ctx, c.caller.key)
	if !ok {
		c.metrics.limited()
		return nil, c.failed(fmt.Errorf("failed to call webhook: %w", errBusy), http.StatusServiceUnavailable)
	}
	defer release()
	client, err := c.clientOf()
	if err != nil {
		return nil, c.failed(fmt.Errorf("could not get REST client: %w", err), http.StatusInternalServerError)
	}
	request := client.Post().SetHeader("Content-Type", runtime.ContentTypeJSON)
	propagate(ctx, request)
	deadline, _ := ctx.Deadline()
	if left := time.Until(deadline); left > 0 {
		request.Timeout((left + time.Second - 1).Truncate(time.Second)) // whole seconds, as upstream
	}
	var response runtime.Object = new(admissionv1.AdmissionReview)
	if c.version != admissionv1.SchemeGroupVersion.Version {
		response = new(admissionv1beta1.AdmissionReview)
	}
	if err := request.Do(answers.With(context.WithValue(c.traced(ctx), messageKey{}, c.message), c.loan)).Into(response); err != nil {
		code := int32(http.StatusServiceUnavailable)
		if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
			code = status.ErrStatus.Code
		}
		return nil, c.failed(fmt.Errorf("failed to call webhook: %w", err), code)
	}
	got, result, err := c.verify(response)
	if err != nil {
		return nil, c.failed(fmt.Errorf("received invalid webhook response: %w", err), http.StatusServiceUnavailable)
	}
	if result != nil {
		return got, &DenialError{denial(c.Name, result)}
	}
	return got, nil
}

// propagate makes a call part of the trace of its review, as upstream does, if the review is sampled.
func propagate(ctx context.Context, request *rest.Request) {
	headers := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, headers)
	for name, value := range headers {
		request.SetHeader(name, value)
	}
}

// verify checks an answer, and returns the status of one that denies (k8s.io/apiserver
// pkg/admission/plugin/webhook/request VerifyAdmissionResponse).
func (c *call) verify(review runtime.Object) (answer *Answer, denied *metav1.Status, err error) {
	if beta, ok := review.(*admissionv1beta1.AdmissionReview); ok {
		return c.verifyBeta(beta.Response)
	}
	r := review.(*admissionv1.AdmissionReview)
	if r.Response == nil {
		return nil, nil, errAbsent
	}
	if string(r.Response.UID) != c.uid {
		return nil, nil, fmt.Errorf("expected response.uid=%q, got %q", c.uid, r.Response.UID)
	}
	if want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"); r.GroupVersionKind() != want {
		return nil, nil, fmt.Errorf("expected webhook response of %v, got %v", want.String(), r.GroupVersionKind().String())
	}
	if err := c.verifyPatch(r.Response); err != nil {
		return nil, nil, err
	}
	answer = &Answer{Patch: r.Response.Patch, Annotations: r.Response.AuditAnnotations, Warnings: r.Response.Warnings}
	if r.Response.PatchType != nil {
		answer.PatchType = *r.Response.PatchType
	}
	return answer, deniedBy(r.Response.Allowed, r.Response.Result), nil
}

var errAbsent = errors.New("webhook response was absent")

func (c *call) verifyBeta(r *admissionv1beta1.AdmissionResponse) (answer *Answer, denied *metav1.Status, err error) {
	if r == nil {
		return nil, nil, errAbsent
	}
	answer = &Answer{Annotations: r.AuditAnnotations, Warnings: r.Warnings}
	if c.mutating {
		answer.Patch, answer.PatchType = r.Patch, admissionv1.PatchTypeJSONPatch
	}
	return answer, deniedBy(r.Allowed, r.Result), nil
}

func (c *call) verifyPatch(r *admissionv1.AdmissionResponse) error {
	switch {
	case !c.mutating && len(r.Patch) > 0:
		return errors.New("validating webhook may not return response.patch")
	case !c.mutating && r.PatchType != nil:
		return errors.New("validating webhook may not return response.patchType")
	case len(r.Patch) > 0 && r.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType == "":
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *r.PatchType)
	}
	return nil
}

func deniedBy(allowed bool, result *metav1.Status) *metav1.Status {
	switch {
	case allowed:
		return nil
	case result == nil:
		return new(metav1.Status)
	}
	return result
}

// denial returns the status of a denial (k8s.io/apiserver
// pkg/admission/plugin/webhook/errors ToStatusErr). Codes above 599, which kube-apiserver
// passes on, are 500.
func denial(name string, result *metav1.Status) *apierrors.StatusError {
	status := *result
	if status.Code < http.StatusBadRequest {
		status.Code = http.StatusBadRequest
	} else if status.Code > codeMax {
		status.Code = http.StatusInternalServerError
	}
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	denied := fmt.Sprintf("admission webhook %q denied the request", name)
	switch {
	case status.Message != "":
		status.Message = denied + ": " + status.Message
	case status.Reason != "":
		status.Message = denied + ": " + string(status.Reason)
	default:
		status.Message = denied + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: status}
}

// codeMax is the largest code that a denial may have; see admission.Result.
const codeMax = 599
