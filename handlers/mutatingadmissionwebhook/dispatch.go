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
	"github.com/fastadmit/fastadmit/internal/policy"
	"github.com/fastadmit/fastadmit/internal/policy/patching"
	"github.com/fastadmit/fastadmit/internal/turns"
)

// A dispatch calls the webhooks for one review (upstream's dispatcher.go and
// reinvocationcontext.go).
type dispatch struct {
	*webhook.Dispatch
	round  int
	passes int // that have begun

	changed   bool           // a webhook changed the object
	called    map[int32]bool // places of the webhooks to call again if the object changes
	again     map[int32]bool // places of the webhooks to call again in the next round
	reinvoked bool           // all webhooks with the reinvocationPolicy IfNeeded are called
}

// admit calls the webhooks. If one of them changes the object, a second round calls the webhooks
// with the reinvocationPolicy IfNeeded that were called before it. The second round also evaluates
// the match conditions of the other webhooks, and denies if one fails: kube-apiserver calls all
// mutating plugins again when a webhook has changed the object. If another plugin changes the object
// after this one, the chain calls admit again with reinvocation set: it calls all webhooks with that
// policy.
func (d *dispatch) admit(reinvocation bool) *admission.Result {
	if reinvocation {
		d.round, d.reinvoked = 1, true
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
	d.passes++
	generation := patching.Generation(&d.Object, d.Kind())
	defer func() {
		if d.changed {
			patching.KeepGeneration(&d.Object, generation)
		}
	}()
	for candidate := range d.Candidates() {
		if ended := d.invoke(candidate); ended != nil {
			return ended
		}
	}
	return nil
}

// invoke calls the webhook of a candidate, if it matches. A result ends the review.
func (d *dispatch) invoke(candidate *policy.Candidate[*webhook.Webhook]) *admission.Result {
	i, w := candidate.Place, candidate.Of
	matches, ended, err := d.Matches(candidate)
	called := matches && (d.round == 0 || d.again[i] || d.reinvoked && w.Reinvokes)
	why := ""
	if matches && !called {
		why = "its reinvocationPolicy is Never"
	}
	explained := d.Explained(w, d.passes, called, why, ended)
	if ended != nil || !called {
		return ended
	}
	changed := false
	if err == nil {
		c, ok := d.Prepare(w, true)
		if !ok {
			return new(admission.Allowed()) // the chain replaces it by a denial or a failure
		}
		changed, err = d.call(c, int(i))
		if d.Err() != nil {
			return new(admission.Allowed()) // the same
		}
	}
	w.Decided(explained, changed, err)
	d.AnnotateMutation(w, d.round, int(i), changed)
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
		return nil
	}
	return d.Conclude(w, err, fmt.Sprintf("mutation.round_%d_index_%d", d.round, i))
}

// call calls a webhook and applies its answer.
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

// operationBytes is the memory of a decoded patch operation: a map with pointers to its texts.
const operationBytes = 512

// apply applies the patch of an answer to the object.
func (d *dispatch) apply(c *webhook.Call, index int) (changed bool, err error) {
	w, answer := c.Webhook, c.Answer
	if len(answer.Patch) == 0 {
		return false, nil
	}
	root := d.Object.Root()
	taken := bytes.Count(answer.Patch, []byte("{")) * operationBytes
	if !d.Object.Fits(taken) || !root.FitsDecoded() || !d.Borrow(c, taken) {
		return false, nil // Err of the review has the error
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
	if d.Explains() {
		d.AddChanges(admission.Change{Webhook: w.Name}, before, after)
	}
	d.AnnotatePatch(w, d.round, index, operations)
	return d.Object.Changes() != changes, nil
}
