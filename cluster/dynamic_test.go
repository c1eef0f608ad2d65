package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// configMapsOnly answers discovery: the API server has only ConfigMaps, and refuses requests
// about the group "broken".
func configMapsOnly(w http.ResponseWriter, r *http.Request) bool {
	switch r.URL.Path {
	case "/apis/broken/v1":
		w.WriteHeader(http.StatusForbidden)
		return true
	case "/api/v1":
	default:
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[`+
		`{"name":"configmaps/status","kind":"ConfigMap","namespaced":true,"verbs":[]},`+
		`{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":[]}]}`)
	return true
}

// newDynamic returns the DynamicKinds of an API server that has only ConfigMaps, and a
// function that counts their series.
func newDynamic(t *testing.T) (a *apiServer, s *State, kinds *DynamicKinds, series func() int) {
	a = newAPIServer(t)
	a.intercept(configMapsOnly)
	set := metrics.NewSet()
	s = a.newState(Options{Metrics: set})
	needs := []Need{Discovered(), Dynamic()}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	return a, s, DynamicIn(s.View(needs...)), func() int {
		var text strings.Builder
		if set.WritePrometheus(&text); strings.Contains(text.String(), `resource="dynamic"`) {
			t.Errorf("got series of no resource in %s", text.String())
		}
		return strings.Count(text.String(), `{resource="configmaps"}`)
	}
}

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// TestDynamicDiscovery has kinds that the API server does not serve, or whose discovery
// fails.
func TestDynamicDiscovery(t *testing.T) {
	_, _, kinds, _ := newDynamic(t)
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Other"}, {Group: "other", Version: "v1", Kind: "ConfigMap"}} {
		if _, err := kinds.Watch(t.Context(), gvk, every); !meta.IsNoMatchError(err) ||
			!strings.HasSuffix(err.Error(), `in version "`+gvk.GroupVersion().String()+`"`) {
			t.Errorf("got %v for %s, which does not exist", err, gvk)
		}
	}
	_, err := kinds.Watch(t.Context(), schema.GroupVersionKind{Group: "broken", Version: "v1", Kind: "ConfigMap"}, every)
	if err == nil || meta.IsNoMatchError(err) {
		t.Errorf("got %v for a group that must not be asked for, want what the API server says", err)
	}
}

// every wants all objects.
func every(metav1.Object) bool { return true }

// TestDynamic watches a kind twice, reads its objects, and stops both watches.
func TestDynamic(t *testing.T) {
	a, s, kinds, series := newDynamic(t)
	a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "c"}, Data: map[string]string{"a": "b"}})
	first, err := kinds.Watch(t.Context(), configMapKind, every)
	if err != nil {
		t.Fatal(err)
	}
	wanted := func(object metav1.Object) bool {
		return object.GetName() == "d" && object.GetLabels()["is"] == "wanted"
	}
	second, err := kinds.Watch(t.Context(), configMapKind, wanted)
	if err != nil {
		t.Fatal(err)
	}
	<-first.Synced()
	<-second.Synced()
	object, err := first.Get(t.Context(), "one", "c")
	if err != nil || first.Err() != nil || first.LeftOut() != nil || !first.Kind().IsNamespaced() ||
		object.Value().Get("kind").String() != "ConfigMap" || object.Value().Get("data", "a").String() != "b" {
		t.Errorf("got %v, %v, %v, %v", object, err, first.Err(), first.LeftOut())
	}
	if none, err := first.Get(t.Context(), "one", "none"); !apierrors.IsNotFound(err) || none != nil {
		t.Errorf("got %v, %v, which does not exist", none, err)
	}
	told := make(chan struct{}, 1)
	unsubscribe := first.Subscribe(func() { told <- struct{}{} })
	changing := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "two", Name: "d", Labels: map[string]string{"is": "wanted"}}}
	a.put(changing)
	<-told
	unsubscribe()
	if all := all(first.List("one")); len(all) != 1 || all[0] != object {
		t.Errorf("got the list %v, want the ConfigMap", all)
	}
	eventually(t, "the object is wanted", func() bool { return len(all(second.List(""))) == 1 })
	changing.Labels = nil
	a.put(changing)
	eventually(t, "the object is not wanted any more", func() bool { return second.store.size() == 0 })
	first.Stop()
	first.Stop()
	if series() != 6 || s.dynamic.Load() != 1 {
		t.Error("the kind is not watched, but somebody wants it")
	}
	second.Stop()
	if series() != 0 || s.dynamic.Load() != 0 {
		t.Error("the kind is watched, but nobody wants it")
	}
	eventually(t, "nothing is watched", func() bool {
		return a.count(func(r *http.Request) bool { return isWatch(r) && r.Context().Err() == nil }) == 0
	})
	again, err := kinds.Watch(t.Context(), configMapKind, every)
	if err != nil {
		t.Fatal(err)
	}
	if series() != 6 {
		t.Error("got no series of a kind that is watched again")
	}
	again.Stop()
}

