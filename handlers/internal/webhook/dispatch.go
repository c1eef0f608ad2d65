package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/internal/answers"
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
)

// reserveMax is the longest time that a call leaves for the rest of the review, so that the review
// can still be answered if the call times out and the failure is ignored. A call leaves a tenth
// of the remaining time. Thousands of reviews are answered in reserveMax.
const reserveMax = 500 * time.Millisecond

// A Dispatch is the state of calling webhooks for one review. Only one goroutine at a time
// may use it. It is valid until the review is released.
type Dispatch struct {
	policy.Dispatch

	source   *Source
	webhooks *policy.Candidates[*Webhook]
	body     body // of the review with its current edits; nil until it is needed

	explained *admission.Explanation // nil without Explain
	seen      int                    // webhooks that were explained
}

var errLoop = errors.New("a webhook configuration of fastadmit leads back to fastadmit, which would call itself endlessly; " +
	"set another server in its clientConfig")

// Begin returns a Dispatch for a review. It returns nil if no webhook can be called; the
// result is the result of the plugin then. Begin waits until the custom resources are
// known; if ctx ends first, the plugin fails. Begin also checks custom resources of
// webhooks.fastadmit.io and denies invalid ones, and it denies a review that fastadmit
// itself has sent.
func (s *Source) Begin(ctx context.Context, review *codec.Review) (*Dispatch, admission.Result) {
	resource := review.Resource()
	if resource.Group == cluster.WebhookGroup {
		return nil, s.check(review)
	}
	if isExempt(resource) || s.version.AtLeast(1, 37) && policy.IsVirtual(resource) {
		return nil, admission.Unchecked(exempt)
	}
	webhooks, err := s.webhooks(ctx)
	if err != nil {
		return nil, admission.Errored(err)
	}
	if len(webhooks.All()) == 0 {
		return nil, admission.Unchecked("no webhook is configured: its webhook configurations come from the cluster or from staticManifestsDir")
	}
	if isOwnUID(review.UID()) {
		return nil, admission.Denied(apierrors.NewInternalError(errLoop))
	}
	d := &Dispatch{source: s, webhooks: webhooks}
	d.Begin(ctx, review, &s.cluster)
	return d, admission.Allowed()
}

// Candidates yields the webhooks that may match the review, in the order in which they are called. Their places are
// those among all webhooks. If the object changes meanwhile, it yields the webhooks that may match the new object,
// from the next place on. With Explain, it yields all webhooks.
func (d *Dispatch) Candidates() iter.Seq[*policy.Candidate[*Webhook]] {
	return func(yield func(*policy.Candidate[*Webhook]) bool) {
		next, before := int32(0), -1
		for before != d.Object.Changes() {
			before = d.Object.Changes()
			found := d.candidates()
			for i := range found {
				if found[i].Place < next {
					continue
				}
				next = found[i].Place + 1
				if !yield(&found[i]) {
					return
				}
				if d.Object.Changes() != before {
					break
				}
			}
		}
	}
}

func (d *Dispatch) candidates() []policy.Candidate[*Webhook] {
	if d.Explains() {
		return d.webhooks.Unselected()
	}
	return d.webhooks.Find(&d.Dispatch)
}

// exempt is why no webhook is called.
const exempt = "webhooks are not called for its resource"

// isExempt reports whether webhooks are never called for a resource, because it configures
// webhooks or policies (k8s.io/apiserver pkg/admission/plugin/webhook/predicates/rules
// IsExemptAdmissionConfigurationResource). The custom resources of fastadmit that do so are exempt, too.
func isExempt(r codec.GroupVersionResource) bool {
	switch r.Group {
	case cluster.PolicyGroup, cluster.WebhookGroup:
		return true
	case "admissionregistration.k8s.io":
		return slices.Contains(exemptResources, r.Resource)
	}
	return false
}

var exemptResources = []string{
	"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
	"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
}

// A Call is a prepared call of a webhook. It contains no views of the review, so Do may run
// in another goroutine.
type Call struct {
	call
	ctx context.Context
	err error // why the webhook is not called, nil if it is

	// Explained is the result of Dispatch.Explained.
	Explained *admission.WebhookExplanation

	Answer *Answer // set by Do; not nil with a DenialError
	Err    error   // set by Do: a *CallError, a *DenialError or another error, for Conclude
}

// Prepare creates the Call of a webhook. mutating is true in the phase of mutating
// webhooks. ok is false if there is no memory for the request; Err of the review has the
// error.
func (d *Dispatch) Prepare(w *Webhook, mutating bool) (c *Call, ok bool) {
	d.forget()
	c = &Call{ctx: d.Ctx, call: call{Webhook: w, uid: newUID(), mutating: mutating, loan: answers.NewLoan(d.Ctx)}}
	c.caller = newCaller(d.Username(), d.Namespace())
	if deadline, ok := d.Ctx.Deadline(); ok {
		left := time.Until(deadline)
		c.deadline = deadline.Add(-min(left/10, reserveMax))
	}
	if d.body == nil {
		if d.body, ok = newBody(d.Review); !ok {
			return nil, false
		}
	}
	c.message = newMessage(w.version, c.uid, d.body)
	return c, true
}

// input returns the Input of match conditions. All webhooks share it, so that equal conditions are evaluated once.
func (d *Dispatch) input() *cel.Input {
	if d.Input == nil {
		d.Input = policy.NewInput(d.Ctx, d.Review, d.Access)
	}
	return d.Input
}

// forget releases the Input, so that it takes no memory while webhooks are called.
func (d *Dispatch) forget() {
	if d.Input != nil {
		d.Input.Release()
		d.Input = nil
	}
}

