package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func quota(name string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: name}}
	q.Status.Used = corev1.ResourceList{"pods": *resource.NewQuantity(1, resource.DecimalSI)}
	return q
}

// TestFilesTakeWrites has files instead of an API server.
func TestFilesTakeWrites(t *testing.T) {
	s, err := New(Options{Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	view := s.View(ResourceQuotas.Watched(), ResourceQuotas.Called("create", "delete"), ResourceQuotas.CalledStatus("update"),
		SubjectAccessReviews.Called("create"))
	quotas, ctx := ResourceQuotas.In(view), t.Context()
	created, err := quotas.Create(ctx, quota("q"))
	if err != nil || created.ResourceVersion == "" {
		t.Fatal(created, err)
	}
	if _, err := quotas.Create(ctx, quota("q")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("twice: got %v", err)
	}
	if _, err := quotas.Create(ctx, quota("p")); err != nil {
		t.Error(err)
	}
	changed := created.DeepCopy()
	changed.Status.Used["pods"] = *resource.NewQuantity(2, resource.DecimalSI)
	updated, err := quotas.UpdateStatus(ctx, changed)
	if err != nil || updated.ResourceVersion == created.ResourceVersion || updated.Status.Used.Pods().Value() != 2 {
		t.Errorf("got %v, %v", updated, err)
	}
	if _, err := quotas.UpdateStatus(ctx, changed); !apierrors.IsConflict(err) {
		t.Errorf("an old version: got %v", err)
	}
	if _, err := quotas.UpdateStatus(ctx, quota("none")); !apierrors.IsNotFound(err) {
		t.Errorf("of nothing: got %v", err)
	}
	if err := quotas.Delete(ctx, "one", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("deleting nothing: got %v", err)
	}
	if _, err := quotas.Create(ctx, quota("gone")); err != nil {
		t.Error(err)
	}
	if err := quotas.Delete(ctx, "one", "gone"); err != nil {
		t.Error(err)
	}
	if _, ok := quotas.Cached("one", "gone"); ok {
		t.Error("the cache has what was deleted")
	}
	if got, ok := quotas.Cached("one", "q"); !ok || got.Status.Used.Pods().Value() != 2 {
		t.Errorf("the cache has %v", got)
	}
	if got := all(quotas.List("one")); len(got) != 2 || got[0].Name != "p" {
		t.Errorf("got %v, want both by name", got)
	}
	for namespace, want := range map[string]int{"": 2, "one": 2, "two": 0} {
		if got, err := quotas.ListLive(ctx, namespace); err != nil || len(got) != want {
			t.Errorf("%q: got %v, %v, want %d", namespace, got, err, want)
		}
	}
	if created.Status.Used.Pods().Value() != 1 {
		t.Error("what was returned before has changed")
	}
	if _, err := SubjectAccessReviews.In(view).Create(ctx, &authorizationv1.SubjectAccessReview{}); !errors.Is(err, errNoAPIServer) {
		t.Errorf("got %v, want that there is nobody to ask", err)
	}
}

// TestWrites sends writes to an API server.
func TestWrites(t *testing.T) {
	a := newAPIServer(t)
	s := a.newState(Options{})
	needs := []Need{Namespaces.Called("create", "list", "delete"), Namespaces.CalledStatus("update")}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	n := Namespaces.In(s.View(needs...))
	var answer func(w http.ResponseWriter, r *http.Request)
	var deleted atomic.Value // a request that the client gave up may arrive late
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			return false
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		if r.Method == http.MethodDelete {
			deleted.Store(r.Method + " " + r.URL.Path)
		}
		answer(w, r)
		return true
	})
	f := func(result int, code func(error) bool, do func(w http.ResponseWriter, r *http.Request)) {
		t.Helper()
		answer = do
		counted := func() (counts [3]uint64) {
			for i, verb := range [...]int{verbCreate, verbUpdate, verbDelete} {
				counts[i] = s.find(Namespaces.Kind).live[verb][result].Get()
			}
			return counts
		}
		before := counted()
		got, err := n.Create(t.Context(), namespace("one"))
		if !code(err) || err == nil && got.Labels["answer"] != "POST /api/v1/namespaces" {
			t.Errorf("create: got %v, %v", got, err)
		}
		got, err = n.UpdateStatus(t.Context(), namespace("one"))
		if !code(err) || err == nil && got.Labels["answer"] != "PUT /api/v1/namespaces/one/status" {
			t.Errorf("update: got %v, %v", got, err)
		}
		deleted.Store("")
		err = n.Delete(t.Context(), "", "one")
		gaveUp := errors.Is(err, context.DeadlineExceeded)
		if path := deleted.Load(); !code(err) || path != "DELETE /api/v1/namespaces/one" && (!gaveUp || path != "") {
			t.Errorf("delete: got %v of %q", err, path)
		}
		if after := counted(); after != [3]uint64{before[0] + 1, before[1] + 1, before[2] + 1} {
			t.Errorf("%s: counted %v, then %v", results[result], before, after)
		}
	}
	f(done, func(err error) bool { return err == nil }, func(w http.ResponseWriter, r *http.Request) {
		a.write(w, r, http.StatusOK, namespace("one", "answer", r.Method+" "+r.URL.Path))
	})
	f(conflict, apierrors.IsConflict, func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, apierrors.NewConflict(Namespaces.Resource(), "one", errors.New("modified")))
	})
	f(conflict, apierrors.IsAlreadyExists, func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, apierrors.NewAlreadyExists(Namespaces.Resource(), "one"))
	})
	f(failed, apierrors.IsForbidden, func(w http.ResponseWriter, r *http.Request) {
		a.fail(w, r, apierrors.NewForbidden(Namespaces.Resource(), "one", errors.New("no RBAC")))
	})
	s.find(Namespaces.Kind).timing.live = 100 * time.Millisecond
	f(failed, func(err error) bool {
		return errors.Is(err, context.DeadlineExceeded) && strings.HasPrefix(err.Error(), "cluster state: cannot ")
	}, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })

	s.find(Namespaces.Kind).timing.live = time.Minute
	a.put(namespace("one"))
	a.put(namespace("two"))
	if got, err := n.ListLive(t.Context(), ""); err != nil || len(got) != 2 || got[0].Spec.Finalizers == nil && got[0].UID == "" {
		t.Errorf("got %v, %v, want both, whole", got, err)
	}
}

