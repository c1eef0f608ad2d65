package certs

import (
	"context"
	"fmt"
	"time"
)

// replicasMax is how long Replicas waits: somebody waits for a page, perhaps because the API server does not answer.
const replicasMax = time.Second

// A Registration is a webhook configuration as it was read last.
type Registration struct {
	Kind, Name string
	// Webhooks is how many of its webhooks call this server.
	Webhooks int
	// Written is when somebody wrote it last, and By under which name, as in metadata.managedFields. Both are zero if that is not known.
	Written time.Time
	By      string
	// Fault is why it could not be read or written in the last pass, empty if it could.
	Fault string
}

// Registrations returns the webhook configurations that the Manager registers, or whose caBundles it sets; none before they were
// read.
func (m *Manager) Registrations() []Registration {
	if all := m.shown.Load(); all != nil {
		return *all
	}
	return nil
}

// Replicas reads Options.Deployment, and returns a sentence about its replicas; "" without one. Several goroutines may call it.
func (m *Manager) Replicas(ctx context.Context) string {
	if m.o.Deployment == "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, replicasMax)
	defer cancel()
	d, err := m.deployment(ctx)
	if err != nil {
		return "The replicas are not known: " + err.Error()
	}
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	return fmt.Sprintf("Replicas: %d of %d ready, %d with the current pod template.", d.Status.ReadyReplicas, wanted, d.Status.UpdatedReplicas)
}

// show publishes the registrations.
func (m *Manager) show() {
	var all []Registration
	for _, r := range m.registrations {
		if r.live == nil && r.fault == "" {
			continue // there is none, and none is wanted
		}
		shown := Registration{Kind: r.kind.kind, Name: r.name, Fault: m.redact(r.fault)}
		if r.live != nil {
			shown.Webhooks = len(m.ours(r, r.live))
			for _, written := range r.live.GetManagedFields() {
				if written.Time != nil && written.Time.After(shown.Written) {
					shown.Written, shown.By = written.Time.Time, written.Manager
				}
			}
		}
		all = append(all, shown)
	}
	m.shown.Store(&all)
}
