package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/customresource"
	"github.com/fastadmit/fastadmit/internal/customresource/status"
	"github.com/fastadmit/fastadmit/internal/wake"
)

// The conditions of a policy.
const (
	// conditionCompiled is true if the policy is valid and all of its expressions
	// compile.
	conditionCompiled = "Compiled"
	// conditionParameters is true if the objects of its paramKind are known; a policy
	// without paramKind, and one without bindings, does not have it.
	conditionParameters = "ParametersKnown"
	// conditionEnforced is true if all replicas enforce the policy with its bindings.
	conditionEnforced = "Enforced"

	// typesTimeout bounds checking the types of one policy, which asks the API server for the
	// resources and the schema of each kind.
	typesTimeout = 30 * time.Second
	// unansweredMax is how many requests in a row may have no answer. Then writeStatus ends,
	// and the next refresh tries again. So one policy does not delay the others, and an API
	// server that is down costs 15 seconds instead of 5 for each of hundreds of policies.
	unansweredMax = 3
)

// runStatus writes the status of policies after each refresh, until ctx ends. While
// parameters are not listed yet, it has the policies refreshed again after settlePause.
func (r *resources[P, B, E]) runStatus(ctx context.Context, refreshed, changed wake.Signal) {
	var settles <-chan time.Time
	for {
		select {
		case <-refreshed:
			if settles = nil; !r.writeStatus(ctx) {
				settles = time.After(settlePause)
			}
		case <-settles:
			settles = nil
			changed.Send()
		case <-ctx.Done():
			return
		}
	}
}

// writeStatus writes the status of policies whose status is another one. It reports whether
// the parameters of all policies are listed. A status that could not be written is due again
// after the next refresh.
func (r *resources[P, B, E]) writeStatus(ctx context.Context) (settled bool) {
	settled = true
	all := r.replicas.read(time.Now())
	unanswered := 0 // in a row
	types := newTypeChecker(r.schemas, r.discovery)
	for _, name := range r.names() {
		if time.Since(types.made) > servedAge {
			types = newTypeChecker(r.schemas, r.discovery)
		}
		typesErr := r.checkTypes(ctx, types, name)
		change, due, listed := r.due(name, all)
		settled = settled && listed
		var writeErr error
		if due {
			writeErr = change.Write(ctx, r.policies)
		}
		if isUnanswered(typesErr) || isUnanswered(writeErr) {
			unanswered++
		} else if due {
			unanswered = 0
		}
		if unanswered == unansweredMax || ctx.Err() != nil {
			return settled
		}
	}
	if r.exceptions != nil {
		r.exceptions.writeStatus(ctx, all, unanswered)
	}
	return settled
}

// isUnanswered reports whether an error is not an answer of the API server.
func isUnanswered(err error) bool {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	return err != nil && !answered
}

