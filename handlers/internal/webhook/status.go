package webhook

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/policy/status"
)

// conditionReady is true if the configuration is valid and all of its expressions
// compile.
const conditionReady = "Ready"

// keepStatus writes the status of configurations after each change, until ctx ends. It is not
// part of the loop that makes them ready, because other rules are registered also while the
// API server does not answer writes.
func (r *resources) keepStatus(ctx context.Context, changed <-chan struct{}) {
	for {
		select {
		case <-changed:
			r.writeStatus(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// writeStatus writes the status of configurations of which it says something else.
func (r *resources) writeStatus(ctx context.Context) {
	r.mu.Lock()
	names := slices.Sorted(maps.Keys(r.ready))
	r.mu.Unlock()
	for _, name := range names {
		change, due := r.due(name)
		if due && change.Write(ctx, r.objects) == nil { // otherwise it is tried again after the next change, or after a while
			r.wrote(name, change)
		}
	}
}

// wrote notes that a status is written.
func (r *resources) wrote(name string, change status.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if made := r.ready[name]; made != nil {
		made.writer.Wrote(change)
	}
}

// due returns how the status of a configuration is to be changed.
func (r *resources) due(name string) (change status.Change, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	made := r.ready[name]
	if made == nil {
		return change, false
	}
	now := &status.Status{ObservedGeneration: made.object.GetGeneration(), Conditions: []metav1.Condition{made.condition()}}
	return made.writer.Due(made.object, now, false)
}

// condition says whether the webhooks are called as the configuration says.
func (m *readyResource) condition() metav1.Condition {
	condition := metav1.Condition{
		Type: conditionReady, Status: metav1.ConditionTrue, Reason: "Valid", Message: "its webhooks are called",
		ObservedGeneration: m.object.GetGeneration(),
	}
	if m.err != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "Invalid", status.Message(m.err)
	}
	return condition
}
