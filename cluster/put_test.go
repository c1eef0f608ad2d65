package cluster

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func put(t *testing.T, s *State, document string, want bool) {
	t.Helper()
	if got, err := s.NewPutter().Put([]byte(document)); err != nil || got != want {
		t.Errorf("%s: got %t, %v, want %t", document, got, err, want)
	}
}

func TestPut(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}
	s, err := New(Options{Objects: []runtime.Object{&corev1.Namespace{ObjectMeta: meta}}})
	if err != nil {
		t.Fatal(err)
	}
	needs := []Need{Namespaces.Watched(), ServiceAccounts.Watched(), ResourceQuotas.Watched(),
		ResourceQuotas.CalledStatus("update"), SubjectAccessReviews.Called("create")}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	view := s.View(needs...)
	put(t, s, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","labels":{"team":"b"}},"future":1}`, true)
	put(t, s, `{"kind":"Namespace","apiVersion":"v2","metadata":{"name":"other"}}`, false)
	put(t, s, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"other"}}`, false)
	put(t, s, `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","metadata":{"name":"other"}}`, false)
	put(t, s, `{"kind":"ResourceQuota","apiVersion":"v1","metadata":{"name":"q","namespace":"shop"},"spec":{"hard":{"pods":"3"}}}`, true)
	n, ok := Namespaces.In(view).Cached("", "shop")
	if !ok || n.Labels["team"] != "b" || n.Labels[corev1.LabelMetadataName] != "shop" || n.Status.Phase != corev1.NamespaceActive {
		t.Errorf("got %+v, want the Namespace that was put, with its defaults", n)
	}
	if _, ok := ServiceAccounts.In(view).Cached("shop", "default"); !ok {
		t.Error("got a new Namespace without the default ServiceAccount")
	}
	q, ok := ResourceQuotas.In(view).Cached("shop", "q")
	if used, hard := q.Status.Used["pods"], q.Status.Hard["pods"]; !ok || used.Value() != 0 || hard.Value() != 3 {
		t.Errorf("got quota %+v, want nothing used of 3 pods", q)
	}
	if _, err := s.NewPutter().Put([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":1}`)); err == nil {
		t.Error("got no error for a Namespace that is none")
	}
	own := `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"default","namespace":"own"},` +
		`"automountServiceAccountToken":false}`
	put(t, s, own, true)
	put(t, s, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"own"}}`, true)
	if a, _ := ServiceAccounts.In(view).Cached("own", "default"); a.AutomountServiceAccountToken == nil {
		t.Error("got another default ServiceAccount than the one that was put")
	}
}

// TestPutStays puts a Namespace into the State of a cluster that has it, too, and whose
// watch continues.
func TestPutStays(t *testing.T) {
	a := newAPIServer(t)
	a.put(namespace("shop", "team", "a"))
	a.put(namespace("other", "team", "a"))
	s := a.newState(Options{})
	run(t, s)
	put(t, s, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"shop","labels":{"team":"mine"}}}`, true)
	put(t, s, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"new","labels":{"team":"mine"}}}`, true)
	seen := func(want string) bool {
		return team(t, s, "shop") == "mine" && team(t, s, "new") == "mine" && team(t, s, "other") == want
	}
	if !seen("a") {
		t.Error("got other labels than those that were put")
	}
	a.put(namespace("shop", "team", "b"))
	a.put(namespace("other", "team", "b"))
	eventually(t, "what was not put follows the cluster", func() bool { return seen("b") })
	live, err := namespacesIn(s).GetLive(context.Background(), "", "shop")
	if err != nil || live.Labels["team"] != "mine" {
		t.Errorf("got %v, %v, want the Namespace that was put", live, err)
	}
}