// checkTypes checks the types of a policy that compiles, once for each generation. If another
// replica has written the result, it takes that. The error means that the API server did not
// answer; the next call tries again.
func (r *resources[P, B, E]) checkTypes(ctx context.Context, types *typeChecker, name string) error {
	r.mu.Lock()
	c := r.compiled[name]
	if r.kind.checkTypes == nil || c == nil || c.typesChecked || c.err != nil || c.policy.compileErr != nil {
		r.mu.Unlock()
		return nil
	}
	object := c.object
	r.mu.Unlock()
	var checked *admissionregistrationv1.TypeChecking
	if has := status.Of(object); has.ObservedGeneration == object.GetGeneration() {
		checked = has.TypeChecking
	}
	if checked == nil {
		document := r.kind.newPolicy()
		if customresource.Decode(object, document) != nil {
			return nil // refreshPolicy decoded it before
		}
		checking, cancel := context.WithTimeout(ctx, typesTimeout)
		defer cancel()
		warnings, err := r.kind.checkTypes(checking, types, document)
		if err != nil {
			return err
		}
		checked = &admissionregistrationv1.TypeChecking{ExpressionWarnings: warnings}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.typeChecking, c.typesChecked = checked, true
	return nil
}

// due returns the change of the status of a policy. It is not settled while parameters are
// not listed yet.
func (r *resources[P, B, E]) due(name string, all reports) (change status.Change, due, settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.compiled[name]
	if c == nil {
		return change, false, true
	}
	now := &status.Status{ObservedGeneration: c.object.GetGeneration(), Conditions: []metav1.Condition{c.compiledCondition()}}
	now.TypeChecking = c.typeChecking
	settled = true
	if c.paramKind != nil {
		if condition, ok := r.parametersCondition(c); ok {
			now.Conditions = append(now.Conditions, condition)
			settled = condition.Status != metav1.ConditionUnknown
		}
	}
	enforced, changed := c.enforcedCondition(all, time.Now())
	now.Conditions = append(now.Conditions, enforced)
	change, due = c.writer.Due(c.object, now, changed)
	return change, isTurn(&c.dueSince, due, all, time.Now()), settled
}

// isTurn reports whether this replica writes a status that is due. The first replica writes it,
// so that ten replicas do not make ten requests for each policy. The others write it if the
// first has not done so within retryPause. since is when the status became due, zero if it is not.
func isTurn(since *time.Time, due bool, all reports, now time.Time) bool {
	switch {
	case !due:
		*since = time.Time{}
	case since.IsZero():
		*since = now
	}
	return due && (all.first || now.Sub(*since) >= retryPause)
}

// enforcedCondition returns the condition whether all replicas enforce the policy. changed
// reports whether the status has another one for this generation. The condition becomes true
// at once. It becomes false only after retryPause, because replicas see changes at different
// times: otherwise every change of a binding would cause two writes.
func (c *compiledPolicy[E]) enforcedCondition(all reports, now time.Time) (condition metav1.Condition, changed bool) {
	condition = metav1.Condition{Type: conditionEnforced, ObservedGeneration: c.object.GetGeneration()}
	if c.statusOf != c.object {
		c.statusOf, c.status = c.object, status.Of(c.object)
	}
	stored := c.status.Condition(conditionEnforced)
	if stored != nil && stored.ObservedGeneration != condition.ObservedGeneration {
		stored = nil
	}
	switch {
	case !all.known && stored != nil:
		return *stored, false
	case !all.known:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, "NotReported", "no replica has reported yet which policies it enforces"
		return condition, false
	case !c.bound:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "NoBindings", "no binding names it"
	default:
		condition.Status, condition.Reason, condition.Message = all.enforced(c.object.GetName(), c.revision)
	}
	if stored == nil || stored.Status == metav1.ConditionUnknown {
		return condition, stored != nil
	}
	changed = stored.Status != condition.Status || stored.Reason != condition.Reason || stored.Message != condition.Message
	if !changed || condition.Status == metav1.ConditionTrue {
		c.doubted = time.Time{}
		return condition, changed
	}
	if c.doubted.IsZero() {
		c.doubted = now
	}
	if now.Sub(c.doubted) < retryPause {
		return *stored, false
	}
	return condition, true
}

// compiledCondition returns the condition whether the policy can be evaluated.
func (c *compiledPolicy[E]) compiledCondition() metav1.Condition {
	if c.err != nil {
		return compiledCondition(c.object.GetGeneration(), c.err, nil)
	}
	return compiledCondition(c.object.GetGeneration(), nil, c.policy.compileErr)
}

// compiledCondition returns the condition of an object. invalid is why it is invalid, compileErr has the errors in its
// expressions.
func compiledCondition(generation int64, invalid, compileErr error) metav1.Condition {
	condition := metav1.Condition{
		Type: conditionCompiled, Status: metav1.ConditionTrue, Reason: "Compiled", Message: "all expressions compile",
		ObservedGeneration: generation,
	}
	err, reason := invalid, "Invalid"
	if err == nil {
		err, reason = compileErr, "CompilationFailed"
	}
	if err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, reason
		condition.Message = status.Message(err)
	}
	return condition
}

// parametersCondition returns the condition whether the objects of a policy's paramKind are
// known. ok is false if no policy uses them.
func (r *resources[P, B, E]) parametersCondition(c *compiledPolicy[E]) (condition metav1.Condition, ok bool) {
	kind, watched := r.params.of(*c.paramKind)
	if !watched {
		return condition, false
	}
	condition = metav1.Condition{
		Type: conditionParameters, Status: metav1.ConditionTrue, Reason: "Watched", Message: fmt.Sprintf("%s are watched", kind),
		ObservedGeneration: c.object.GetGeneration(),
	}
	if err, waiting := r.params.unready(*c.paramKind); waiting {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionUnknown, "NotListed", "waiting for the API server"
	} else if err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, "CannotWatch"
		condition.Message = status.Message(err)
	}
	return condition, true
}
