package policy

import (
	"context"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/handlers/cluster"
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

	// statusTimeout bounds writing one status.
	statusTimeout = 5 * time.Second
	// typesTimeout bounds checking the types of one policy: for each kind the API
	// server is asked for its resources and its schema, and an environment is made.
	typesTimeout = 30 * time.Second
)

// writeStatus writes the status of policies of which it says something else. All
// replicas come to the same, so whoever is first writes it; each writes what it has to
// say once, so that two of different versions do not go on contradicting each other. It
// returns when it wants to be called again, 0 for no time of its own.
func (r *resources[P, B, E]) writeStatus(ctx context.Context) (again time.Duration) {
	for _, name := range r.names() {
		r.checkTypes(ctx, name)
		object, next, settled := r.desired(name)
		if !settled {
			again = settlePause
		}
		if object == nil {
			continue
		}
		writing, cancel := context.WithTimeout(ctx, statusTimeout)
		_, err := r.policies.UpdateStatus(writing, object)
		cancel()
		if err == nil { // otherwise it is tried again after the next change, or after a while
			r.wrote(name, next)
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
func (r *resources[P, B, E]) wrote(name, written string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.compiled[name]; c != nil {
		c.written = written
	}
}

// desired returns a policy with the status that is to be written, nil for none, and what
// that says. It is not settled while parameters are not listed yet.
func (r *resources[P, B, E]) desired(name string) (object *cluster.JSON, says string, settled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.compiled[name]
	if c == nil {
		return nil, "", true
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
	says = now.Says()
	if says == c.written {
		return nil, says, settled
	}
	if object = now.In(c.object); object == nil {
		c.written = says
	}
	return object, says, settled
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