// Version returns the release of Kubernetes that the plugin emulates.
func (d *Dispatch) Version() admission.Version { return d.source.version }

// Return gives back the memory of the Answer. The Answer, and a patch made from it, must not be used
// after that.
func (c *Call) Return() {
	if c.loan != nil {
		c.loan.Return()
	}
}

// Borrow borrows more memory for data that is made from the Answer, until Return. If there is not
// enough, it returns false, and Err of the review has the error.
func (d *Dispatch) Borrow(c *Call, bytes int) bool { return d.got(c.loan.Add(c.ctx, int64(bytes))) }

// Keep borrows memory until the end of the review, for data that becomes part of the object. If there
// is not enough, it returns false, and Err of the review has the error.
func (d *Dispatch) Keep(c *Call, bytes int) bool { return d.got(c.loan.Keep(int64(bytes))) }

func (d *Dispatch) got(err error) bool {
	if err != nil {
		d.Object.Root().Refuse(err)
	}
	return err == nil
}

// NoCall returns a Call that fails with err, for a webhook that cannot be called.
func NoCall(w *Webhook, err error) *Call { return &Call{call: call{Webhook: w}, err: err} }

// Changed must be called when the object was changed after a call of Prepare.
func (d *Dispatch) Changed() { d.body = nil }

// Do calls the webhook and sets Answer and Err. As in kube-apiserver, a panic is an error
// that failurePolicy does not ignore.
func (c *Call) Do() {
	defer func() {
		if recover() != nil {
			c.Answer, c.Err = nil, apierrors.NewInternalError(fmt.Errorf("calling webhook %q has panicked", c.Name))
		}
	}()
	if c.Err = c.err; c.Err == nil {
		c.Answer, c.Err = c.do(c.ctx)
	}
}

// Take copies the warnings and audit annotations of an answer to the response. It drops
// those that kube-apiserver drops: annotations with invalid keys, and warnings with control
// characters. answer may be nil.
func (d *Dispatch) Take(w *Webhook, answer *Answer) {
	if answer == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(answer.Annotations)) {
		if len(utilvalidation.IsQualifiedName(w.Name+"/"+key)) > 0 {
			continue
		}
		_ = d.Response.Annotate(policy.AnnotationKey(w.Name, key), answer.Annotations[key]) // the key is valid
	}
	for _, warning := range answer.Warnings {
		if strings.ContainsFunc(warning, unicode.IsControl) {
			continue // k8s.io/apimachinery pkg/util/net NewWarningHeader
		}
		d.Response.Warn(warning)
	}
}

// Conclude returns the result of the plugin after a call with the error err. It returns nil
// if the webhook ignores the failure and ctx has not ended. Then it adds the audit
// annotation "failed-open." plus annotation, as kube-apiserver does.
func (d *Dispatch) Conclude(w *Webhook, err error, annotation string) *admission.Result {
	if _, failed := errors.AsType[*CallError](err); failed {
		if !w.Ignores {
			w.metrics.rejected(d.Operation(), callingWebhookError)
			return new(admission.Denied(apierrors.NewInternalError(err)))
		}
		w.metrics.failedOpen()
		d.Annotate("failed-open."+annotation, w.Name)
		if note := admission.NoteViolation(d.Ctx); note != nil {
			note(admission.Violation{Plugin: w.metrics.of.plugin, Message: strings.Clone(err.Error()), Ignored: true})
		}
		if d.Ctx.Err() != nil {
			return new(admission.Denied(apierrors.NewTimeoutError("request did not complete within requested timeout", 0)))
		}
		return nil
	}
	if denied, ok := errors.AsType[*DenialError](err); ok {
		w.metrics.rejected(d.Operation(), noError)
		return new(admission.Denied(denied.StatusError))
	}
	if errors.Is(err, codec.ErrNoMemory) {
		d.Object.Root().Refuse(err)
		return new(admission.Errored(err))
	}
	w.metrics.rejected(d.Operation(), internalError)
	return new(admission.Denied(err))
}

// Annotate adds an audit annotation. key must be a valid annotation key without a slash.
func (d *Dispatch) Annotate(key, value string) {
	_ = d.Response.Annotate(key, value) // the key is valid
}

// AnnotateMutation adds an audit annotation that says whether a webhook changed the object
// (k8s.io/apiserver pkg/admission/plugin/webhook/mutating MutationAuditAnnotation). round
// and index are the numbers of the invocation and of the webhook, from 0.
func (d *Dispatch) AnnotateMutation(w *Webhook, round, index int, mutated bool) {
	d.annotateJSON(fmt.Sprintf("mutation.round_%d_index_%d", round, index), struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{w.Configuration, w.Name, mutated})
}

// AnnotatePatch adds an audit annotation with the patch of a webhook, if the configuration
// has auditPatches. kube-apiserver does so at the audit level Request (k8s.io/apiserver
// pkg/admission/plugin/webhook/mutating PatchAuditAnnotation).
func (d *Dispatch) AnnotatePatch(w *Webhook, round, index int, patch any) {
	if !d.source.config.AuditPatches {
		return
	}
	d.annotateJSON(fmt.Sprintf("patch.round_%d_index_%d", round, index), struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Patch         any    `json:"patch,omitempty"`
		PatchType     string `json:"patchType,omitempty"`
	}{w.Configuration, w.Name, patch, "JSONPatch"})
}

func (d *Dispatch) annotateJSON(key string, value any) {
	if text, err := json.Marshal(value); err == nil { // always: value consists of strings, a boolean and JSON
		d.Annotate(key, string(text))
	}
}