// TestDynamicLimits has the maximum number of watches, and one more.
func TestDynamicLimits(t *testing.T) {
	_, s, kinds, _ := newDynamic(t)
	s.dynamic.Store(dynamicKindsMax - 1)
	last, err := kinds.Watch(t.Context(), configMapKind, every)
	if err != nil {
		t.Fatalf("the last that may be watched: %v", err)
	}
	if _, err := kinds.Watch(t.Context(), configMapKind, every); err == nil ||
		!strings.HasSuffix(err.Error(), "32 kinds are watched already, the maximum") || s.dynamicRefusals("kinds").Get() != 1 {
		t.Errorf("got %v for one more", err)
	}
	last.Stop()
	if again, err := kinds.Watch(t.Context(), configMapKind, every); err != nil {
		t.Errorf("got %v after one ended", err)
	} else {
		again.Stop()
	}
}

// TestDynamicFault has an API server that refuses to list a kind that is chosen at run time.
func TestDynamicFault(t *testing.T) {
	a := newAPIServer(t)
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/api/v1":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[`+
				`{"name":"namespaces","kind":"Namespace","namespaced":false},{"name":"secrets","kind":"Secret","namespaced":true}]}`)
		case "/api/v1/secrets":
			a.fail(w, r, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no RBAC")))
		default:
			return false
		}
		return true
	})
	s := a.newState(Options{})
	needs := []Need{Discovered(), Dynamic()}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	watch := func(kind string) *DynamicKind {
		t.Helper()
		watched, err := DynamicIn(s.View(needs...)).Watch(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: kind}, every)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(watched.Stop)
		return watched
	}
	namespaces := watch("Namespace")
	<-namespaces.Synced()
	if err := namespaces.Fault(); err != nil || namespaces.Kind().IsNamespaced() {
		t.Errorf("got %v and in namespaces: %v, want no fault of what is listed", err, namespaces.Kind().IsNamespaced())
	}
	secrets := watch("Secret")
	eventually(t, "the refusal is told", func() bool { return secrets.Fault() != nil })
	if err := secrets.Fault(); !apierrors.IsForbidden(err) || !strings.HasSuffix(secrets.Err().Error(), err.Error()) {
		t.Errorf("got %v, %v, want what the API server says", err, secrets.Err())
	}
}

// TestDynamicTyped has an item of a list without apiVersion and kind.
func TestDynamicTyped(t *testing.T) {
	kind := newDynamicKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		&metav1.APIResource{Name: "configmaps", Namespaced: true})
	for _, typed := range []string{"", `"kind":"ConfigMap",`, `"apiVersion":"v1",`, `"apiVersion":"v1","kind":"ConfigMap",`} {
		item, err := NewJSON([]byte(`{` + typed + `"metadata":{"name":"c","namespace":"one"},"data":{"a":"b"}}`))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := kind.trim(item)
		if err != nil {
			t.Fatal(err)
		}
		value := kept.(*JSON).Value()
		if !value.Get("apiVersion").EqualString("v1") || !value.Get("kind").EqualString("ConfigMap") ||
			!value.Get("data", "a").EqualString("b") {
			t.Errorf("%s: got %s, want it with apiVersion and kind", typed, value.JSON())
		}
		if again, err := kind.typed(kept.(*JSON)); err != nil || again != kept {
			t.Errorf("%s: got another object, %v, want the one that says what it is", typed, err)
		}
	}
	if got, err := newStore(kind, nil).Transformer()(new(corev1.Pod)); err == nil {
		t.Errorf("got %v of a Pod", got)
	}
}
