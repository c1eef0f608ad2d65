package mutatingadmissionwebhook

import (
	"bytes"
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/handlers/internal/webhook"
	"github.com/fastadmit/fastadmit/internal/policy/patching"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// A dispatch is one review on its way through the webhooks (upstream's dispatcher.go and
// reinvocationcontext.go).
type dispatch struct {
	*webhook.Dispatch
	round int

	changed bool         // a webhook changed the object
	called  map[int]bool // those to call again once the object changes, by place
	again   map[int]bool // those to call again
}

// admit calls the webhooks, and those again whose reinvocationPolicy is IfNeeded and
// which were called before one that changed the object. kube-apiserver calls all mutating
// plugins again when a webhook has changed something, so the others are matched again too,
// and match conditions that fail then deny. In a reinvocation of the plugin,
// because another plugin changed the object after it, all with that policy are called.
func (d *dispatch) admit(reinvocation bool) *admission.Result {
	if reinvocation {
		for i, w := range d.Webhooks {
			d.again[i] = w.Reinvokes
		}
		d.round = 1
		return d.pass()
	}
	if ended := d.pass(); ended != nil || !d.changed {
		return ended
	}
	d.round = 1
	return d.pass()
}

// pass calls the webhooks of a round, in order. A result ends the review.
func (d *dispatch) pass() *admission.Result {
	for i, w := range d.Webhooks {
		matches, ended, err := w.Matches(d.Dispatch)
		switch {
		case ended != nil:
			return ended
		case !matches || d.round > 0 && !d.again[i]:
			continue
		}
		changed := false
		if err == nil {
			c, ok := d.Prepare(w, true)
			if !ok {
				return new(admission.Allowed()) // which the chain makes a denial or a failure of
			}
			changed, err = d.call(c, i)
			if d.Err() != nil {
				return new(admission.Allowed()) // the same
			}
		}
		d.AnnotateMutation(w, d.round, i, changed)
		if changed {
			for called := range d.called {
				d.again[called] = true
			}
			clear(d.called)
			d.changed = true
			d.Changed()
		}
		if w.Reinvokes {
			d.called[i] = true
		}
		if err == nil {
			continue
		}
		if ended := d.Conclude(w, err, fmt.Sprintf("mutation.round_%d_index_%d", d.round, i)); ended != nil {
			return ended
		}
	}
	return nil
}

// call calls a webhook, and does what it says.
func (d *dispatch) call(c *webhook.Call, index int) (changed bool, err error) {
	turns.Leave(d.Ctx) // the webhook may take long to answer
	c.Do()
	defer c.Return()
	d.Take(c.Webhook, c.Answer)
	if c.Err != nil {
		return false, c.Err
	}
	return d.apply(c, index)
}

// operationBytes is what an operation takes in memory: a map of pointers to its texts.
const operationBytes = 512

// apply does to the object what the patch of an answer says.
func (d *dispatch) apply(c *webhook.Call, index int) (changed bool, err error) {
	w, answer := c.Webhook, c.Answer
	if len(answer.Patch) == 0 {
		return false, nil
	}
	root := d.Object.Root()
	taken := bytes.Count(answer.Patch, []byte("{")) * operationBytes
	if !d.Object.Fits(taken) || !root.FitsDecoded() || !d.Borrow(c, taken) {
		return false, nil // which Err says
	}
	operations, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		// Kubernetes v1.33 answers with an internal error, whatever the failure policy
		// (k8s.io/apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go callAttrMutatingHook).
		if !d.Version().AtLeast(1, 34) {
			return false, apierrors.NewInternalError(err)
		}
		return false, w.Unusable(fmt.Errorf("received undecodable patch in webhook response: %w", err))
	}
	if len(operations) == 0 {
		return false, nil
	}
	if root.Kind() != codec.KindObject {
		return false, apierrors.NewInternalError(fmt.Errorf(
			"admission webhook %q attempted to modify the object, which is not supported for this operation", w.Name))
	}
	if answer.PatchType != admissionv1.PatchTypeJSONPatch {
		return false, w.Unusable(fmt.Errorf("unsupported patch type %q", answer.PatchType))
	}
	before := root.AppendJSON(nil)
	after, err := patching.Apply(d.Ctx, operations, before)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if after = bytes.TrimSpace(after); len(after) == 0 || after[0] != '{' {
		return false, apierrors.NewInternalError(errors.New("the patched object is not a JSON object"))
	}
	// In-tree, the object is then decoded into its Go type (dispatcher.go callAttrMutatingHook).
	after, _, err = patching.Encode(d.Kind(), before, after, !d.Version().AtLeast(1, 34))
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	changes, length := d.Object.Changes(), d.Object.TextLen()
	if err := diff.Change(&d.Object, before, after); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if !d.Keep(c, d.Object.TextLen()-length) {
		return false, nil // the same
	}
	d.AnnotatePatch(w, d.round, index, operations)
	return d.Object.Changes() != changes, nil
}