// TestReadOnly writes through a View that is read-only: nothing is written but a SubjectAccessReview is asked.
func TestReadOnly(t *testing.T) {
	asked := 0
	s, err := New(Options{Embedded: true, Authorize: func(context.Context, *authorizationv1.SubjectAccessReview) { asked++ }})
	if err != nil {
		t.Fatal(err)
	}
	log, set := slog.New(slog.DiscardHandler), metrics.NewSet()
	view := s.View(ResourceQuotas.Watched(), ResourceQuotas.Called("create", "delete"), ResourceQuotas.CalledStatus("update"),
		SubjectAccessReviews.Called("create"))
	ctx := t.Context()
	created, err := ResourceQuotas.In(view).Create(ctx, quota("q"))
	if err != nil {
		t.Fatal(err)
	}
	reads := view.ReadOnly(log, set)
	if view.IsReadOnly() || !reads.IsReadOnly() || reads.Log() != log || reads.Metrics() != set || view.Metrics() == set {
		t.Error("got the wrong View, log or set")
	}
	quotas := ResourceQuotas.In(reads)
	changed := created.DeepCopy()
	changed.Status.Used["pods"] = *resource.NewQuantity(2, resource.DecimalSI)
	_, createErr := quotas.Create(ctx, quota("p"))
	_, updateErr := quotas.UpdateStatus(ctx, changed)
	for what, err := range map[string]error{"create": createErr, "update": updateErr, "delete": quotas.Delete(ctx, "one", "q")} {
		if !errors.Is(err, ErrReadOnly) {
			t.Errorf("%s: got %v, want ErrReadOnly", what, err)
		}
	}
	if all, err := quotas.List(""); err != nil || len(all) != 1 || all[0].Status.Used.Pods().Value() != 1 {
		t.Errorf("got %v, %v, want the quota unchanged", all, err)
	}
	if _, err := AccessIn(reads).ReviewUncached(ctx, &authorizationv1.SubjectAccessReviewSpec{User: "a"}); err != nil || asked != 1 {
		t.Errorf("got %v, asked %d times, want once", err, asked)
	}
}
