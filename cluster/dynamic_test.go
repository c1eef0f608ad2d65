package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
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
		if _, err := kinds.Watch(t.Context(), gvk); !meta.IsNoMatchError(err) ||
			!strings.HasSuffix(err.Error(), `in version "`+gvk.GroupVersion().String()+`"`) {
			t.Errorf("got %v for %s, which does not exist", err, gvk)
		}
	}
	_, err := kinds.Watch(t.Context(), schema.GroupVersionKind{Group: "broken", Version: "v1", Kind: "ConfigMap"})
	if err == nil || meta.IsNoMatchError(err) {
		t.Errorf("got %v for a group that must not be asked for, want what the API server says", err)
	}
}

// TestDynamic watches a kind twice, reads its objects, and stops both watches.
func TestDynamic(t *testing.T) {
	a, s, kinds, series := newDynamic(t)
	a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Name: "c"}, Data: map[string]string{"a": "b"}})
	first, err := kinds.Watch(t.Context(), configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	second, err := kinds.Watch(t.Context(), configMapKind)
	if err != nil || first.store != second.store {
		t.Fatalf("got another cache, %v", err)
	}
	<-first.Synced()
	object, ok := first.Get("one", "c")
	if !ok || first.Err() != nil || !first.Kind().IsNamespaced() || object.Value().Get("kind").String() != "ConfigMap" ||
		object.Value().Get("data", "a").String() != "b" {
		t.Errorf("got %v, %v", object, first.Err())
	}
	if got := fmt.Sprintf(" %d bytes", first.store.bytesMax); !strings.Contains(errFull.Error(), got) {
		t.Errorf("got a limit of%s, want that of %q", got, errFull)
	}
	if none, ok := first.Get("one", "none"); ok || none != nil {
		t.Errorf("got %v, which does not exist", none)
	}
	told := make(chan struct{}, 1)
	unsubscribe := first.Subscribe(func() { told <- struct{}{} })
	a.put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "two", Name: "d"}})
	<-told
	unsubscribe()
	if all := first.List("one"); len(all) != 1 || all[0] != object {
		t.Errorf("got the list %v, want the ConfigMap", all)
	}
	first.Stop()
	first.Stop()
	if series() != 4 || len(s.dynamic.watched) != 1 {
		t.Error("the kind is not watched, but somebody wants it")
	}
	watched, ended := s.dynamic.watched[configMapKind], false
	end := watched.end
	watched.end = func() { ended = true; end() }
	second.Stop()
	if series() != 0 || len(s.dynamic.watched) != 0 || !ended {
		t.Error("the kind is watched, but nobody wants it")
	}
	again, err := kinds.Watch(t.Context(), configMapKind)
	if err != nil {
		t.Fatal(err)
	}
	if series() != 4 {
		t.Error("got no series of a kind that is watched again")
	}
	again.Stop()
}

// TestDynamicLimits watches the maximum number of kinds and one more, and a kind whose
// objects are too large.
func TestDynamicLimits(t *testing.T) {
	a, s, kinds, _ := newDynamic(t)
	s.dynamic.watched = make(map[schema.GroupVersionKind]*dynamicKind)
	for i := range dynamicKindsMax - 1 {
		s.dynamic.watched[schema.GroupVersionKind{Kind: fmt.Sprint(i)}] = nil
	}
	last, err := kinds.Watch(t.Context(), configMapKind)
	if err != nil {
		t.Fatalf("the last that may be watched: %v", err)
	}
	if _, err := kinds.Watch(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "One"}); err == nil ||
		!strings.HasSuffix(err.Error(), "32 kinds are watched already, the maximum") || s.dynamicRefusals("kinds").Get() != 1 {
		t.Errorf("got %v for one more", err)
	}
	<-last.Synced()
	for range 2 {
		last.store.full()
	}
	eventually(t, "nothing is watched", func() bool {
		return a.count(func(r *http.Request) bool { return isWatch(r) && r.Context().Err() == nil }) == 0
	})
	if got := s.dynamicRefusals("bytes").Get(); got != 1 {
		t.Errorf("got %d refusals of a kind that is too large, want 1", got)
	}
	last.Stop()
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
		watched, err := DynamicIn(s.View(needs...)).Watch(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: kind})
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
	if err := secrets.Fault(); !apierrors.IsForbidden(err) || !strings.HasSuffix(secrets.Err().Error(), err.Error()) || secrets.IsFull() {
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

// TestDynamicBytes checks the states of a kind that is too large, or not listed completely
// yet.
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
		for _, name := range []string{"a", "b", "a"} { // a replaced object counts once
			if err := s.Add(object(name)); err != nil && !full {
				t.Errorf("%d: got %v for two of %d bytes", bytesMax, err, size)
			}
		}
		if err := errors.Join(s.Delete(object("b")), s.Add(object("c"))); err != nil && !full { // deleted objects do not count
			t.Errorf("%d: got %v for two of %d bytes", bytesMax, err, size)
		}
		kind := DynamicKind{store: s}
		if kind.IsFull() != full || errors.Is(kind.Err(), errFull) != full || (ended > 0) != full || full && s.size() > 0 {
			t.Errorf("%d: got full %v with %d objects of %d bytes", bytesMax, s.isFull(), s.size(), size)
		}
		if !s.mu.TryLock() {
			t.Error("the cache stays locked")
		}
		// A list counts while it is read, and then replaces the cached objects.
		s = newStore(wholeTeams.Kind, nil)
		s.bytesMax, s.full = bytesMax, func() {}
		for range 2 {
			list := make([]any, 2)
			for i := range list {
				var err error
				if list[i], err = s.Transformer()(object(strconv.Itoa(i))); errors.Is(err, errFull) != (full && i == 1) {
					t.Errorf("%d: got %v for object %d of a list", bytesMax, err, i)
				}
			}
			if err := s.Replace(list, ""); errors.Is(err, errFull) != full || s.isSynced() == full {
				t.Errorf("%d: got %v for a list", bytesMax, err)
			}
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
