package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metrics"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestDynamic watches a kind that is named at run time, as long as somebody does.
func TestDynamic(t *testing.T) {
	a := newAPIServer(t)
	a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "c"}, Data: map[string]string{"a": "b"}})
	a.intercept(func(w http.ResponseWriter, r *http.Request) bool {
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
			`{"name":"configmaps/status","kind":"ConfigMap","namespaced":true,"verbs":[]},{"name":"configmaps","kind":"ConfigMap","namespaced":true,"verbs":[]}]}`)
		return true
	})
	set := metrics.NewSet()
	s := a.newState(Options{Metrics: set})
	needs := []Need{Discovered(), Dynamic()}
	if err := s.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	kinds := DynamicIn(s.View(needs...))
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Other"}, {Group: "other", Version: "v1", Kind: "ConfigMap"}} {
		if _, err := kinds.Watch(t.Context(), gvk); !meta.IsNoMatchError(err) {
			t.Errorf("got %v for %s, which there is not", err, gvk)
		}
	}
	if _, err := kinds.Watch(t.Context(), schema.GroupVersionKind{Group: "broken", Version: "v1", Kind: "ConfigMap"}); err == nil || meta.IsNoMatchError(err) {
		t.Errorf("got %v for a group that must not be asked for, want what the API server says", err)
	}
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	first, err := kinds.Watch(t.Context(), gvk)
	if err != nil {
		t.Fatal(err)
	}
	second, err := kinds.Watch(t.Context(), gvk)
	if err != nil || first.store != second.store {
		t.Fatalf("got another cache, %v", err)
	}
	<-first.Synced()
	object, ok := first.Get("one", "c")
	if !ok || first.Err() != nil || !first.Kind().IsNamespaced() || object.Value().Get("kind").String() != "ConfigMap" || object.Value().Get("data", "a").String() != "b" {
		t.Errorf("got %v, %v", object, first.Err())
	}
	if none, ok := first.Get("one", "none"); ok || none != nil {
		t.Errorf("got %v, which there is not", none)
	}
	if all := first.List("one"); len(all) != 1 || all[0] != object {
		t.Errorf("got the list %v, want the ConfigMap", all)
	}
	series := func() bool {
		var text strings.Builder
		set.WritePrometheus(&text)
		return strings.Contains(text.String(), `fastadmit_cluster_objects{resource="configmaps"}`)
	}
	first.Stop()
	first.Stop()
	if !series() || len(s.dynamic.watched) != 1 {
		t.Error("the kind is not watched, but somebody wants it")
	}
	watched, ended := s.dynamic.watched[gvk], false
	end := watched.end
	watched.end = func() { ended = true; end() }
	second.Stop()
	if series() || len(s.dynamic.watched) != 0 || !ended {
		t.Error("the kind is watched, but nobody wants it")
	}
	for i := range dynamicKindsMax - 1 {
		s.dynamic.watched[schema.GroupVersionKind{Kind: fmt.Sprint(i)}] = nil
	}
	last, err := kinds.Watch(t.Context(), gvk)
	if err != nil {
		t.Fatalf("the last that may be watched: %v", err)
	}
	if _, err := kinds.Watch(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "One"}); err == nil || s.dynamicRefusals("kinds").Get() != 1 {
		t.Errorf("got %v for one more", err)
	}
	for range 2 {
		last.store.full()
	}
	if got := s.dynamicRefusals("bytes").Get(); got != 1 {
		t.Errorf("got %d refusals of a kind that is too large, want 1", got)
	}
	last.Stop()
}

// TestDynamicTyped has an item of a list, which does not say what it is.
func TestDynamicTyped(t *testing.T) {
	item, err := NewJSON([]byte(`{"metadata":{"name":"c","namespace":"one"},"data":{"a":"b"}}`))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := newDynamicKind(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, &metav1.APIResource{Name: "configmaps", Namespaced: true}).trim(item)
	if err != nil {
		t.Fatal(err)
	}
	value := kept.(*JSON).Value()
	if !value.Get("apiVersion").EqualString("v1") || !value.Get("kind").EqualString("ConfigMap") || !value.Get("data", "a").EqualString("b") {
		t.Errorf("got %s, want it with apiVersion and kind", value.JSON())
	}
}

// TestDynamicBytes shows when there is too much of a kind, or not all of it yet.
func TestDynamicBytes(t *testing.T) {
	object := func(name string) *JSON {
		j, err := NewJSON(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"n"}}`, name))
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	f := func(bytesMax int64, full bool) {
		t.Helper()
		ended := 0
		s := newStore(wholeTeams.Kind, nil)
		s.bytesMax, s.full = bytesMax, func() { ended++ }
		size := s.sizeOf(object("a"))
		for _, name := range []string{"a", "b", "a"} { // what is replaced does not count twice
			if err := s.Add(object(name)); err != nil && !full {
				t.Errorf("%d: got %v for two of %d bytes", bytesMax, err, size)
			}
		}
		if (&DynamicKind{store: s}).IsFull() != full || (ended > 0) != full || full && s.size() > 1 {
			t.Errorf("%d: got full %v with %d objects of %d bytes", bytesMax, s.isFull(), s.size(), size)
		}
		if !s.mu.TryLock() {
			t.Error("the cache stays locked")
		}
	}
	one := int64(len(object("a").text))
	f(2*one-1, true)
	f(2*one, false)
	f(2*one+1, false)
	unsynced := DynamicKind{store: newStore(wholeTeams.Kind, nil)}
	if err := unsynced.Err(); err == nil || !strings.HasSuffix(err.Error(), "are not known yet: waiting for the API server") {
		t.Errorf("got %v before anything was listed", err)
	}
}
