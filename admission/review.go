package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// A FailureError is the failure of a plugin whose failure policy is Fail. The user
// of the request sees its text, so it does not contain the value of a panic.
type FailureError struct {
	Plugin string
	Err    error // a *PanicError if it panicked
}

func (e *FailureError) Error() string {
	return "admission plugin " + e.Plugin + " failed: " + e.reason()
}

func (e *FailureError) reason() string {
	if _, panicked := errors.AsType[*PanicError](e.Err); panicked {
		return "it panicked, see the log of fastadmit"
	}
	return e.Err.Error()
}

func (e *FailureError) Unwrap() error { return e.Err }

// PanicError is a panic of a plugin.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// PanicText returns what Go's runtime says of a panic with the value v. What other code panics
// with may have contents of an object in it, so of that it is the type; the
// stack says where.
func PanicText(v any) string {
	if err, ok := v.(runtime.Error); ok {
		return err.Error()
	}
	return fmt.Sprintf("%T", v)
}

// ErrNotStarted is the error of a plugin that was not called because the time of
// the call was over.
var ErrNotStarted = fmt.Errorf("not started: %w", context.DeadlineExceeded)

var errGoexit = errors.New("it ended its goroutine with runtime.Goexit; it must return")

// A round is one call of Chain.Review.
type round struct {
	chain      *Chain
	ctx        context.Context
	review     *codec.Review
	phase      Phase
	attributes Attributes
	deadline   time.Duration // of the call, 0 for none
	began      time.Duration
	now        time.Duration // when the last plugin ended, so that the clock is read once for each plugin
	explained  *explained    // of the plugin that runs, nil without Chain.Explain
	excepts    bool          // exceptions name the plugin that runs, and there is a Checkpoint
}

// epoch is the zero of the times of a round: time.Since(epoch) takes half the time of
// time.Now.
var epoch = time.Now()

// Review runs the plugins of the phase that handle the review, and fills
// review.Response. It stops at the first denial, and at the first failure of a
// plugin whose failure policy is Fail, which it returns as a *FailureError. Any
// other error means that the review itself is invalid.
//
// Unless the review is simply allowed, the message and an audit annotation, whose
// key is the name of the plugin, say which plugin decided.
func (c *Chain) Review(ctx context.Context, review *codec.Review, phase Phase) (Outcome, error) {
	r := round{chain: c, ctx: ctx, review: review, phase: phase, attributes: AttributesOf(review), began: time.Since(epoch)}
	r.now = r.began
	if deadline, ok := ctx.Deadline(); ok {
		r.deadline = max(deadline.Sub(epoch), 1)
	}
	review.SetContext(ctx)
	var seen [pluginsMax]int // Object.Changes after the plugin's run, -1 if it did not run
	for i := range c.entries {
		outcome, ran, err := r.run(&c.entries[i])
		if err != nil || outcome == OutcomeDenied {
			return outcome, err
		}
		if seen[i] = -1; ran {
			seen[i] = review.Object.Changes()
		}
	}
	for i := range c.entries {
		e := &c.entries[i]
		if seen[i] < 0 || seen[i] == review.Object.Changes() || !e.Settings.reinvokes() {
			continue
		}
		r.ctx = context.WithValue(ctx, reinvocationKey{}, true)
		if outcome, _, err := r.run(e); err != nil || outcome == OutcomeDenied {
			return outcome, err
		}
	}
	if c.pods != nil && phase == Validate {
		if outcome, err := r.reviewPods(); err != nil || outcome == OutcomeDenied {
			return outcome, err
		}
	}
	review.ClearContext() // the patch is made even if ctx ends now
	if err := review.Err(); err != nil {
		return OutcomeErrored, err
	}
	review.Response.Allowed = true
	if review.Object.Changes() > 0 {
		review.Response.Patch = diff.AppendPatch(review.Response.Patch[:0], &review.Object)
	}
	if err := review.Err(); err != nil {
		denial := tooLarge(err)
		if denial == nil {
			return OutcomeErrored, err
		}
		review.Response.Allowed, review.Response.Status = false, *denial
		return OutcomeDenied, nil
	}
	if len(review.Response.Patch) > 0 {
		return OutcomePatched, nil
	}
	return OutcomeAllowed, nil
}

type reinvocationKey struct{}

// IsReinvocation reports whether ctx belongs to the second call of a plugin in a review,
// which follows if a later plugin changed the object.
func IsReinvocation(ctx context.Context) bool { return ctx.Value(reinvocationKey{}) != nil }

// run runs a plugin if it handles the review.
func (r *round) run(e *entry) (outcome Outcome, ran bool, err error) {
	if r.chain.Explain != nil {
		return r.explain(e)
	}
	return r.execute(e)
}

