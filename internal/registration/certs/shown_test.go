package certs

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestRegistrations tests what is known about a registration: who wrote it last, also if that is somebody else, and a fault.
func TestRegistrations(t *testing.T) {
	m := new(Manager)
	if got := m.Registrations(); got != nil {
		t.Errorf("before a pass: got %v, want none", got)
	}
	live := new(unstructured.Unstructured)
	live.Object = map[string]any{"webhooks": []any{map[string]any{"name": "a"}, map[string]any{"name": "b"}}}
	first := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	live.SetManagedFields([]metav1.ManagedFieldsEntry{
		{Manager: "fastadmit", Time: new(metav1.NewTime(first))},
		{Manager: "kubectl-edit", Time: new(metav1.NewTime(first.Add(time.Hour)))},
		{Manager: "unknown"},
	})
	m.registrations = []*registration{
		{kind: mutating, name: "fastadmit", complete: true, live: live}, {kind: validating, name: "fastadmit", complete: true},
		{kind: validating, name: "other", fault: "cannot read it"},
	}
	m.show()
	got := m.Registrations()
	if len(got) != 2 || got[0].Webhooks != 2 || got[0].By != "kubectl-edit" || !got[0].Written.Equal(first.Add(time.Hour)) ||
		!strings.HasPrefix(got[0].Kind, "Mutating") || got[1].Name != "other" || got[1].Fault != "cannot read it" {
		t.Errorf("got %+v", got)
	}
}

// TestReplicas reads the Deployment: one with the default of replicas, one with more, and none.
func TestReplicas(t *testing.T) {
	inStand(t, func(s *stand) {
		r := s.start(s.withDeployment())
		f := func(want string) {
			t.Helper()
			if got := r.Replicas(s.t.Context()); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		f("Replicas: 0 of 1 ready, 0 with the current pod template.")
		s.remove("deployments", "fastadmit")
		f("The replicas are not known: cannot read Deployment fastadmit/fastadmit: there is none")
		s.create("deployments", &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "fastadmit", Name: "fastadmit"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(3))},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 2, UpdatedReplicas: 1},
		})
		f("Replicas: 2 of 3 ready, 1 with the current pod template.")
	})
	if got := new(Manager).Replicas(t.Context()); got != "" {
		t.Errorf("without a Deployment: got %q", got)
	}
}
