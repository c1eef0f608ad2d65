package webhook

import (
	"errors"
	"strings"

	"github.com/fastadmit/fastadmit/admission"
)

// Explain makes d describe in x which webhooks are asked, and what they decide. If x is nil, it does nothing. Call it after
// Begin, and the result before End.
func (d *Dispatch) Explain(x *admission.Explanation) (finish func()) {
	if x == nil {
		return func() {}
	}
	d.explained = x
	d.Dispatch.Explain(x)
	return func() {
		for _, w := range x.Webhooks {
			if w.Asked && w.Outcome == "" {
				w.Asked, w.Why = false, endedBefore
			}
		}
		for _, w := range d.webhooks.All()[d.seen:] {
			x.AddWebhook(admission.WebhookExplanation{Webhook: w.Name, Configuration: w.Configuration, Why: endedBefore})
		}
	}
}

const endedBefore = "the review ended before it was called"

// Explained adds a webhook after Matches. called is true if it will be called in this pass, from 1; otherwise, why may say
// why not, if Matches does not. ended is a result of Matches. It returns what Decided completes, nil without Explain.
func (d *Dispatch) Explained(w *Webhook, pass int, called bool, why string, ended *admission.Result) *admission.WebhookExplanation {
	if !d.Explains() || pass > 1 && !called && ended == nil {
		return nil
	}
	if pass == 1 {
		d.seen++
	}
	x := admission.WebhookExplanation{Webhook: w.Name, Configuration: w.Configuration, Pass: pass, Asked: called || ended != nil, Why: why}
	if why == "" {
		x.Why, x.Expressions = w.explain(d)
	}
	switch {
	case ended == nil:
	case ended.Denial != nil:
		x.Outcome, x.Message = admission.OutcomeDenied.String(), strings.Clone(ended.Denial.Message)
	default:
		x.Outcome, x.Message = admission.OutcomeErrored.String(), strings.Clone(ended.Err.Error())
	}
	return d.explained.AddWebhook(x)
}

// explain says which rule, selector or match condition decides whether the webhook is called.
func (w *Webhook) explain(d *Dispatch) (why string, conditions []admission.ExpressionExplanation) {
	if !w.rules {
		return "it has no rules", nil
	}
	selected, why := w.matcher.Explain(&d.Dispatch)
	if !selected || w.invalid != nil || len(w.conditions) == 0 {
		return why, nil
	}
	d.input()
	other, conditions := d.ExplainConditions(w.compiler, w.conditions)
	if other != "" {
		why = other
	}
	return why, conditions
}

// Decided completes what Explained returned, also if that is nil: with whether the webhook changed the object, or err if it
// denied, failed, or could not be called.
func (w *Webhook) Decided(x *admission.WebhookExplanation, changed bool, err error) {
	if x == nil {
		return
	}
	if x.Outcome = admission.OutcomeAllowed.String(); changed {
		x.Outcome = admission.OutcomePatched.String()
	}
	if err == nil {
		return
	}
	x.Outcome, x.Message = admission.OutcomeErrored.String(), strings.Clone(err.Error())
	if _, denied := errors.AsType[*DenialError](err); denied {
		x.Outcome = admission.OutcomeDenied.String()
	}
	if _, failed := errors.AsType[*CallError](err); failed && w.Ignores {
		x.Message += " (ignored, as its failurePolicy says)"
	}
}