// execute runs a plugin if it handles the review, and applies the plugin's settings to the
// result. The error is one of those that Review returns.
func (r *round) execute(e *entry) (outcome Outcome, ran bool, err error) {
	if !e.handles(r.phase, &r.attributes) {
		return OutcomeAllowed, false, nil
	}
	r.excepts = r.chain.exceptions != nil && r.chain.exceptions.Name(e.plugin.Name)
	if r.excepts || e.Settings.restores() {
		r.review.Checkpoint()
	}
	start := r.now
	result, outcome, ran, err := r.attempt(e)
	if err != nil || !ran {
		return outcome, ran, err
	}
	return outcome, true, r.conclude(e, &result, outcome, r.now-start)
}

// attempt calls the plugin, unless its selector does not select the review, and denies what is too large. err is
// an error of the review itself.
func (r *round) attempt(e *entry) (result Result, outcome Outcome, ran bool, err error) {
	result, outcome, ran = r.evaluate(e)
	if denial := tooLarge(result.Err); denial != nil {
		result, outcome = Result{Denial: denial}, OutcomeDenied
	}
	if fault := r.review.Err(); fault != nil {
		_, misuse := errors.AsType[*codec.EditError](fault)
		_, late := errors.AsType[*codec.ContextError](fault)
		if denial := tooLarge(fault); denial != nil {
			result, outcome, ran = Result{Denial: denial}, OutcomeDenied, true
		} else if !misuse && !late {
			return result, OutcomeErrored, true, fault
		}
	}
	return result, outcome, ran, nil
}

// conclude reports the outcome of a plugin's run, and writes it into the response. The error is that of a plugin
// whose failure policy is Fail.
func (r *round) conclude(e *entry, result *Result, outcome Outcome, elapsed time.Duration) error {
	if r.chain.Observe != nil {
		r.chain.Observe(Run{
			Context: r.ctx, Plugin: e.index, Phase: r.phase, Outcome: outcome, Elapsed: elapsed,
			Err: result.Err, Unchecked: result.Unchecked,
		})
	}
	if r.explained != nil {
		r.explained.note(r, outcome, result)
	}
	response := &r.review.Response
	switch outcome {
	case OutcomePatched:
		e.annotate(response, "patched")
	case OutcomeDenied:
		e.annotate(response, "denied: "+result.Denial.Message)
		uid := codec.TruncateString(r.review.UID(), uidBytesMax)
		_ = response.Annotate(CauseAdmissionReview, uid) // the key is valid
		response.Allowed, response.Status, response.DeniedBy = false, e.attribute(result.Denial, uid), e.plugin.Name
	case OutcomeWarned, OutcomeAudited:
		r.review.Rollback()
		e.annotate(response, outcome.String()+": "+result.Denial.Message)
		if outcome == OutcomeWarned {
			response.Warn(e.plugin.Name + ": " + result.Denial.Message)
		}
	case OutcomeErrored, OutcomePanicked:
		failure := &FailureError{Plugin: e.plugin.Name, Err: result.Err}
		if !e.Settings.ignores() {
			return failure
		}
		r.review.Rollback()
		e.annotate(response, "ignored: "+failure.Error())
	}
	return nil
}

// handles reports whether the plugin takes part in the phase and its rules
// select the review.
func (e *entry) handles(phase Phase, attributes *Attributes) bool {
	if e.hasNone(phase) {
		return false
	}
	for i := range e.plugin.Rules {
		if e.plugin.Rules[i].Matches(attributes) {
			return true
		}
	}
	return false
}

// evaluate calls the plugin and determines the outcome. ran is false if its selector does
// not select the review.
func (r *round) evaluate(e *entry) (result Result, outcome Outcome, ran bool) {
	ctx, deadline := r.ctx, r.deadline
	if timeout := e.Settings.Timeout; timeout > 0 && (deadline == 0 || r.now+timeout < deadline) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
		r.review.SetContext(ctx)
		defer r.review.SetContext(r.ctx)
		deadline = r.now + timeout
	}
	if isPast(deadline, r.now) {
		return Errored(ErrNotStarted), OutcomeErrored, true
	}
	if r.now-r.began > turns.FreeMax {
		if err := r.takeTurn(ctx, e); err != nil {
			return Errored(ErrNotStarted), OutcomeErrored, true
		}
	}
	changes, told := r.review.Object.Changes(), len(r.review.Response.Warnings())
	result, ran = r.call(ctx, e)
	r.now = time.Since(epoch)
	switch fault := r.review.Err(); {
	case isPanic(result.Err):
		return result, OutcomePanicked, true
	case fault != nil:
		return Errored(fault), OutcomeErrored, true
	case result.Err != nil && result.Denial != nil:
		return Errored(fmt.Errorf("it both failed and denied, want one: %w", result.Err)), OutcomeErrored, true
	case result.Err != nil:
		return result, OutcomeErrored, true
	case isPast(deadline, r.now):
		return Errored(fmt.Errorf("it took too long: %w", context.DeadlineExceeded)), OutcomeErrored, true
	case result.Denial != nil:
		return r.enforce(ctx, e, result)
	case r.excepts && r.phase == Validate && len(r.review.Response.Warnings()) > told:
		r.lift(ctx, e, "its warnings")
		return result, OutcomeAllowed, ran
	case r.review.Object.Changes() == changes:
		return result, OutcomeAllowed, ran
	}
	if err := mayPatch(r.review, r.phase); err != nil {
		return Errored(err), OutcomeErrored, true
	}
	return result, OutcomePatched, true
}

