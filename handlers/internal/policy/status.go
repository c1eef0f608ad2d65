package policy

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/handlers/internal/status"
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

	// typesTimeout bounds checking the types of one policy: for each kind the API
	// server is asked for its resources and its schema, and an environment is made.
	typesTimeout = 30 * time.Second
)

// writeStatus writes the status of policies of which it says something else. It returns
// when it wants to be called again, 0 for no time of its own.
func (r *resources[P, B, E]) writeStatus(ctx context.Context) (again time.Duration) {
	all := r.replicas.read(time.Now())
	for _, name := range r.names() {
		r.checkTypes(ctx, name)
		change, due, settled := r.due(name, all)
		if !settled {
			again = settlePause
		}
		if due && change.Write(ctx, r.policies) == nil { // otherwise it is tried again after the next change, or after a while
			r.wrote(name, change)
		}
	}
	return again
}

// checkTypes checks the types of a policy that compiles, once for each generation: whoever
// comes second finds what the first one wrote. When the API server does not answer, that is
// tried again later.
func (r *resources[P, B, E]) checkTypes(ctx context.Context, name string) {
	r.mu.Lock()
	c := r.compiled[name]
	if r.kind.checkTypes == nil || c == nil || c.typesChecked || c.err != nil || c.policy.compileErr != nil {
		r.mu.Unlock()
		return
	}
	object := c.object
	r.mu.Unlock()
	var checked *admissionregistrationv1.TypeChecking
	if has := status.Of(object); has.ObservedGeneration == object.GetGeneration() {
		checked = has.TypeChecking
	}
	if checked == nil {
		document := r.kind.newPolicy()
		if decodeStored(object, document) != nil {
			return // it was read before
		}
		checking, cancel := context.WithTimeout(ctx, typesTimeout)
		defer cancel()
		warnings, err := r.kind.checkTypes(checking, &typeChecker{r.schemas, r.discovery, make(map[schema.GroupVersion]meta.RESTMapper)}, document)
		if err != nil {
			return
		}
		checked = &admissionregistrationv1.TypeChecking{ExpressionWarnings: warnings}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.typeChecking, c.typesChecked = checked, true
}

// wrote notes that a status is written.
func (r *resources[P, B, E]) wrote(name string, change status.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.compiled[name]; c != nil {
		c.writer.Wrote(change)
	}
}

// due returns how the status of a policy is to be changed. It is not settled while
// parameters are not listed yet.
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
	if !due {
		c.dueSince = time.Time{}
		return change, false, settled
	}
	return change, c.isTurn(all, time.Now()), settled
}

// isTurn reports whether this replica is to write a status that is due. The first replica
// does, so that ten replicas do not make ten requests for each policy; the others do when it
// has not for a while.
func (c *compiledPolicy[E]) isTurn(all reports, now time.Time) bool {
	if c.dueSince.IsZero() {
		c.dueSince = now
	}
	return all.first || now.Sub(c.dueSince) >= retryPause
}

// enforcedCondition says whether all replicas enforce the policy, and whether its status
// says something else about this generation. That they do is said at once. That they no longer do is only said
// after a while, because replicas see changes at different times: otherwise every change of
// a binding would be two writes.
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

// compiledCondition says whether the policy can be evaluated.
func (c *compiledPolicy[E]) compiledCondition() metav1.Condition {
	condition := metav1.Condition{
		Type: conditionCompiled, Status: metav1.ConditionTrue, Reason: "Compiled", Message: "all expressions compile",
		ObservedGeneration: c.object.GetGeneration(),
	}
	err, reason := c.err, "Invalid"
	if err == nil {
		err, reason = c.policy.compileErr, "CompilationFailed"
	}
	if err != nil {
		condition.Status, condition.Reason = metav1.ConditionFalse, reason
		condition.Message = status.Message(err)
	}
	return condition
}

// parametersCondition says whether the objects of a policy's paramKind are known; ok
// is false if nobody uses them.
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
