package webhook

import (
	"context"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/handlers/cluster"
	"github.com/fastadmit/fastadmit/handlers/internal/status"
)

const (
	// conditionReady is true if the configuration is valid and all of its expressions
	// compile.
	conditionReady = "Ready"

	// statusTimeout bounds writing one status.
	statusTimeout = 5 * time.Second
)

// writeStatus writes the status of configurations of which it says something else. All
// replicas come to the same, so whoever is first writes it; each writes what it has to say
// once, so that two of different versions do not go on contradicting each other.
func (r *resources) writeStatus(ctx context.Context) {
	r.mu.Lock()
	names := slices.Sorted(maps.Keys(r.ready))
	r.mu.Unlock()
	for _, name := range names {
		object, says := r.desired(name)
		if object == nil {
			continue
		}
		writing, cancel := context.WithTimeout(ctx, statusTimeout)
		_, err := r.objects.UpdateStatus(writing, object)
		cancel()
		if err == nil { // otherwise it is tried again after the next change, or after a while
			r.wrote(name, says)
		}
	}
}

// wrote notes that a status is written.
func (r *resources) wrote(name, written string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if made := r.ready[name]; made != nil {
		made.written = written
	}
}

// desired returns a configuration with the status that is to be written, nil for none, and
// what that says.
func (r *resources) desired(name string) (object *cluster.JSON, says string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	made := r.ready[name]
	if made == nil {
		return nil, ""
	}
	now := &status.Status{ObservedGeneration: made.object.GetGeneration(), Conditions: []metav1.Condition{made.condition()}}
	says = now.Says()
	if says == made.written {
		return nil, says
	}
	if object = now.In(made.object); object == nil {
		made.written = says
	}
	return object, says
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
