package webhook

import (
	"context"
	"maps"
	"math"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/customresource/status"
	"github.com/fastadmit/fastadmit/internal/wake"
)

// conditionReady is true if the configuration is valid and all of its expressions
// compile.
const conditionReady = "Ready"

// runStatus writes the status of configurations after each refresh, until ctx ends.
func (r *resources) runStatus(ctx context.Context, refreshed, _ wake.Signal) {
	for refreshed.Wait(ctx, math.MaxInt64, 0) {
		r.writeStatus(ctx)
	}
}

// writeStatus writes the status of configurations whose status is outdated.
func (r *resources) writeStatus(ctx context.Context) {
	r.mu.Lock()
	names := slices.Sorted(maps.Keys(r.ready))
	r.mu.Unlock()
	for _, name := range names {
		if change, due := r.due(name); due {
			_ = change.Write(ctx, r.objects) // after an error, the next refresh tries again
		}
	}
}

// due returns the change of the status of a configuration, and whether it must be written.
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

// condition returns the condition Ready.
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