// takeTurn makes a long review wait for its turn before the next plugin. A hundred long reviews that run at
// the same time would delay all others, and the kubelet's probes, because Go lets each run for 10 ms. A
// plugin that may wait for something else runs without a turn.
func (r *round) takeTurn(ctx context.Context, e *entry) error {
	if p := e.plugin; p.Calls || p.SideEffects != "" || p.OutOfTree {
		turns.Leave(ctx)
		return nil
	}
	err := turns.Need(ctx)
	r.now = time.Since(epoch)
	return err
}

func isPanic(err error) bool {
	_, panicked := errors.AsType[*PanicError](err)
	return panicked
}

func isPast(deadline, now time.Duration) bool { return deadline > 0 && now >= deadline }

// call calls the plugin, unless its selector does not select the review. A panic becomes
// an error. If the plugin ends its goroutine, Observe is called here, because the callers
// do not continue.
func (r *round) call(ctx context.Context, e *entry) (result Result, ran bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			result, ran = Errored(&PanicError{Value: v, Stack: debug.Stack()}), true
		} else if r.chain.Observe != nil {
			r.chain.Observe(Run{
				Context: r.ctx, Plugin: e.index, Phase: r.phase, Outcome: OutcomeErrored, Elapsed: time.Since(epoch) - r.now,
				Err: errGoexit,
			})
		}
	}()
	result, ran = r.decide(ctx, e)
	returned = true
	return result, ran
}

func (r *round) decide(ctx context.Context, e *entry) (result Result, ran bool) {
	if selector := e.Settings.Selector; selector != nil {
		switch matches, err := selector.Matches(ctx, r.review, r.attributes); {
		case isRefusal(err):
			return Denied(err), true
		case err != nil:
			return Errored(err), true
		case !matches:
			if r.chain.Unselected != nil {
				r.chain.Unselected(e.index)
			}
			return Result{}, false
		}
	}
	if err := e.view.Ready(); err != nil {
		return Errored(err), true
	}
	if r.explained != nil && e.handler.Explain != nil {
		return e.handler.Explain(ctx, r.review, r.explained.Explanation), true
	}
	if r.phase == Mutate {
		return e.handler.Admit(ctx, r.review), true
	}
	return e.handler.Validate(ctx, r.review), true
}

// enforce returns the outcome of a denial according to the plugin's enforcement.
func (r *round) enforce(ctx context.Context, e *entry, result Result) (Result, Outcome, bool) {
	if err := checkDenial(result.Denial); err != nil {
		return Errored(err), OutcomeErrored, true
	}
	if r.excepts && r.lift(ctx, e, result.Denial.Message) {
		return Allowed(), OutcomeAllowed, true
	}
	action, err := e.Settings.action(ctx, r.review, r.attributes)
	switch {
	case isRefusal(err): // the selector of an enforcement cannot be evaluated; the denial stays
	case err != nil:
		return Errored(err), OutcomeErrored, true
	case action == ActionWarn:
		return result, OutcomeWarned, true
	case action == ActionAudit:
		return result, OutcomeAudited, true
	}
	return result, OutcomeDenied, true
}

// annotate adds an audit annotation that says what the plugin did.
func (e *entry) annotate(response *codec.Response, what string) {
	_ = response.Annotate(e.plugin.Name, what) // NewChain has checked the key
}

// attribute returns the status of a denial with the plugin's name before the message and,
// unless the reason is Invalid, as a cause for programs, after one with the UID of the review. Long text is truncated.
func (e *entry) attribute(denial *codec.Status, uid string) codec.Status {
	status := *denial
	status.Message = e.plugin.Name + ": " + cmp.Or(denial.Message, "denied without explanation") // kube-apiserver's words
	status = truncate(status)
	// For this reason, kubectl shows the causes as invalid fields instead of the message.
	kubernetes := metav1.Status{Reason: metav1.StatusReason(denial.Reason), Code: denial.Code}
	if apierrors.IsInvalid(&apierrors.StatusError{ErrStatus: kubernetes}) {
		return status
	}
	status.Details.Causes = append(slices.Clip(status.Details.Causes),
		codec.Cause{Type: CauseAdmissionReview, Message: uid}, codec.Cause{Type: CauseAdmissionPlugin, Message: e.plugin.Name})
	return status
}

// CauseAdmissionPlugin is the type of a cause in the details of a denial. The message of
// this cause is the name of the plugin that denied.
const CauseAdmissionPlugin = "AdmissionPlugin"

// CauseAdmissionReview is the type of a cause in the details of a denial, and the key of an audit annotation. The
// message and the value are the UID of the review, with which "fastadmit replay --explain" finds the recorded review.
const CauseAdmissionReview = "AdmissionReview"

// uidBytesMax is the maximum length of that UID in bytes. kube-apiserver sends 36.
const uidBytesMax = 128
